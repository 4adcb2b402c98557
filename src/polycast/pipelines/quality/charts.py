"""SVG charts for the HTML report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

WIDTH = 960
ROW = 22
BAR = 14
LABEL = 250
"""Width of a label."""
LABEL_CHARACTERS = 32
NUMBER = 62
"""Width of a number."""
HEAD = 26
TICKS = 5
COLOURS = ("#d1495b", "#edae49", "#00798c", "#66717e")
FAINT = "#e4e7eb"


class TimeLane(NamedTuple):
    name: str
    micros: list[int]
    """Times of the events."""
    colour: str


def draw_bars(names: Sequence[str], columns: Mapping[str, Sequence[int]]) -> str:
    """One line per name with a bar in each column; every column has its own scale."""
    room = (WIDTH - LABEL) / len(columns)
    parts = [_text(0, HEAD + row * ROW + BAR, _truncate(name)) for row, name in enumerate(names)]
    for column, (head, values) in enumerate(columns.items()):
        left = LABEL + column * room
        most = max(values, default=0)
        parts.append(_text(left, HEAD - 9, head))
        for row, value in enumerate(values):
            top = HEAD + row * ROW
            length = (room - NUMBER - 10) * value / most if most else 0.0
            parts.append(_box(left, top, max(length, 2.0 if value else 0.0), BAR, COLOURS[column % len(COLOURS)]))
            if value:
                parts.append(_text(left + max(length, 2) + 5, top + BAR - 2, f"{value:,}"))
    return _svg(HEAD + len(names) * ROW, parts)


def draw_lanes(lanes: Sequence[TimeLane]) -> str:
    """A mark per event, one lane per kind of event."""
    times = [micros for lane in lanes for micros in lane.micros]
    first, last = min(times, default=0), max(times, default=0)
    span = max(1, last - first)
    left, right = 90, WIDTH - 60
    parts = []
    for row, lane in enumerate(lanes):
        top = HEAD + row * ROW
        parts += [_text(0, top + BAR - 2, lane.name), _box(left, top + BAR / 2, right - left, 1, FAINT)]
        positions = {round(left + (right - left) * (micros - first) / span, 1) for micros in lane.micros}
        parts += [_box(position - 1, top, 3, BAR, lane.colour, 0.7) for position in sorted(positions)]
    bottom = HEAD + len(lanes) * ROW + 8
    for tick in range(TICKS if last > first else 1):
        x = left + (right - left) * tick / (TICKS - 1)
        parts.append(_text(x, bottom + 6, _to_time(first + span * tick // (TICKS - 1)), "middle"))
    return _svg(bottom + 14, parts)


def draw_strips(strips: Iterable[tuple[str, int, list[tuple[int, int]]]]) -> str:
    """One strip per name from 0 to its end, with the missing ranges marked."""
    parts = []
    height = 4
    for name, end, missing in strips:
        room = WIDTH - LABEL - NUMBER - 20
        parts += [_text(0, height + BAR - 2, _truncate(name)), _box(LABEL, height, room, BAR, FAINT)]
        parts.append(_text(LABEL + room + 6, height + BAR - 2, f"{end:,}"))
        for first, after in missing:
            left, right = room * first / max(1, end), room * after / max(1, end)
            parts.append(_box(LABEL + left, height, max(2.0, right - left), BAR, COLOURS[0]))
        height += ROW
    return _svg(height, parts)


def _svg(height: float, parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" '
        f'opacity="{opacity}"/>'
    )


def _truncate(name: str) -> str:
    return name if len(name) <= LABEL_CHARACTERS else name[: LABEL_CHARACTERS - 1] + "…"


def _to_time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%m-%d %H:%M:%S")
