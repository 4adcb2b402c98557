"""Options of the format `polycast`, validated before anything is read or written.

Names follow Spark's Kafka source and are case-insensitive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from polycast.address import split_addresses
from polycast.errors import UsageError
from polycast.log.times import MICROS
from polycast.model import Pattern, parse_patterns

SOURCE_OPTIONS = {
    "path": "folder of the log, as DIR/log, or a data folder that contains one",
    "at": "address of a broker's hermod listener, instead of path: tcp://HOST:PORT; several, joined by commas, of "
    "brokers with one log",
    "subscribe": "comma-separated patterns; default: all topics except those under polycast/",
    "startingOffsets": 'first offset to read: earliest, latest, an offset, or {"TOPIC": SEQUENCE} as JSON',
    "endingOffsets": "batch only: where to stop, exclusive; same values",
    "startingTimestamp": "milliseconds since the epoch, or a time such as 2026-11-15T20:00 (UTC)",
    "endingTimestamp": "batch only: time at which to stop, exclusive; same values",
    "maxOffsetsPerTrigger": "maximum number of offsets per micro-batch",
    "maxBytesPerTrigger": "maximum number of bytes per micro-batch",
    "minPartitions": "minimum number of partitions, if there are that many messages",
    "failOnDataLoss": "true: fail if messages to read were removed or damaged; false: log a warning and continue",
    "retrySeconds": "how long to try again when no broker responds, in seconds; default 300",
    "stretches": "true: return offset ranges instead of messages, for tasks that call polycast.spark.fetch",
}
SINK_OPTIONS = {
    "at": "address of a broker's hermod listener: tcp://HOST:PORT; several, joined by commas, of brokers with one "
    "log",
    "retrySeconds": "how long to try again when no broker responds, in seconds; default 300",
    "topic": "topic of all rows, if they have no column topic",
    "batchId": "batch only: idempotence key; a batch is published once per id",
}
SPARK_OPTIONS = ("checkpointlocation", "queryname", "outputmode", "trigger")
"""Options meant for Spark itself, which Spark passes on to the source."""
EARLIEST, LATEST = "earliest", "latest"
RETRY_SECONDS = 300.0

Position = str | int | dict[str, int]
"""`earliest`, `latest`, an offset, or sequences by topic."""


@dataclass(frozen=True)
class SourceOptions:
    path: str = ""
    at: str = ""
    patterns: tuple[Pattern, ...] | None = None
    """None: all topics except those under `polycast/`."""
    start: Position | None = None
    end: Position | None = None
    start_micros: int | None = None
    """Microseconds since the epoch."""
    end_micros: int | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    stretches: bool = False
    retry_seconds: float = RETRY_SECONDS


@dataclass(frozen=True)
class SinkOptions:
    at: str
    topic: str = ""
    batch_id: str = ""
    retry_seconds: float = RETRY_SECONDS


def read_source_options(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    options = _known_options(given, SOURCE_OPTIONS)
    if ("path" in options) == ("at" in options):
        found = "both path and at are set" if "at" in options else "neither path nor at is set"
        hint = 'option("path", "DIR/log") reads files, option("at", "tcp://HOST:PORT") reads from a broker'
        raise UsageError(found, hint)
    if streaming and ("endingOffsets" in options or "endingTimestamp" in options):
        raise UsageError("endingOffsets and endingTimestamp apply to batch queries only")
    for one, other in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if one in options and other in options:
            raise UsageError(f"{one} and {other} exclude each other", "set one of them")
    start, end = _position(options, "startingOffsets"), _position(options, "endingOffsets")
    if not streaming and start == LATEST:
        hint = "a batch query starts at earliest or at an offset"
        raise UsageError("startingOffsets is latest: a batch query would be empty", hint)
    if end == EARLIEST:
        hint = "a batch query ends at latest or at an offset"
        raise UsageError("endingOffsets is earliest: a batch query would be empty", hint)
    return SourceOptions(
        path=_absolute(options.get("path", "")),
        at=_addresses(options),
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
        retry_seconds=_seconds(options, "retrySeconds", RETRY_SECONDS),
    )


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    options = _known_options(given, SINK_OPTIONS)
    if not options.get("at"):
        raise UsageError("the option at is missing", 'for a local broker: option("at", "tcp://127.0.0.1:7878")')
    retry_seconds = _seconds(options, "retrySeconds", RETRY_SECONDS)
    return SinkOptions(_addresses(options), options.get("topic", ""), options.get("batchId", ""), retry_seconds)


def _known_options(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Options by their canonical names. Options that Spark adds contain dots and are ignored."""
    names = {name.lower(): name for name in known}
    ours = [name for name in given if "." not in name and not name.startswith("__")]
    unknown = [name for name in ours if name.lower() not in (*names, *SPARK_OPTIONS)]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}", f"options: {', '.join(known)}")
    return {names[name.lower()]: value for name, value in given.items() if name.lower() in names}


def _addresses(options: Mapping[str, str]) -> str:
    """Checks each address; several stay joined by commas."""
    return ",".join(split_addresses(options.get("at", "")))


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{name} is {options[name]!r}", "expected seconds, 0 or more")
    return seconds


def _absolute(path: str) -> str:
    """Tasks may run in a different working directory."""
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
        hint = 'expected earliest, latest, an offset such as 1000, or sequences by topic: {"orders": 17}'
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
        hint = "expected milliseconds since the epoch, or a time such as 2026-11-15T20:00 (UTC)"
        raise UsageError(f"{name} is {text!r}", hint) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * MICROS)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{name} is {text!r}", "expected an integer, 1 or more")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name} is {options[name]!r}", "expected true or false")
    return text == "true"
