"""The status display."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from polycast.text import size_text
from polycast.up.display import Display, to_duration
from polycast.up.parts import Part
from polycast.up.stats_poller import BrokerStats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (59.9, "59 s"), (61, "1 min 01 s"), (3599, "59 min 59 s"), (7260, "2 h 01 min")],
)
def test_how_long(seconds: float, text: str) -> None:
    assert to_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB"), (2**52, "4,096.0 TiB")],
)
def test_how_large(size: int, text: str) -> None:
    assert size_text(size) == text


def to_screen(height: int = 40) -> tuple[Display, Part, io.StringIO]:
    out = io.StringIO()
    part = Part("spark", "nothing", lambda listening: [])
    console = Console(file=out, width=80, height=height, force_terminal=True, color_system=None)
    return Display([part], console), part, out


def test_control_characters_of_parts_are_escaped() -> None:
    display, part, out = to_screen()
    display.stderr_line(part, "evil \x1b[2J\x07")
    display.show(BrokerStats(pipelines=[{"query": "a", "state": "failed", "error": "no \x1b[2Jroom", "lag": 7}]))
    with display:
        pass
    assert "spark: evil" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue() and "\x07" not in out.getvalue()


def test_why_a_part_rests_and_a_pipeline_failed() -> None:
    display, part, out = to_screen()
    part.lifecycle.begin(1.0)
    part.lifecycle.end(2.0, 1, "no room\nhint: make some")
    display.show(
        BrokerStats(12, 34.4, 56.0, 2048, [{"query": "traffic", "state": "failed", "error": "no broker"}])
    )
    with display:
        pass
    shown = out.getvalue()
    for words in ("resting", "no room", "in 34  out 56", "connections 12", "log 2.0 KiB", "traffic", "no broker"):
        assert words in shown


def test_only_the_last_lines_are_shown() -> None:
    display, part, out = to_screen(height=18)
    for number in range(30):
        display.stderr_line(part, f"line {number}.")
    with display:
        pass
    assert "line 29." in out.getvalue() and "line 20." not in out.getvalue()
