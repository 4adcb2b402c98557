"""The quality report: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from polycast.pipelines.quality.charts import COLOURS, TimeLane, draw_bars, draw_lanes, draw_strips
from polycast.pipelines.quality.findings import Findings, QualityState, count_problems

TOPICS_SHOWN = 30
ROWS_SHOWN = 200
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #fff; max-width: 980px; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
p.facts b { font-size: 1.25rem; margin-right: .3rem; } p.facts span { margin-right: 1.6rem; white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #e4e7eb; }
td { overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #3e4c59; }
"""

Row = Sequence[Any]


def to_page(state: QualityState) -> str:
    parts = [_facts(state), *_charts(state), *_tables(state)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Topic quality</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>Topic quality</h1>\n{''.join(parts)}\n</body></html>\n"
    )


def _facts(state: QualityState) -> str:
    topics = state.topics.values()
    facts = {
        "topics": len(topics),
        "messages": sum(found.messages for found in topics),
        "missing": sum(found.missing for found in topics),
        "repeated": sum(found.repeats for found in topics),
        "not JSON": sum(found.not_json for found in topics),
        "changes": sum(found.changes for found in topics),
        "wrong checksums": sum(sum(reasons.values()) for reasons in state.refused.values()),
    }
    cells = (f"<span><b>{count:,}</b>{name}</span>" for name, count in facts.items())
    return f'<p class="facts">{"".join(cells)}</p>\n'


def _worst(state: QualityState) -> list[tuple[str, Findings]]:
    affected = [(topic, found) for topic, found in state.topics.items() if count_problems(found)]
    return sorted(affected, key=lambda item: (-count_problems(item[1]), item[0]))[:TOPICS_SHOWN]


# -- charts ----------------------------------------------------------------------------------------------


def _charts(state: QualityState) -> Iterator[str]:
    worst = _worst(state)
    if not worst:
        yield "<p>No missing or repeated sequences, no invalid JSON, no schema changes.</p>\n"
        return
    columns = {
        "missing": [found.missing for _, found in worst],
        "repeated": [found.repeats for _, found in worst],
        "not JSON": [found.not_json for _, found in worst],
        "changes": [found.changes for _, found in worst],
    }
    yield f"<h2>By topic</h2>\n{draw_bars([topic for topic, _ in worst], columns)}\n"
    yield f"<h2>By time</h2>\n{draw_lanes(_lanes(state))}\n"
    missing = {topic: [(gap.first, gap.next) for gap in found.gaps_listed] for topic, found in worst}
    strips = [(topic, found.next, missing[topic]) for topic, found in worst if found.gaps]
    if strips:
        yield f"<h2>Missing sequences</h2>\n{draw_strips(strips)}\n"


def _lanes(state: QualityState) -> list[TimeLane]:
    found = state.topics.values()
    return [
        TimeLane("missing", [gap.micros for each in found for gap in each.gaps_listed], COLOURS[0]),
        TimeLane(
            "not JSON", [ref.micros for each in found if each.not_json for ref in each.bad_listed], COLOURS[2]
        ),
        TimeLane("changes", [change.micros for each in found for change in each.changes_listed], COLOURS[3]),
    ]


# -- tables ----------------------------------------------------------------------------------------------


def _tables(state: QualityState) -> Iterator[str]:
    gaps = [
        (
            topic,
            f"{gap.first:,} to {gap.next - 1:,}",
            gap.next - gap.first,
            _to_time(gap.micros),
            gap.reason or "unknown",
        )
        for topic, found in state.topics.items()
        for gap in found.gaps_listed
    ]
    yield _table("Gaps", ("topic", "sequences", "missing", "before", "reason"), gaps)
    changes = [
        (topic, change.field, change.kind, change.type, change.offset, _to_time(change.micros))
        for topic, found in state.topics.items()
        for change in found.changes_listed
    ]
    yield _table("Schema changes", ("topic", "field", "change", "type", "offset", "time"), changes)
    bad = [
        (topic, ref.offset, _to_time(ref.micros))
        for topic, found in state.topics.items()
        if found.not_json
        for ref in found.bad_listed
    ]
    yield _table("Invalid JSON", ("topic", "offset", "time"), bad)
    refused = [
        (name, reason, count) for name, reasons in state.refused.items() for reason, count in reasons.items()
    ]
    yield _table("Rejected because of a wrong checksum", ("connection", "reason", "messages"), refused)


def _table(title: str, heads: Row, rows: list[tuple[Any, ...]]) -> str:
    if not rows:
        return ""
    numbers = [isinstance(cell, int) for cell in rows[0]]
    lines = [_line("th", heads, numbers), *(_line("td", row, numbers) for row in rows[:ROWS_SHOWN])]
    more = f"<p>and {len(rows) - ROWS_SHOWN:,} more</p>" if len(rows) > ROWS_SHOWN else ""
    return f"<h2>{title}</h2>\n<table>{''.join(lines)}</table>{more}\n"


def _line(tag: str, cells: Row, numbers: Iterable[bool]) -> str:
    texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    shown = (
        f"<{tag}{' class=n' if number else ''}>{escape(text)}</{tag}>"
        for text, number in zip(texts, numbers, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>\n"


def _to_time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
