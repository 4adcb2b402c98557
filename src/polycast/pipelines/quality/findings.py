"""The state of each topic, and how inspections are merged into it.

Inspections are merged in order of offset. The result does not depend on how messages are partitioned, with one
exception: a missing field is detected at the end of a batch.

The field names of the structs are part of the format of the state file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from polycast.log.files.format import Gap
from polycast.pipelines.quality.inspection import MessageRef, PartitionInspection, SequenceRun, TopicInspection
from polycast.pipelines.quality.json_shapes import NULL

LISTED = 100
"""Latest gaps, invalid payloads and changes that are listed per topic. All are counted."""
FIELDS_LIMIT = 1000
CONNECTIONS_LIMIT = 1000
OTHERS = "others"
APPEARED, CHANGED, GONE = "appeared", "changed", "gone"

LogGaps = Callable[[], list[Gap]]
"""Returns the gaps recorded in the log, sorted by offset."""


@dataclass(frozen=True)
class FieldRules:
    learn: int = 100
    """Fields that occur in this many first messages are expected; they are not reported as new."""
    gone: int = 1000
    """Messages without a field after which it is reported as gone."""


class SequenceGap(msgspec.Struct):
    """Missing sequences from `first` up to, not including, `next`."""

    first: int
    next: int
    offset: int
    """Offset of the message after the gap."""
    micros: int
    reason: str = ""
    """The log's reason, if it recorded the gap."""


class Change(msgspec.Struct):
    kind: str
    field: str
    type: str
    offset: int
    micros: int


class FieldHistory(msgspec.Struct):
    types: list[str]
    first: int
    last: int
    """Numbers of the first and the last message with this field."""
    count: int = 0
    gone: bool = False


class Findings(msgspec.Struct):
    """The state of one topic."""

    messages: int = 0
    next: int = -1
    """The next expected sequence."""
    offset: int = -1
    """Offset of the last message."""
    micros: int = 0
    """Time of the last message."""
    gaps: int = 0
    missing: int = 0
    repeats: int = 0
    json: int = 0
    bad: int = 0
    doubtful: int = 0
    changes: int = 0
    gaps_listed: list[SequenceGap] = []
    bad_listed: list[MessageRef] = []
    changes_listed: list[Change] = []
    fields: dict[str, FieldHistory] = {}

    @property
    def not_json(self) -> int:
        """Undeclared payloads count only if most of the topic is JSON."""
        return self.bad + (self.doubtful if self.json > self.doubtful else 0)

    @property
    def problems(self) -> tuple[int, ...]:
        return self.gaps, self.repeats, self.not_json, self.changes


class QualityState(msgspec.Struct):
    topics: dict[str, Findings] = {}
    refused: dict[str, dict[str, int]] = {}


def merge(
    state: QualityState, pieces: Iterable[PartitionInspection], rules: FieldRules, known: LogGaps
) -> list[str]:
    """Returns the topics with new problems."""
    before: dict[str, tuple[int, ...]] = {}
    for piece in pieces:
        for topic, seen in piece.topics.items():
            found = state.topics.setdefault(topic, Findings())
            before.setdefault(topic, found.problems)
            _add_seen(found, seen, rules, known)
        for connection, reasons in piece.refused.items():
            _add_refused(state.refused, connection, reasons)
    for topic in before:
        _find_gone(state.topics[topic], rules)
    return [topic for topic, problems in before.items() if state.topics[topic].problems != problems]


def _add_refused(refused: dict[str, dict[str, int]], connection: str, reasons: dict[str, int]) -> None:
    room = connection in refused or len(refused) < CONNECTIONS_LIMIT
    counts = refused.setdefault(connection if room else OTHERS, {})
    for reason, count in reasons.items():
        counts[reason] = counts.get(reason, 0) + count


