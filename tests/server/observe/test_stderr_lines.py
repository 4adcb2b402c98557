"""Log lines on stderr: plain text, or one JSON object per line."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.program import polycast
from kit.wire import GUARD_SECONDS
from polycast.cli.stderr_log import JsonLines, logging_to_stderr

KEYS = {"time", "level", "logger", "message"}


def read_lines(text: str) -> list[dict[str, Any]]:
    """Every line, from every logger."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("flags", [("--log-format=json",), ("--set=stderr.format=json",)], ids=["flag", "setting"])
def test_every_line_of_a_broker_is_an_object(flags: tuple[str, ...], tmp_path: Path) -> None:
    with Broker("--verbose", *flags, data=tmp_path, fresh=flags[0].startswith("--log")) as broker:
        with broker.connect("simplest") as bad:
            bad.send(b"nonsense\npub a x\n")
            bad.expect_closed()
        with broker.connect("simplest") as peer:
            peer.send(pub("t", b"1"))
        broker.wait_for_log("closed: ")
        broker.stop()
        lines = read_lines(broker.log())
    assert all(set(line) == KEYS for line in lines)
    assert {line["level"] for line in lines} >= {"debug", "info", "warning"}
    closed = [line for line in lines if "closed: " in line["message"]]
    assert [(line["level"], line["logger"]) for line in closed] == [("warning", "polycast.connection")]
    times = [datetime.fromisoformat(line["time"]) for line in lines]
    assert all(time.utcoffset() == timedelta(0) for time in times)
    assert times == sorted(times) and abs(datetime.now(UTC) - times[-1]) < timedelta(minutes=5)


def test_a_failed_start_is_one_object() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ended = polycast("serve", "--no-log", f"--listen=simplest={address}", "--log-format=json")
    assert (ended.code, ended.out) == (1, b"")
    [line] = read_lines(ended.err)
    assert line["level"] == "critical" and "simplest" in line["message"]


def test_text_is_what_it_was(tmp_path: Path) -> None:
    with Broker("--log-format=text") as broker:
        broker.stop()
        assert all(" INFO " in line for line in broker.log().splitlines())


def test_an_unknown_format() -> None:
    ended = polycast("serve", "--no-log", "--log-format=xml", "--check")
    assert ended.code == 2 and "stderr.format" in ended.err and "text or json" in ended.err


def test_an_exception_is_part_of_the_line() -> None:
    try:
        raise ValueError("first\nsecond \udcff")
    except ValueError:
        record = logging.LogRecord("a.b", logging.ERROR, "", 0, "it was %s", ("so\nbad",), sys.exc_info())
    text = JsonLines().format(record)
    [line] = read_lines(text)
    assert line["message"] == "it was so\nbad"
    assert line["exception"].startswith("Traceback") and line["exception"].endswith("second \udcff")


def test_warnings_and_uncaught_exceptions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python warnings and uncaught exceptions."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    level = root.level
    try:
        with warnings.catch_warnings(), logging_to_stderr("json", logging.INFO):
            warnings.simplefilter("always")
            warnings.warn("mind the gap", stacklevel=1)
        thread = threading.Thread(target=lambda: [][0], name="reader")
        thread.start()
        thread.join(GUARD_SECONDS)
        sys.excepthook(ValueError, ValueError("oh"), None)
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)
    warned, in_thread, uncaught = read_lines(capsys.readouterr().err)
    assert warned["level"] == "warning" and "mind the gap" in warned["message"]
    assert "reader" in in_thread["message"] and "IndexError" in in_thread["exception"]
    assert uncaught["level"] == "critical" and "ValueError: oh" in uncaught["exception"]
