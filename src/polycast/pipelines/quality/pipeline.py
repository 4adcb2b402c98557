"""Finds problems in the messages of each topic: gaps, repeats, invalid JSON and schema changes.

Reports missing and repeated sequences, with the log's reason for a gap if it recorded one; payloads that are
declared as JSON, or start like it in a topic that is mostly JSON, but are invalid; and JSON fields that appear,
change their type or disappear. Fields in the first messages of a topic are expected. When a topic has new
problems, its totals are published:

    polycast/quality/TOPIC   {"topic": "orders", "messages": 1200, "gaps": 1, "missing": 17, "repeats": 0,
                              "json": 1200, "not_json": 0, "changes": 1, "last_changes": [{"kind": "changed",
                              "field": "$.price", "type": "string", "offset": 1117, ...}], ...}

Messages that the broker rejected because of a wrong checksum are not in the log. The broker's events name the
connection but not the topic, so they are counted by connection, on polycast/quality/polycast/events/refuse.

With --once the run writes an HTML report.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polycast.declare import setting
from polycast.errors import LogDamageError
from polycast.log.files.folder import log_folder, segments
from polycast.log.files.format import Gap
from polycast.log.files.quarantine import read_lost
from polycast.log.read.gaps import read_range
from polycast.pipelines.quality.findings import FieldRules, QualityState, count_problems, merge, to_report
from polycast.pipelines.quality.inspection import INSPECTED, REFUSALS, PartitionInspection, inspect
from polycast.pipelines.quality.page import to_page
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun, to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "polycast/quality/"
NEEDED = "offset long, topic string, sequence long, time timestamp, format string, payload binary"
FOUND = "topic string, payload string, format string"
PAGE = "report.html"
SHOWN = 10
"""Topics in the printed table."""


@dataclass(frozen=True)
class QualitySettings:
    subscribe: str = setting(">", "comma-separated patterns of topics to inspect")
    publish: bool = setting(True, "publish reports to polycast/quality/TOPIC; false: no broker needed")
    learn: int = setting(100, "first messages of a topic whose fields are not reported as new", low=1)
    gone: int = setting(1000, "messages without a field after which it is reported as gone", low=1)
    batch_messages: int = setting(1_000_000, "maximum number of messages per batch", low=1)
    trigger_seconds: float = setting(2.0, "interval between batches", low=0)


def read_pieces(rows: DataFrame) -> list[PartitionInspection]:
    """One per partition of the log, in order of offset."""
    found = sorted(rows.mapInArrow(inspect, INSPECTED).collect(), key=lambda row: int(row["first"]))
    return [msgspec.msgpack.decode(row["inspected"], type=PartitionInspection) for row in found]


def known_gaps(folder: Path) -> list[Gap]:
    """Gaps that the log recorded, sorted by offset. Skips segments that are removed or damaged."""
    gaps = set(read_lost(folder))
    for segment in segments(folder):
        with suppress(FileNotFoundError, LogDamageError):
            gaps.update(read_range(segment).gaps)
    return sorted(gaps, key=lambda gap: gap.first)


# -- state -----------------------------------------------------------------------------------------------


class StateStore:
    """The state after each batch, in one file per batch. The last two files are retained.

    A repeated batch starts from the state before it and produces the same state.
    """

    def __init__(self, folder: Path, query: str) -> None:
        self.folder = folder
        self._query = query

    def read(self, before: int | None = None) -> QualityState:
        """The state after the last batch, or after the last batch before `before`."""
        numbers = [number for number in self._numbers() if before is None or number < before]
        if not numbers:
            return QualityState()
        return msgspec.json.decode(self._path(max(numbers)).read_bytes(), type=QualityState)

    def write(self, batch: int, state: QualityState) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f".{self._query}"
        unfinished.write_bytes(msgspec.json.encode(state))
        unfinished.rename(self._path(batch))
        for path in self.folder.glob("state-*.json"):
            if path not in (self._path(batch), self._path(batch - 1)):
                path.unlink()

    def _path(self, batch: int) -> Path:
        return self.folder / f"state-{self._query}-{batch:08}.json"

    def _numbers(self) -> list[int]:
        return [int(path.stem.rpartition("-")[2]) for path in self.folder.glob(f"state-{self._query}-*.json")]


# -- the run ---------------------------------------------------------------------------------------------


def process_batch(run: PipelineRun, rows: DataFrame, batch: int) -> list[tuple[str, str, str]]:
    """Idempotent: Spark may repeat a batch. Returns the messages to publish."""
    settings: QualitySettings = run.settings
    store = open_store(run)
    state = store.read(before=batch)
    refused = msgspec.json.encode(state.refused)
    known = cache(lambda: known_gaps(log_folder(run.data)))
    topics = merge(state, read_pieces(rows), FieldRules(settings.learn, settings.gone), known)
    store.write(batch, state)
    messages = [_to_message(topic, to_report(topic, state.topics[topic])) for topic in topics]
    if msgspec.json.encode(state.refused) != refused:
        messages.append(_to_message(REFUSALS, {"topic": REFUSALS, "checksums": state.refused}))
    return messages


def _to_message(topic: str, report: dict[str, Any]) -> tuple[str, str, str]:
    return to_topic(TOPIC, topic), msgspec.json.encode(report).decode(), "json"


def open_store(run: PipelineRun) -> StateStore:
    return StateStore(run.data.absolute() / "quality", run.query_id)


def start(run: PipelineRun) -> StreamingQuery:
    settings: QualitySettings = run.settings
    subscribe = f"{settings.subscribe},{REFUSALS}"
    rows = run.messages(subscribe, NEEDED, maxOffsetsPerTrigger=settings.batch_messages)

    def take(batch_rows: DataFrame, batch: int) -> None:
        messages = process_batch(run, batch_rows, batch)
        if messages and settings.publish:
            run.publish(run.spark.createDataFrame(messages, FOUND), batch)

    return run.write(rows, every=settings.trigger_seconds).foreachBatch(take).start()


def finish(run: PipelineRun) -> list[str]:
    state = open_store(run).read()
    page = run.data.absolute() / "quality" / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(to_page(state))
    return [f"report: {page}", *_to_table(state)]


def _to_table(state: QualityState) -> list[str]:
    topics = sorted(state.topics.items(), key=lambda item: (-count_problems(item[1]), item[0]))[:SHOWN]
    width = max((len(topic) for topic, _ in topics), default=0)
    head = f"{'topic':<{width}}  messages  missing  repeats  not JSON  changes"
    lines = [
        f"{topic:<{width}}  {found.messages:>8}  {found.missing:>7}  {found.repeats:>7}  {found.not_json:>8}  "
        f"{found.changes:>7}"
        for topic, found in topics
    ]
    wrong = sum(count for reasons in state.refused.values() for count in reasons.values())
    return [head, *lines, f"{wrong:,} messages rejected because of a wrong checksum"]


PIPELINE = Pipeline(
    name="quality",
    settings=QualitySettings,
    start=start,
    finish=finish,
    writes="polycast/quality/TOPIC, DIR/quality/report.html",
    publishes=lambda settings: bool(settings.publish),
)