def _add_seen(found: Findings, seen: TopicInspection, rules: FieldRules, known: LogGaps) -> None:
    found.messages += seen.messages
    for run in seen.runs:
        _add_run(found, run, known)
    for ref in seen.examples:
        _list(found.bad_listed, ref)
    found.bad += seen.bad
    found.doubtful += seen.doubtful
    _add_fields(found, seen, rules)
    found.json += seen.json


def _add_run(found: Findings, run: SequenceRun, known: LogGaps) -> None:
    if found.next >= 0 and run.first > found.next:
        found.gaps += 1
        found.missing += run.first - found.next
        reason = _reason(known(), found.offset, run.offset)
        _list(found.gaps_listed, SequenceGap(found.next, run.first, run.offset, run.micros, reason))
    if run.first < found.next:
        found.repeats += min(run.next, found.next) - run.first
    found.next = max(found.next, run.next)
    found.offset, found.micros = run.last_offset, run.last_micros


def _reason(gaps: list[Gap], before: int, after: int) -> str:
    """The recorded reason of a gap between two offsets."""
    return next((gap.reason for gap in gaps if gap.first > before and gap.next <= after), "")


# -- fields ----------------------------------------------------------------------------------------------


def _add_fields(found: Findings, seen: TopicInspection, rules: FieldRules) -> None:
    refs = [(ref.number, path, kind, ref) for path, kinds in seen.fields.items() for kind, ref in kinds.items()]
    new: set[str] = set()
    for _, path, kind, ref in sorted(refs, key=lambda each: each[:3]):
        change = _add_field(found, path, kind, ref)
        if change == APPEARED and (found.json + ref.number < rules.learn or _is_within(path, new)):
            continue
        if change:
            _add_change(found, Change(change, path, kind, ref.offset, ref.micros))
            new.add(path)
    for path, (last, count) in seen.spans.items():
        if field := found.fields.get(path):
            field.last = found.json + last
            field.count += count


def _add_field(found: Findings, path: str, kind: str, ref: MessageRef) -> str:
    """The kind of change, or an empty string."""
    field = found.fields.get(path)
    if field is None:
        if len(found.fields) >= FIELDS_LIMIT:
            return ""
        number = found.json + ref.number
        found.fields[path] = FieldHistory([kind], number, number)
        return APPEARED
    was_gone, field.gone = field.gone, False
    known = kind in field.types or kind == NULL or field.types == [NULL]
    if kind not in field.types:
        field.types.append(kind)
    return APPEARED if was_gone else "" if known else CHANGED


def _is_within(path: str, others: set[str]) -> bool:
    """Whether a field is nested in one of these fields, which were reported already."""
    return any(path.startswith((f"{other}.", f"{other}[")) for other in others)


def _find_gone(found: Findings, rules: FieldRules) -> None:
    """Reports only fields that were in most messages while they occurred."""
    new: set[str] = set()
    for path, field in sorted(found.fields.items()):
        usual = 2 * field.count > field.last - field.first
        if usual and not field.gone and found.json - field.last > rules.gone:
            field.gone = True
            if not _is_within(path, new):
                kind = next((kind for kind in field.types if kind != NULL), NULL)
                _add_change(found, Change(GONE, path, kind, found.offset, found.micros))
                new.add(path)


def _add_change(found: Findings, change: Change) -> None:
    found.changes += 1
    _list(found.changes_listed, change)


def _list(listed: list[Any], new: Any) -> None:
    listed.append(new)
    del listed[:-LISTED]


# -- reports ---------------------------------------------------------------------------------------------


def count_problems(found: Findings) -> int:
    return found.missing + found.repeats + found.not_json + found.changes


def to_report(topic: str, found: Findings) -> dict[str, Any]:
    return {
        "topic": topic,
        "messages": found.messages,
        "offset": found.offset,
        "gaps": found.gaps,
        "missing": found.missing,
        "repeats": found.repeats,
        "json": found.json,
        "not_json": found.not_json,
        "changes": found.changes,
        "last_gaps": msgspec.to_builtins(found.gaps_listed[-10:]),
        "last_changes": msgspec.to_builtins(found.changes_listed[-10:]),
    }
