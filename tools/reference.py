"""Writes docs/reference/ from the code: every command, every setting, every counter, every error.

python tools/reference.py            write
python tools/reference.py --check    say what is out of date, and fail if anything is
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from polycast import errors
from polycast.cli import COMMANDS
from polycast.dialects.registry import ROLES
from polycast.server.counters import Counters
from polycast.server.settings import TABLES, declared

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
HELP_COLUMNS = "100"


def commands() -> Iterator[str]:
    yield "# Commands\n"
    for command in COMMANDS:
        yield f"## {command.NAME}\n\n```text\n{_help_of(command.NAME)}\n```\n"


def _help_of(command: str) -> str:
    environment = os.environ | {"COLUMNS": HELP_COLUMNS, "NO_COLOR": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "polycast", command, "--help"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return shown.stdout.strip().replace("python -m polycast", "polycast")


SETTINGS_HEAD = """# Settings

In a file as `key` in `[table]`, in the environment as `POLYCAST_TABLE_KEY`, as a flag with `--set
table.key=value`.

## listen

Name = address, or a list of addresses. An address is `tcp://HOST:PORT` or `ipc:///path`, and may end in
`?policy=drop` or `?policy=disconnect`. Where any listener is named, only the named ones open.

| name | default | dialect |
|---|---|---|"""


def settings() -> Iterator[str]:
    yield SETTINGS_HEAD
    for name, role in ROLES.items():
        yield f"| `{name}` | {f'`{role.default}`' if role.default else 'off'} | {role.dialect} |"
    for table in TABLES:
        yield f"\n## {table}\n\n| key | default | meaning |\n|---|---|---|"
        for key, field in declared().items():
            if key.startswith(table + "."):
                yield f"| `{field.name}` | {_default(field)} | {_meaning(field)} |"
    yield ""


def _default(field: Field[Any]) -> str:
    value = field.default_factory() if callable(field.default_factory) else field.default
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return f"`{json.dumps(value)}`"


def _meaning(field: Field[Any]) -> str:
    meaning, choices = field.metadata["meaning"], field.metadata["choices"]
    return f"{meaning}: {' or '.join(f'`{choice}`' for choice in choices)}" if choices else f"{meaning}"


def counters() -> Iterator[str]:
    yield "# Counters\n\nOne set for each listener. The broker writes them to its log when it stops.\n"
    yield "| name | unit | meaning |\n|---|---|---|"
    for field in fields(Counters):
        yield f"| `{field.name}` | {field.metadata['unit']} | {field.metadata['meaning']} |"
    yield ""


def error_tree() -> Iterator[str]:
    tree = inspect.getdoc(errors)
    assert tree is not None
    yield f"# Errors\n\n```text\n{tree}\n```\n"


PAGES = {"commands": commands, "settings": settings, "counters": counters, "errors": error_tree}


def main(check: bool) -> int:
    FOLDER.mkdir(exist_ok=True)
    outdated = []
    for name, write in PAGES.items():
        page, text = FOLDER / f"{name}.md", "\n".join(write())
        if not page.exists() or page.read_text() != text:
            outdated.append(page.name)
            if not check:
                page.write_text(text)
    if check and outdated:
        sys.stderr.write(f"out of date: {', '.join(outdated)}\nhint: make docs\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
