"""Documentation snippets that need Spark. The snippets of a page run in order."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kit.pages import PAGES, Terminal, blocks, default_ports
from kit.program import polycast_here
from spark.here import run_here

SPARK_SECONDS = 120.0
"""Timeout of a command."""
SPARK_COMMANDS = (["polycast", "sql"], ["polycast", "pipeline"])


class SharedSessionTerminal(Terminal):
    """Runs commands that need Spark in this process, with the shared session, unless they name a master."""

    def run(self, command: str) -> None:
        words = shlex.split(command)
        if words[:2] not in SPARK_COMMANDS or "--master" in words:
            super().run(command)
            return
        done = polycast_here(*(word for word in words[1:] if not word.startswith(">")))
        assert done.code == 0, done.err
        (self.folder / f"{len(list(self.folder.iterdir()))}.out").write_bytes(done.out)


def pages(*languages: str) -> list[Path]:
    return [page for page in PAGES if any(blocks(page, language) for language in languages)]


@pytest.fixture(autouse=True)
def default_ports_are_free() -> Iterator[None]:
    with default_ports():
        yield


@pytest.mark.parametrize("page", pages("python spark", "console spark"), ids=lambda page: page.stem)
def test_a_page(
    spark: SparkSession,
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run_here(spark, monkeypatch)
    known: dict[str, Any] = {}
    shell = SharedSessionTerminal(tmp_path, SPARK_SECONDS)
    try:
        shell.run("polycast serve &")
        for number, block in enumerate(blocks(page, "python spark")):
            here = block.replace(
                "polycast-data", str(tmp_path / "polycast-data")
            )  # Spark has another working directory
            exec(compile(here, f"{page.name}-{number}", "exec"), known)
        for block in blocks(page, "console spark"):
            shell.run_block(block)
    finally:
        shell.close()
    assert "Traceback" not in capsys.readouterr().out
