"""The snippets that need Spark: those of a page belong together, and run one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kit.pages import PAGES, blocks, default_ports, terminal

SPARK_SECONDS = 120.0
"""When a command is taken to hang."""


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
    known: dict[str, Any] = {}
    with terminal(tmp_path, SPARK_SECONDS) as shell:
        shell.run("polycast serve &")
        for number, block in enumerate(blocks(page, "python spark")):
            here = block.replace("polycast-data", str(tmp_path / "polycast-data"))  # Spark began in another folder
            exec(compile(here, f"{page.name}-{number}", "exec"), known)
        for block in blocks(page, "console spark"):
            shell.run_block(block)
    assert "Traceback" not in capsys.readouterr().out
