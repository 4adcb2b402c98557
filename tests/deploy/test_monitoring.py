"""The dashboard and the alert rules in deploy/ use metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.http import get, read_response
from kit.metrics import read_metrics
from kit.nats import Servers
from kit.pages import ROOT
from polycast.server.observe.metrics import Declaration, Metric, metrics_of
from polycast.server.stats.counters import Build, Counters, NodeInfo, NodeTotals, Process, Progress, Times, Totals

ALERTS, DASHBOARD = ROOT / "deploy" / "alerts.yml", ROOT / "deploy" / "grafana.json"
DECLARATIONS: tuple[Declaration, ...] = (Counters, Totals, Progress, NodeInfo, NodeTotals, Times, Build, Process)
SELECTOR = re.compile(r"\b((?:polycast|process)_[a-z_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+) *(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
FUNCTION = re.compile(r"\b([a-z_]+)\(")
FUNCTIONS = {"rate", "increase", "delta", "sum", "max", "histogram_quantile", "predict_linear", "time"}
OF_THE_SCRAPE = {"instance", "job"}
CLUSTER = "polycast_cluster_"
DASHBOARD_COLUMNS = 24


def series() -> dict[str, Metric]:
    """Every metric, by the names of its series."""
    found: dict[str, Metric] = {}
    for declaration in DECLARATIONS:
        for metric in metrics_of(declaration).values():
            parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
            found |= {metric.name + part: metric for part in parts}
    return found


def alerts() -> dict[str, str]:
    """Expressions by the name of the alert; each is one line."""
    return dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", ALERTS.read_text()))


def queries() -> list[str]:
    """A row of the dashboard has none."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def problems_of(expression: str) -> Iterator[str]:
    known = series()
    used = SELECTOR.findall(expression)
    if not used and not expression.startswith("up{"):
        yield "no metric"
    for name, selector in used:
        if name not in known:
            yield f"there is no {name}"
            continue
        unknown = set(LABEL.findall(selector)) - {*known[name].labels, *OF_THE_SCRAPE}
        yield from (f"{name} has no label {label}" for label in unknown)
        if known[name].kind == "gauge" and re.search(rf"(rate|increase)\({name}", expression):
            yield f"{name} is a gauge"
    labels = {label for name, _ in used if name in known for label in known[name].labels}
    grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")}
    yield from (f"no label {label} to group by" for label in grouped - labels - OF_THE_SCRAPE)
    yield from (f"an unknown function {name}" for name in set(FUNCTION.findall(expression)) - FUNCTIONS)
    for opening, closing in ("()", "[]", "{}"):
        if expression.count(opening) != expression.count(closing):
            yield f"unbalanced {opening}{closing}"


@pytest.mark.parametrize(("name", "expression"), alerts().items())
def test_alerts(name: str, expression: str) -> None:
    assert list(problems_of(expression)) == []


def test_every_alert_is_read() -> None:
    text = ALERTS.read_text()
    assert len(alerts()) == text.count("- alert:") == text.count("summary:") == text.count("severity:") > 10


def test_the_summary_of_an_alert_uses_labels_that_it_has() -> None:
    known, text = series(), ALERTS.read_text()
    for name, expression in alerts().items():
        about = text.partition(f"- alert: {name}\n")[2].partition("- alert:")[0]
        has = [set(known[metric].labels) for metric, _ in SELECTOR.findall(expression)]
        wanted = set(re.findall(r"\$labels\.(\w+)", about)) - OF_THE_SCRAPE
        assert all(wanted <= labels for labels in has), name


def test_the_dashboard() -> None:
    assert {query: found for query in queries() if (found := list(problems_of(query)))} == {}


def test_panels_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < DASHBOARD_COLUMNS
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_a_node_exports_the_cluster_metrics_of_the_dashboard_and_the_alerts(tmp_path: Path) -> None:
    """The dashboard has all of them."""
    with (
        Servers(tmp_path / "nats", 1) as servers,
        Broker(f"--cluster={servers.urls}", "--node=a", listen=("http",), data=tmp_path / "a") as node,
        node.connect("http") as peer,
    ):
        peer.send(get("/metrics"))
        families = read_metrics(read_response(peer).body.decode())
    exported = {name for name, family in families.items() if name.startswith(CLUSTER) and family.samples}
    shown, watched = (
        {name for text in texts for name, _ in SELECTOR.findall(text) if name.startswith(CLUSTER)}
        for texts in (queries(), alerts().values())
    )
    assert shown == exported
    assert watched and watched <= exported


def test_the_check_finds_mistakes() -> None:
    assert list(problems_of("rate(polycast_messages_lost[5m]"))
    assert list(problems_of("rate(polycast_connections_open[5m])")) == ["polycast_connections_open is a gauge"]
    assert list(problems_of('polycast_log_gaps{listener="x"}')) == ["polycast_log_gaps has no label listener"]


def promtool(*arguments: str, stdin: bytes = b"") -> None:
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed: apt-get install prometheus")
    checked = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_accepts_the_rules() -> None:
    promtool("check", "rules", str(ALERTS))


def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, with values for the variables of the dashboard."""
    filled = [query.replace("$__rate_interval", "5m").replace("$instance", ".*") for query in queries()]
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(filled)]
    file = tmp_path / "rules.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_prometheus_accepts_the_page() -> None:
    with Broker(listen=("http",)) as broker, broker.connect("http") as peer:
        peer.send(get("/metrics"))
        promtool("check", "metrics", stdin=read_response(peer).body)
