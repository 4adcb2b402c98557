"""`polycast pipeline`: list, describe, and refusals before Spark starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.program import Finished, polycast_here
from log.log_builder import LogBuilder, stop
from polycast.pipelines import NAMES, SUMMARIES, find
from polycast.pipelines.runtime.checkpoint import committed_offset
from polycast.pipelines.runtime.progress import BatchProgress, to_progress


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log with ten messages, of a broker that has stopped."""
    (tmp_path / "data" / "log").mkdir(parents=True)
    builder = LogBuilder(tmp_path / "data" / "log")
    builder.segment(10)
    stop(builder)
    return tmp_path / "data"


def run(data: Path, *arguments: str) -> Finished:
    return polycast_here("pipeline", "run", *arguments, "--data", str(data))


@pytest.mark.parametrize("command", ["list", "describe", "run"])
def test_the_help_ends_with_an_example(command: str) -> None:
    shown = polycast_here("pipeline", command, "--help")
    assert (shown.code, shown.err) == (0, "")
    last = " ".join(shown.out.decode().strip().split("\n\n")[-1].split())
    assert last.startswith(f"Example: polycast pipeline {command}")


# -- list and describe -----------------------------------------------------------------------------------


def test_the_list_names_all_of_them() -> None:
    lines = polycast_here("pipeline", "list").out.decode().splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    rows = [json.loads(line) for line in polycast_here("pipeline", "list", "--json").out.splitlines()]
    assert [(row["name"], row["summary"]) for row in rows] == list(SUMMARIES.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_that_of_the_pipeline(name: str) -> None:
    pipeline = find(name)
    assert (pipeline.name, pipeline.summary) == (name, SUMMARIES[name])
    assert "\n" not in pipeline.summary


def test_the_list_does_without_spark() -> None:
    code = "import sys; from polycast.cli.commands import app; app(['pipeline', 'list'], standalone_mode=False)"
    check = f"{code}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_description_has_every_setting_and_an_example(name: str) -> None:
    shown = polycast_here("pipeline", "describe", name)
    assert (shown.code, shown.err) == (0, "")
    text = shown.out.decode()
    about = json.loads(polycast_here("pipeline", "describe", name, "--json").out)
    assert about["summary"] == find(name).summary
    for row in about["settings"]:
        assert row["meaning"] and row["meaning"] in text
        assert f"  {row['key']}=" in text
    assert f"DIR/checkpoints/{name}" in text
    assert text.rstrip().splitlines()[-1].startswith(f"Example: polycast pipeline run {name}")


@pytest.mark.parametrize("command", ["describe", "run"])
def test_an_unknown_pipeline(command: str) -> None:
    failed = polycast_here("pipeline", command, "archiv")
    assert (failed.code, failed.out) == (2, b"")
    assert failed.err == f"polycast: unknown pipeline 'archiv'\nhint: pipelines: {', '.join(NAMES)}\n"


# -- what is refused before Spark begins -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["target_byte=1"], "--set: unknown setting target_byte\nhint: did you mean target_bytes?"),
        (["target_bytes"], "--set target_bytes: expected KEY=VALUE"),
        (
            ["target_bytes=much"],
            "--set: target_bytes = 'much': expected a number of bytes, or a size such as 512MiB or 10GB",
        ),
        (["compact_files=1"], "--set: compact_files = 1: expected 2 to 9,007,199,254,740,992"),
        (["subscribe=a,,b"], "--set: subscribe = 'a,,b': a pattern cannot be empty\nhint: '>' matches everything"),
    ],
)
def test_an_invalid_setting(data: Path, settings: list[str], words: str) -> None:
    failed = run(data, "archive", *(f"--set={setting}" for setting in settings))
    assert (failed.code, failed.out) == (2, b"")
    assert failed.err.startswith(f"polycast: {words}")


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "an empty log", "a file"])
def test_with_no_log(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "data"
    if what == "an empty folder":
        folder.mkdir()
    if what == "an empty log":
        (folder / "log").mkdir(parents=True)
    if what == "a file":
        folder.write_text("")
    failed = run(folder, "archive", "--once")
    assert (failed.code, failed.out) == (2, b"")
    assert failed.err.splitlines()[0] == f"polycast: there is no log in {folder}"
    assert "polycast serve --data DIR" in failed.err.splitlines()[1]


def test_an_unreachable_broker(data: Path) -> None:
    failed = run(data, "traffic", "--at", "tcp://127.0.0.1:1")
    assert (failed.code, failed.out) == (1, b"")
    assert failed.err.startswith("polycast: traffic publishes its results, and cannot reach tcp://127.0.0.1:1")
    assert "hint: is a broker running there?" in failed.err


def test_an_invalid_address(data: Path) -> None:
    failed = run(data, "archive", "--at", "ftp://somewhere")
    assert (failed.code, failed.out) == (2, b"")
    assert "hermod cannot use ftp addresses" in failed.err


# -- how far it has come ---------------------------------------------------------------------------------


def test_progress_from_spark_events() -> None:
    reported = {
        "batchId": 7,
        "numInputRows": 500,
        "durationMs": {"triggerExecution": 250},
        "sources": [{"startOffset": {"offset": 0}, "endOffset": {"offset": 500}, "latestOffset": {"offset": 800}}],
    }
    assert to_progress("x", reported) == BatchProgress("x", 7, 500, 2000.0, 0.25, 500, 300)
    texts = [{"endOffset": '{"offset": 500}', "latestOffset": '{"offset": 800}'}]
    assert to_progress("x", reported | {"sources": texts}) == to_progress("x", reported)
    two = [{"endOffset": {"offset": 9}, "latestOffset": {"offset": 9}}, *texts]
    assert to_progress("x", reported | {"sources": two})[5:] == (9, 300)


def test_progress_of_a_query_that_has_nothing_to_do() -> None:
    nothing = [{"startOffset": None, "endOffset": None, "latestOffset": None}]
    assert to_progress("x", {"batchId": 0, "sources": nothing}) == BatchProgress("x", 0, 0, 0.0, 0.0, 0, 0)
    assert to_progress("x", {"batchId": 0, "sources": []})[5:] == (0, 0)


def test_the_position_is_that_of_the_last_batch_that_was_done(tmp_path: Path) -> None:
    assert committed_offset(tmp_path) == 0
    for number in (8, 9, 10, 11):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{"conf": {{}}}}\n{{"offset": {number * 100}}}')
    (tmp_path / "commits").mkdir()
    for name in ("8", "9", "10", ".10.crc"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    assert committed_offset(tmp_path) == 1000
