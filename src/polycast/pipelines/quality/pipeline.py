"""What is wrong with the messages of each topic: what is missing, what came twice, what is no JSON, what changed.

Sequences that are missing (with the log's own reason, where it has one) or come again; payloads that are said to
be JSON, or begin like it where the rest of the topic is, and are not; and fields of JSON that appear, change their
type or are gone. What is in the first messages of a topic belongs to it from the start. When there is something
new to tell about a topic, all that is known about it is published:

    polycast/quality/TOPIC   {"topic": "orders", "messages": 1200, "gaps": 1, "missing": 17, "repeats": 0,
                              "json": 1200, "not_json": 0, "changes": 1, "last_changes": [{"kind": "changed",
                              "field": "$.price", "type": "string", "offset": 1117, ...}], ...}

Messages that the broker did not take because of their checksum never had a place in the log. It tells who sent
them, but not on which topic: they are counted by connection, on polycast/quality/polycast/events/refuse.

With --once there is a report with pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polycast.declare import setting
from polycast.log.files.folder import log_folder
from polycast.pipelines import SUMMARIES
from polycast.pipelines.quality.findings import FieldRules, QualityState, count_problems, merge, to_report
from polycast.pipelines.quality.inspection import INSPECTED, REFUSALS, Inspection, inspect
from polycast.pipelines.quality.log_gaps import known_gaps
from polycast.pipelines.quality.page import to_page
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.runtime.report_topics import to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "polycast/quality/"
NEEDED = "offset long, topic string, sequence long, time timestamp, format string, payload binary"
FOUND = "topic string, payload string, format string"
PAGE = "report.html"
SHOWN = 10
"""Topics in the table that is printed."""


@dataclass(frozen=True)
class QualitySettings:
    subscribe: str = setting(">", "patterns of the topics to look at, comma-separated")
    publish: bool = setting(True, "tell what is found on polycast/quality/TOPIC; without, no broker is needed")
    learn: int = setting(
        100, "fields in the first so many messages of a topic belong to it from the beginning", low=1
    )
    gone: int = setting(1000, "after so many messages without it a field is gone", low=1)
    batch_messages: int = setting(1_000_000, "how many messages one batch takes at most", low=1)
    trigger_seconds: float = setting(2.0, "the time from one batch to the next", low=0)


def to_pieces(rows: DataFrame) -> DataFrame:
    """Grain: a piece of the log that one task has read."""
    return rows.mapInArrow(inspect, INSPECTED)


def read_pieces(rows: DataFrame) -> list[Inspection]:
    """In the order of their offsets."""
    found = sorted(to_pieces(rows).collect(), key=lambda row: int(row["first"]))
    return [msgspec.msgpack.decode(row["inspected"], type=Inspection) for row in found]


# -- what is kept ----------------------------------------------------------------------------------------


class StateStore:
    """What was known after each batch: one file, whose name says so, in place of the one before the last.

    A batch that comes again begins with what was known before it, and comes to the same end.
    """

    def __init__(self, folder: Path, query: str) -> None:
        self.folder = folder
        self._query = query

    def read(self, before: int | None = None) -> QualityState:
        """After the last batch, or after the last one before that."""
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
    """As often as Spark brings that batch; returns what there is to tell, as messages."""
    settings: QualitySettings = run.settings
    shelf = open_store(run)
    state = shelf.read(before=batch)
    refused = msgspec.json.encode(state.refused)
    known = cache(lambda: known_gaps(log_folder(run.data)))
    topics = merge(state, read_pieces(rows), FieldRules(settings.learn, settings.gone), known)
    shelf.write(batch, state)
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

    every = f"{round(settings.trigger_seconds * 1000)} milliseconds"
    return run.write(rows, every=every).foreachBatch(take).start()


def finish(run: PipelineRun) -> list[str]:
    state = open_store(run).read()
    page = run.data.absolute() / "quality" / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(to_page(state))
    return [f"report: {page}", *_to_table(state)]


def _to_table(state: QualityState) -> list[str]:
    """The topics with the most trouble."""
    topics = sorted(state.topics.items(), key=lambda item: (-count_problems(item[1]), item[0]))[:SHOWN]
    width = max((len(topic) for topic, _ in topics), default=0)
    head = f"{'topic':<{width}}  messages  missing  repeats  not JSON  changes"
    lines = [
        f"{topic:<{width}}  {found.messages:>8}  {found.missing:>7}  {found.repeats:>7}  {found.not_json:>8}  "
        f"{found.changes:>7}"
        for topic, found in topics
    ]
    wrong = sum(count for reasons in state.refused.values() for count in reasons.values())
    return [head, *lines, f"{wrong:,} messages refused because of their checksum"]


PIPELINE = Pipeline(
    name="quality",
    summary=SUMMARIES["quality"],
    settings=QualitySettings,
    start=start,
    finish=finish,
    writes="polycast/quality/TOPIC, DIR/quality/report.html",
    publishes=lambda settings: bool(settings.publish),
)
