"""The options of the format `polycast`, checked before anything is read or written.

Names are those that users of Kafka know. Spark does not care about upper and lower case in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from polycast.errors import UsageError
from polycast.log.times import MICROS
from polycast.model import Pattern, parse_patterns

SOURCE_OPTIONS = {
    "path": "the folder of the log, as DIR/log; or a data folder that has one",
    "at": "the address of a broker's hermod listener, in place of path: tcp://HOST:PORT",
    "subscribe": "patterns, comma-separated; without, every topic but those under polycast/",
    "startingOffsets": 'earliest, latest, an offset, or {"TOPIC": SEQUENCE} as JSON',
    "endingOffsets": "the same, for batches: where to end",
    "startingTimestamp": "milliseconds since the epoch, or a time such as 2026-11-15T20:00 (UTC)",
    "endingTimestamp": "the same, for batches: where to end",
    "maxOffsetsPerTrigger": "how many offsets one micro-batch takes at most",
    "maxBytesPerTrigger": "how many bytes one micro-batch takes at most",
    "minPartitions": "how many partitions there are at least, where there are as many messages",
    "failOnDataLoss": "true: fail where messages are gone that should be read; false: go on, and say so",
    "stretches": "true: rows tell where messages are, for tasks that read the log by polycast.spark.fetch",
}
SINK_OPTIONS = {
    "at": "the address of a broker's hermod listener: tcp://HOST:PORT",
    "topic": "the topic of all rows, where they have no column of that name",
    "batchId": "for batches: publish once only, however often it is written under this id",
}
SPARK_OPTIONS = ("checkpointlocation", "queryname", "outputmode", "trigger")
"""What Spark hands on though it is meant for itself."""
EARLIEST, LATEST = "earliest", "latest"
"""Words for places."""

Position = str | int | dict[str, int]
"""`earliest`, `latest`, an offset, or a sequence for each of some topics."""


@dataclass(frozen=True)
class SourceOptions:
    path: str = ""
    at: str = ""
    patterns: tuple[Pattern, ...] | None = None
    """None: everything but what the broker and its pipelines say about themselves."""
    start: Position | None = None
    end: Position | None = None
    start_micros: int | None = None
    """Since the epoch."""
    end_micros: int | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    stretches: bool = False


@dataclass(frozen=True)
class SinkOptions:
    at: str
    topic: str = ""
    batch_id: str = ""


def read_source_options(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    options = _known_options(given, SOURCE_OPTIONS)
    if ("path" in options) == ("at" in options):
        found = "both path and at are given" if "at" in options else "neither path nor at is given"
        raise UsageError(
            found, 'option("path", "DIR/log") reads files, option("at", "tcp://HOST:PORT") asks a broker'
        )
    if streaming and ("endingOffsets" in options or "endingTimestamp" in options):
        raise UsageError("a stream has no end: endingOffsets and endingTimestamp are for batches")
    for one, other in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if one in options and other in options:
            raise UsageError(f"{one} and {other} are two answers to one question", "give one of them")
    start, end = _position(options, "startingOffsets"), _position(options, "endingOffsets")
    if not streaming and start == LATEST:
        raise UsageError(
            "startingOffsets is latest, where nothing follows", "batches begin at earliest or at an offset"
        )
    if end == EARLIEST:
        raise UsageError(
            "endingOffsets is earliest, and nothing lies before that", "batches end at latest or at an offset"
        )
    return SourceOptions(
        path=_absolute(options.get("path", "")),
        at=options.get("at", ""),
        patterns=parse_patterns(options["subscribe"]) if "subscribe" in options else None,
        start=start,
        end=end,
        start_micros=_micros(options, "startingTimestamp"),
        end_micros=_micros(options, "endingTimestamp"),
        max_offsets=_count(options, "maxOffsetsPerTrigger"),
        max_bytes=_count(options, "maxBytesPerTrigger"),
        min_partitions=_count(options, "minPartitions"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        stretches=_flag(options, "stretches", False),
    )


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    options = _known_options(given, SINK_OPTIONS)
    if not options.get("at"):
        raise UsageError(
            "the option at is missing", 'option("at", "tcp://127.0.0.1:7878") is a broker on this machine'
        )
    return SinkOptions(options["at"], options.get("topic", ""), options.get("batchId", ""))


def _known_options(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """With the names as they are written here. What Spark itself adds has dots in it."""
    names = {name.lower(): name for name in known}
    ours = [name for name in given if "." not in name and not name.startswith("__")]
    unknown = [name for name in ours if name.lower() not in (*names, *SPARK_OPTIONS)]
    if unknown:
        raise UsageError(f"there is no option {unknown[0]!r}", f"there are {', '.join(known)}")
    return {names[name.lower()]: value for name, value in given.items() if name.lower() in names}


def _absolute(path: str) -> str:
    """Tasks may run in another folder than who wrote the path."""
    return str(Path(path.removeprefix("file://")).expanduser().absolute()) if path else ""


def _position(options: Mapping[str, str], name: str) -> Position | None:
    text = options.get(name)
    if text is None or text.lower() in (EARLIEST, LATEST):
        return text.lower() if text else None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    right = isinstance(found, dict) and found and all(type(n) is int and n >= 0 for n in found.values())
    if not right:
        hint = 'earliest, latest, an offset such as 1000, or sequences by topic: {"orders": 17}'
        raise UsageError(f"{name} is {text!r}", hint)
    assert isinstance(found, dict)
    return found


def _micros(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "milliseconds since the epoch, or a time such as 2026-11-15T20:00 (UTC)"
        raise UsageError(f"{name} is {text!r}", hint) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * MICROS)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{name} is {text!r}", "a whole number, 1 or more")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name} is {options[name]!r}", "true or false")
    return text == "true"
