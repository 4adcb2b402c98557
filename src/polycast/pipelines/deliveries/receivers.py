"""The receivers of one message, the reasons, and drops near it.

    live      a matching subscription was active at the message's offset
    replay    a later subscription replayed the log from a position at or before the message
    silent    matches, but excluded: a publisher without echo, or a link for a message from a link

Subscriptions from before the first event of the log are unknown, and all subscriptions if the broker runs with
`events.enabled=false`; then the result has a `note`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from polycast.errors import GoneError
from polycast.log.read.catalog import LogCatalog
from polycast.log.read.query import Condition, RowFilter
from polycast.log.read.seek import rows_at
from polycast.pipelines.deliveries.subscription_history import (
    COLUMNS,
    DECODER,
    EVENTS,
    EVENTS_WANTED,
    KINDS,
    LoggedEvent,
    Subscription,
    SubscriptionHistory,
    is_link,
    to_events,
    to_subscription,
)
from polycast.pipelines.runtime.worker_tasks import WorkerTask, log_tasks, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "offset long, topic string, time timestamp, payload binary, source string"


class LoggedMessage(NamedTuple):
    offset: int
    topic: str
    sequence: int
    micros: int
    dialect: str
    source: str
    bytes: int
    log_first: int
    """The first offset of the log."""


def find_message(folder: Path, offset: int) -> LoggedMessage:
    """Raises GoneError if the log does not have the offset."""
    with closing(LogCatalog(folder)) as catalog:
        first, after = catalog.first(), catalog.next()
    if offset >= after:
        end = f"the last offset is {after - 1:,}" if after else "the log is empty"
        raise GoneError(f"offset {offset:,} does not exist yet: {end}", "polycast log info shows the offsets")
    if offset < first:
        hint = "polycast find --in lake searches the lake; log.retain_seconds and log.retain_bytes retain more"
        raise GoneError(f"offset {offset:,} was removed: the log starts at offset {first:,}", hint)
    for batch in rows_at(folder, [offset]):
        [row] = batch.to_pylist()
        micros = batch["time"].cast(pa.int64())[0].as_py()
        origin = (row["dialect"], row["source"])
        return LoggedMessage(offset, row["topic"], row["sequence"], micros, *origin, len(row["payload"]), first)
    raise GoneError(f"offset {offset:,} is unused or unreadable", "polycast log info lists the gaps")


# -- events ----------------------------------------------------------------------------------------------


def explain_delivery(spark: SparkSession, folder: Path, message: LoggedMessage) -> dict[str, Any]:
    """Spark reads the events of the whole log and returns those that affect this message."""
    tasks = log_tasks(folder, EVENTS_WANTED, COLUMNS)
    rows = run_tasks(spark, tasks, lambda task: relevant_events(task, message), SCHEMA).toArrow()
    logged = [each for batch in rows.sort_by("offset").to_batches() for each in to_events(batch)]
    follower = (
        next_of_topic(spark, folder, message) if any(each.event.start == "last" for each in logged) else None
    )
    return to_response(message, logged, follower)


def relevant_events(task: WorkerTask, message: LoggedMessage) -> Iterator[pa.RecordBatch]:
    """Runs in a worker: the events that affect this message."""
    for batch in task.read():
        relevant = [
            _is_relevant(topic.removeprefix(EVENTS), payload, message)
            for topic, payload in zip(batch["topic"].to_pylist(), batch["payload"].to_pylist(), strict=True)
        ]
        yield batch.filter(pa.array(relevant, pa.bool_()))


def _is_relevant(name: str, payload: bytes, message: LoggedMessage) -> bool:
    match name:
        case "start" | "stop" | "disconnect":
            return True
        case "connect":
            event = DECODER.decode(payload)
            return event.connection == message.source and is_link(event.listener)
        case "subscribe" | "unsubscribe":
            event = DECODER.decode(payload)
            return event.kind in KINDS and KINDS[event.kind](event.value).matches(message.topic)
        case "drop":
            event = DECODER.decode(payload)
            return event.first <= message.offset < event.next
    return False


def next_of_topic(spark: SparkSession, folder: Path, message: LoggedMessage) -> int | None:
    """The offset of the topic's next message, if there is one."""
    wanted = RowFilter(
        conditions=(Condition("topic", "=", message.topic), Condition("sequence", ">", message.sequence))
    )
    tasks = log_tasks(folder, wanted, ["offset"], message.offset + 1)
    row = run_tasks(spark, tasks, lambda task: task.read(), "offset long").first()
    return int(row["offset"]) if row else None


# -- result ----------------------------------------------------------------------------------------------


def to_response(message: LoggedMessage, logged: list[LoggedEvent], follower: int | None = None) -> dict[str, Any]:
    before = SubscriptionHistory()
    for each in logged:
        if each.offset < message.offset:
            before.take(each)
    live = [each for theirs in before.open.values() for each in theirs.values()]
    silent = {each.connection: reason for each in live if (reason := _skip_reason(each, message, before.links))}
    drops = {each.event.connection: each for each in logged if each.name == "drop"}
    receivers = [_to_row(each, "live", drops) for each in live if each.connection not in silent]
    later = [to_subscription(each) for each in logged if each.name == "subscribe" and each.offset > message.offset]
    receivers += [_to_row(each, "replay", {}) for each in later if _reaches(each, message, follower)]
    return {
        "offset": message.offset,
        "topic": message.topic,
        "sequence": message.sequence,
        "time_micros": message.micros,
        "dialect": message.dialect,
        "source": message.source,
        "bytes": message.bytes,
        "receivers": receivers,
        "silent": [{"connection": name, "reason": reason} for name, reason in silent.items()],
        "drops": [_to_drop(each) for each in drops.values()],
        "note": _note(message, before, logged),
    }


def _skip_reason(subscription: Subscription, message: LoggedMessage, links: Collection[str]) -> str:
    if subscription.connection == message.source and not subscription.echo:
        return "it published the message and has no echo"
    if subscription.link and message.source in links:
        return "messages from a link are not forwarded to links"
    return ""


def _reaches(subscription: Subscription, message: LoggedMessage, follower: int | None) -> bool:
    """Whether a replay starts at or before the message."""
    match subscription.start:
        case "earliest":
            return True
        case "last":
            return follower is None or follower > subscription.since
        case str(text) if text.startswith("@"):
            return message.offset >= int(text[1:])
        case {"time": int(millis)}:
            return message.micros >= millis * 1000
        case {"topics": dict(sequences)}:
            start = sequences.get(message.topic)
            return start is not None and message.sequence >= start
    return False


def _to_row(each: Subscription, how: str, drops: dict[str, LoggedEvent]) -> dict[str, Any]:
    return {
        "connection": each.connection,
        "dialect": each.dialect,
        "address": each.address,
        "pattern": each.pattern,
        "kind": each.kind,
        "how": how,
        "since_offset": each.since,
        "since_micros": each.since_micros,
        "may_have_lost_it": each.connection in drops,
    }


def _to_drop(logged: LoggedEvent) -> dict[str, Any]:
    event = logged.event
    return {
        "connection": event.connection,
        "address": event.address,
        "messages": event.count,
        "first": event.first,
        "next": event.next,
    }


def _note(message: LoggedMessage, before: SubscriptionHistory, logged: list[LoggedEvent]) -> str:
    if before.known_from is not None:
        return ""
    if not logged:
        return "the log has no events about subscriptions: is events.enabled false?"
    return f"subscriptions before offset {message.log_first:,} are unknown"
