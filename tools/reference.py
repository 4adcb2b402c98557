"""Writes docs/reference/ from the code: commands, settings, metrics, errors, Spark options, OpenAPI.

python tools/reference.py            write
python tools/reference.py --check    list outdated pages; exit code 1 if there are any
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from itertools import chain
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from error_page import error_page
from polycast.cli import log, pipeline, token
from polycast.cli.commands import COMMANDS, app
from polycast.declare import SECONDS
from polycast.dialects.registry import ROLES
from polycast.pipelines import NAMES as PIPELINES
from polycast.pipelines import find
from polycast.server.config import MODE, OPTIONS, REPLAYS
from polycast.server.observe import openapi
from polycast.server.observe.metrics import Declaration, metrics_of
from polycast.server.settings import POLICIES, TABLES, declared
from polycast.server.stats.counters import Build, Counters, NodeInfo, NodeTotals, Process, Progress, Times, Totals
from polycast.spark.options import SINK_OPTIONS, SOURCE_OPTIONS
from polycast.spark.session import LOCAL_SETTINGS
from polycast.spark.session import SETTINGS as SPARK_SETTINGS

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
HELP_COLUMNS = 78


def commands() -> Iterator[str]:
    yield "# Commands\n"
    names = [command.NAME for command in COMMANDS]
    for group in (log, pipeline, token):
        names += [f"{group.NAME} {command.NAME}" for command in group.COMMANDS]
    for name in names:
        yield f"## {name}\n\n```text\n{_help_of(name)}\n```\n"


def _help_of(command: str) -> str:
    shown = CliRunner(env={"NO_COLOR": "1"}).invoke(app, [*command.split(), "--help"], terminal_width=HELP_COLUMNS)
    assert shown.exit_code == 0, shown.output
    return shown.stdout.strip()


SETTINGS_HEAD = """# Settings

In the configuration file as `key` in `[table]`, in the environment as `POLYCAST_TABLE_KEY`, as a flag with
`--set table.key=value`.

A setting whose name ends with `bytes` or `seconds` is a number, or a text with a unit: `512KiB`, `64MiB`, `10GB`
(`GB` and `GiB` are both 1,073,741,824 bytes), or `250ms`, `30s`, `10m`, `12h`, `7d`, `2w`. In the configuration
file the text is in quotes:

```toml
[log]
retain_bytes = "10GB"
retain_seconds = "7d"
```

## listen

Name = address, or a list of addresses: `tcp://HOST:PORT`, `tls://HOST:PORT` or `ipc:///path`. If any listener is
named, only the named ones open.

Options follow the address, as in `tcp://0.0.0.0:8787?policy=spill&replay=last`:

| option | values | meaning |
|---|---|---|"""

OPTION_MEANINGS = {
    "policy": "`limits.policy` for the connections of this listener",
    "replay": "a new subscription first receives the last message of each matching topic; needs the log",
    "mode": "permissions of the socket file, as for chmod: which accounts may connect; `ipc://` listeners only",
}
OPTION_VALUES = {"policy": POLICIES, "replay": REPLAYS, "mode": ("660",)}

LISTENERS_HEAD = """
| name | default | dialect | further options |
|---|---|---|---|"""

CONNECT_HEAD = """
## connect

Name = address, or a list of addresses: the broker dials these addresses and acts there as the listener of that
name; as a flag `--connect name=address`. An address is `tcp://HOST:PORT`, `ipc:///path` or `ws://HOST:PORT/path`,
with the options of that listener.

