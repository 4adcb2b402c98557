"""The series: each dimension, its sizes and its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from polycast.bench.cells import Cell, check_names
from polycast.bench.scale.connections import measure_connections
from polycast.bench.scale.file_limit import clip, clip_note
from polycast.bench.scale.points import ScalePoint, SeriesReport, Values
from polycast.bench.scale.subscriptions import EXACT_END, PREFIX_END, measure_subscriptions
from polycast.bench.scale.throughput import measure_throughput
from polycast.bench.scale.topic_tables import measure_topics
from polycast.errors import PolycastError

DEFAULT_TOPIC_LIMIT = 1_000_000
"""`limits.topics` if it is not set."""
RATES = ("deliveries", "bytes", "published", "delivery_ns", "broker_cpu", "driver_cpu", "peak")
SUBSCRIBED = ("subscribe_seconds", "unit_bytes", "memory", "first_ns", "changed_ns", "again_ns", "again")
REMEMBERED = ("unit_bytes", "memory", "first_ns", "first", "again_ns", "again")
FORGOTTEN = ("memory", "first_ns", "first", "again_ns", "again")
CONNECTED = ("accept_seconds", "accepted", "unit_bytes", "memory", "delivery_ns", "deliveries")


@dataclass(frozen=True)
class ScaleSeries:
    name: str
    title: str
    unit: str
    """The meaning of a size."""
    sizes: tuple[int, ...]
    columns: tuple[str, ...]
    measure: Callable[[int, float], Values]
    """From a size and the seconds of a turn."""
    opens_files: bool = False
    """Whether a size is a number of open files of the broker."""


def _topics(count: int, seconds: float) -> Values:
    return measure_throughput(Cell("topics", f"{count} topics in turn", topics=count), seconds)


def _payload(size: int, seconds: float) -> Values:
    return measure_throughput(Cell("payload", f"{size} bytes", payload_bytes=size), seconds)


def _subscribers(count: int, seconds: float) -> Values:
    return measure_throughput(Cell("subscribers", f"{count} subscribers", subscribers=count), seconds)


def _subscriptions(end: str, count: int, seconds: float) -> Values:
    return measure_subscriptions(count, end, seconds)


def _topic_table(limit: int | None, count: int, seconds: float) -> Values:
    return measure_topics(count, limit)


SERIES = (
    ScaleSeries(
        "topics", "topics in turn, 1 subscriber of all, 100 B", "topics", (1, 10, 100, 1_000), RATES, _topics
    ),
    ScaleSeries(
        "payload", "payload, 1 topic, 1 subscriber", "payload bytes",
        (16, 128, 1_024, 8_192, 65_536, 524_288, 1_048_576), RATES, _payload,
    ),
    ScaleSeries(
        "subscribers", "subscribers of 1 topic, 100 B", "subscribers",
        (1, 10, 100, 1_000, 3_000, 10_000), RATES, _subscribers, opens_files=True,
    ),
    ScaleSeries(
        "exact", "exact subscriptions, each to a topic of its own, over 100 connections", "subscriptions",
        (1_000, 10_000, 100_000), SUBSCRIBED, partial(_subscriptions, EXACT_END),
    ),
    ScaleSeries(
        "prefix", "prefix subscriptions, each with a topic of its own, over 100 connections", "subscriptions",
        (1_000, 10_000, 100_000), SUBSCRIBED, partial(_subscriptions, PREFIX_END),
    ),
    ScaleSeries(
        "remembered", "topics with one message each, all remembered (limits.topics = twice as many)", "topics",
        (10_000, 100_000, 1_000_000), REMEMBERED, partial(_topic_table, None),
    ),
    ScaleSeries(
        "forgotten", "topics with one message each, limits.topics = 1,000,000 (the default)", "topics",
        (1_000_000, 2_000_000), FORGOTTEN, partial(_topic_table, DEFAULT_TOPIC_LIMIT),
    ),
    ScaleSeries(
        "connections", "idle connections, and 1:1 traffic beside them", "connections",
        (1, 1_000, 10_000, 20_000, 50_000), CONNECTED, measure_connections, opens_files=True,
    ),
)  # fmt: skip


def choose_series(names: Sequence[str] | None) -> list[ScaleSeries]:
    """The named ones; None: all."""
    check_names("series", names, [series.name for series in SERIES])
    return [series for series in SERIES if names is None or series.name in names]


def measure_series(
    series: ScaleSeries,
    seconds: float,
    files: int,
    show: Callable[[str], None],
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> SeriesReport:
    """`files`: the limit of open files; `sizes`: instead of those of the series, by its name."""
    wanted = (sizes or {}).get(series.name, series.sizes)
    note = clip_note(wanted, files) if series.opens_files else ""
    points = []
    for size in clip(wanted, files) if series.opens_files else wanted:
        show(f"{series.name} {size:,}")
        points.append(_measure(series, size, seconds))
    return SeriesReport(series.name, series.title, series.unit, series.columns, points, note)


def _measure(series: ScaleSeries, size: int, seconds: float) -> ScalePoint:
    try:
        return ScalePoint(size, series.measure(size, seconds))
    except (PolycastError, OSError) as error:
        return ScalePoint(size, {}, str(error))
