"""A dialect of another package: served, bridged, configured and published in like the built-in ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.pages import ROOT, blocks
from kit.subscribers import send_request
from kit.ubre import UbrePeer

GUIDE = ROOT / "docs" / "guides" / "write-a-dialect.md"
TOY = ROOT / "tests" / "dialects" / "toy_dialect"
LISTEN = (
    "tabs", "simplest", "hermod.pub", "hermod.sub", "fanout.client", "fanout.controller", "nanomsg.pub",
    "nanomsg.sub", "ubre", "http",
)  # fmt: skip
PAIRS = ROOT / "tests" / "bridge" / "toy_pairs.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The toy on the import path, with the metadata of an installed package."""
    [pyproject] = blocks(GUIDE, "toml pyproject")
    project = tomllib.loads(pyproject)["project"]
    path = tmp_path_factory.mktemp("installed")
    metadata = path / f"polycast_tabs-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["polycast.dialects"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[polycast.dialects]", *lines, ""]))
    imports = os.pathsep.join([str(path), str(TOY), os.environ.get("PYTHONPATH", str(ROOT / "src"))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", imports)
        yield dict(os.environ)


@pytest.fixture(scope="module")
def broker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    flags = ("--set=tabs.replacement=_",)
    with Broker(*flags, data=tmp_path_factory.mktemp("data"), listen=LISTEN, fresh=True) as broker:
        yield broker


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_the_guide_has_the_code_of_the_toy() -> None:
    parts = [part.strip() for part in blocks(GUIDE, "python tabs")]
    code = (TOY / "tabs.py").read_text()
    assert re.sub(r"\n+", "\n", "\n".join(parts)) == re.sub(r"\n+", "\n", code).strip()


def test_it_is_bridged_to_all_others_both_ways(broker: Broker, environment: dict[str, str]) -> None:
    done = run(environment, str(PAIRS), json.dumps(dict(broker.addresses)))
    assert done.returncode == 0, done.stderr
    pairs = json.loads(done.stdout)
    others = {"simplest", "hermod", "fanout", "nanomsg", "ubre"}
    expected = {("tabs", "tabs"), *(("tabs", other) for other in others), *((other, "tabs") for other in others)}
    assert {(source, target) for source, target, _, _ in pairs} == expected
    for source, target, topic, payload in pairs:
        assert (topic, payload) == (f"from/{source}/to/{target}", "hello\tworld")


def test_its_encoder_and_its_settings(broker: Broker) -> None:
    with broker.connect("tabs") as subscriber, broker.connect("hermod.pub") as publisher:
        subscriber.send(b"sub\tnotes\nsync\n")
        subscriber.expect(b"synced\n")
        publisher.send(b'{"topic": "notes", "payload_size": 9, "checksum": ""}two\nlines')
        subscriber.expect(b"notes\ttwo_lines\n")


def test_its_settings_are_checked_with_the_others(environment: dict[str, str]) -> None:
    done = run(environment, "-m", "polycast", "serve", "--check", "--set=tabs.replacement=!")
    assert done.returncode == 0, done.stderr
    checked = tomllib.loads(done.stdout)
    assert checked["tabs"] == {"replacement": "!"}
    assert checked["listen"]["tabs"] == ["tcp://127.0.0.1:9100"]
    failed = run(environment, "-m", "polycast", "serve", "--check", "--set=tabs.replacment=!")
    assert failed.returncode == 2 and "did you mean tabs.replacement?" in failed.stderr


def test_messages_are_published_as_tabs_by_request(broker: Broker) -> None:
    message = {"topic": "by/request", "body": "x", "dialect": "tabs"}
    assert send_request(broker, "polycast/publish", message)["sequence"] == 0
    [row] = send_request(broker, "polycast/history", {"pattern": "by/request"})
    assert (row["dialect"], row["format"], row["body"]) == ("tabs", "bytes", "x")
    with UbrePeer(broker.ports["ubre"]) as peer:
        refused = peer.refusal("polycast/publish", message | {"body": "1\n2"})
    assert refused == "BadRequest: a payload of tabs cannot contain '\\n'"


def test_access_rules_know_it(environment: dict[str, str]) -> None:
    rule = "--set=access.rules=guest may publish a over tabs"
    done = run(environment, "-m", "polycast", "serve", "--check", rule)
    assert done.returncode == 0, done.stderr


def test_without_the_package_it_is_unknown() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = run(environment, "-m", "polycast", "serve", "--check", "--set=tabs.replacement=!")
    assert done.returncode == 2 and "unknown setting tabs.replacement" in done.stderr


def test_a_package_that_cannot_be_loaded_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    done = check_beside(environment, tmp_path, "morse = nowhere:DIALECT")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "cannot load the dialect morse from nowhere:DIALECT: No module named 'nowhere'" in done.stderr


@pytest.mark.parametrize("name", ["log", "listen"])
def test_a_dialect_named_like_a_table_of_settings_is_refused(
    environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "namesake.py").write_text(
        "from polycast.dialects.contract import Dialect, Role\nfrom polycast.dialects.session import Session\n"
        f"DIALECT = Dialect({name!r}, (Role('morse', {name!r}, Session),))\n"
    )
    done = check_beside(environment, tmp_path, f"{name} = namesake:DIALECT")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert f"the dialect {name} has the name of a table of the broker's settings" in done.stderr


def check_beside(environment: dict[str, str], path: Path, entry: str) -> subprocess.CompletedProcess[str]:
    """`serve --check` with one more package, which declares a dialect."""
    metadata = path / "other-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[polycast.dialects]\n{entry}\n")
    imports = os.pathsep.join([str(path), environment["PYTHONPATH"]])
    return run(environment | {"PYTHONPATH": imports}, "-m", "polycast", "serve", "--check")