| name | dialect |
|---|---|"""


def settings() -> Iterator[str]:
    yield SETTINGS_HEAD
    for option in (*OPTIONS, MODE):
        values = ", ".join(f"`?{option}={value}`" for value in OPTION_VALUES[option])
        yield f"| `{option}` | {values} | {OPTION_MEANINGS[option]} |"
    yield LISTENERS_HEAD
    for name, role in ROLES.items():
        options = ", ".join(f"`{option}`" for option in role.options)
        yield f"| `{name}` | {f'`{role.default}`' if role.default else 'off'} | {role.dialect} | {options} |"
    yield CONNECT_HEAD
    for name, role in ROLES.items():
        if role.dials:
            yield f"| `{name}` | {role.dialect} |"
    for table in TABLES:
        yield f"\n## {table}\n\n| key | default | meaning |\n|---|---|---|"
        for key, field in declared().items():
            if key.startswith(table + "."):
                yield f"| `{field.name}` | {_default(field)} | {_meaning(field)} |"
    yield ""


def _default(field: Field[Any]) -> str:
    value = field.default_factory() if callable(field.default_factory) else field.default
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = _with_unit(field.name, value)
        return f"{value:,} (`{text}`)" if text else f"{value:,}"
    return f"`{json.dumps(value)}`"


def _with_unit(name: str, value: float) -> str:
    """A large size or a long time with its unit; otherwise an empty text."""
    sizes, times = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}, {"d": 86_400, "h": 3600, "m": 60}
    units = {"bytes": sizes, "seconds": times}.get(name.rpartition("_")[2], {})
    found = (f"{value / size:.0f}{unit}" for unit, size in units.items() if value and value % size == 0)
    return next(found, "")


def _meaning(field: Field[Any]) -> str:
    meaning, choices = field.metadata["meaning"], field.metadata["choices"]
    return f"{meaning}: {' or '.join(f'`{choice}`' for choice in choices)}" if choices else f"{meaning}"


METRICS_HEAD = """# Metrics

At `/metrics` of the `http` listener, in the text format of Prometheus. On stop the broker logs the counters of
each listener to stderr.

## Per listener and dialect
"""


TIMES_HEAD = f"""
## Histograms

The bucket bounds are {", ".join(f"{bound * 1000:g}" for bound in SECONDS)} ms. A delivery is measured once per
burst and counted once per delivered message; with `log.delivery = "committed"` it includes the fsync.
"""


def metrics() -> Iterator[str]:
    yield METRICS_HEAD
    yield from _metrics_of(Counters)
    yield "\n## Per broker\n"
    yield from _metrics_of(Totals)
    yield TIMES_HEAD
    yield from _metrics_of(Times)
    yield "\n## Per pipeline that reports its progress\n"
    yield from _metrics_of(Progress)
    yield "\n## Per node of a cluster\n"
    yield from _metrics_of(NodeInfo, NodeTotals)
    yield "\n## The process\n"
    yield from _metrics_of(Build, Process)
    yield ""


def _metrics_of(*declarations: Declaration) -> Iterator[str]:
    yield "| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|"
    for metric in chain.from_iterable(metrics_of(declaration).values() for declaration in declarations):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.meaning} |"


SPARK_HEAD = """# Spark

The format is `polycast`; see [the guide](../guides/spark.md). Option names are case-insensitive.

## Options to read
"""


def spark() -> Iterator[str]:
    yield SPARK_HEAD
    yield from _options(SOURCE_OPTIONS)
    yield "\n## Options to write\n"
    yield from _options(SINK_OPTIONS)
    yield "\n## Settings of `polycast.spark.session()`\n\n| setting | value |\n|---|---|"
    for name, value in (SPARK_SETTINGS | LOCAL_SETTINGS).items():
        yield f"| `{name}` | `{value}` |"
    yield "| `spark.sql.shuffle.partitions` | the number of cores |"
    for name in PIPELINES:
        found = find(name)
        yield f"\n## Pipeline `{name}`\n\n{found.summary}\n\n| key of `--set` | default | meaning |\n|---|---|---|"
        for field in fields(found.settings):
            yield f"| `{field.name}` | {_default(field)} | {_meaning(field)} |"
    yield ""


def _options(declared_options: Mapping[str, str]) -> Iterator[str]:
    yield "| option | meaning |\n|---|---|"
    for name, meaning in declared_options.items():
        yield f"| `{name}` | {meaning} |"


PAGES = {"spark": spark, "commands": commands, "settings": settings, "metrics": metrics, "errors": error_page}


def main(check: bool) -> int:
    FOLDER.mkdir(exist_ok=True)
    outdated = []
    texts = {f"{name}.md": "\n".join(write()) for name, write in PAGES.items()}
    for name, text in {**texts, "openapi.json": openapi.PAGE.body.decode()}.items():
        page = FOLDER / name
        if not page.exists() or page.read_text() != text:
            outdated.append(page.name)
            if not check:
                page.write_text(text)
    if check and outdated:
        sys.stderr.write(f"out of date: {', '.join(outdated)}\nhint: make docs\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
