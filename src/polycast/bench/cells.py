"""Cells: the traffic shapes that are measured.

A `live` cell has one publisher that writes to its topics in turn (never two consecutive messages on one topic,
unless there is just one), a number of subscribers with their topics, and a payload size. One *cycle* is one
message on each topic. The driver sends whole cycles only, so that every subscriber of a cell receives the same
bytes.

A cell also names the dialects that Polycast is measured in, and its peers. Most cells name one dialect.

The other kinds measure the log:

logged  live traffic with the log on, beside the log off, per dialect
acked   one connection per topic publishes and waits for acknowledgements; no subscribers
latency one connection publishes a hundred messages a second, and waits for each acknowledgement
replay  one subscriber reads everything that is `stored`
start   from process start until ready, with `stored` messages and with an empty log
catch-up  an empty node joins a cluster whose stream has `stored` messages

Two kinds publish messages when they are due, `rate` per second, and measure delays from the due time:

open-loop  until the delivery, with the log off and on
durable    until a message is durable: its delivery with `delivery = "committed"`, or its acknowledgement (hermod)

A cell with `cluster` runs on three nodes and three servers of NATS, beside three servers alone.

Topic names have one width, and none contains another: one of the dialects matches substrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from polycast.bench.wires import DIALECTS, WIRES
from polycast.errors import UsageError

TOPIC_FORMAT = "topic{:04d}"
TOPIC_BYTES = len(TOPIC_FORMAT.format(0))
PAYLOAD_PATTERN = b"0123456789abcdef"  # no text protocol escapes these
STORE_BATCH = 100
"""Messages per batch while filling a log; the same number of batches on each topic."""

Kind = Literal["live", "open-loop", "logged", "durable", "acked", "latency", "replay", "start", "catch-up"]

HEADINGS: dict[Kind, str] = {
    "live": "deliveries per second",
    "open-loop": "us from due time to delivery",
    "logged": "deliveries per second, log on beside log off",
    "durable": "us from due time until durable",
    "acked": "acknowledged messages per second",
    "latency": "from a message to its acknowledgement, at 100 messages per second",
    "replay": "messages per second from the log",
    "start": "starts per second",
    "catch-up": "messages of the stream per second, until an empty node has applied all",
}
"""Kinds in the order of the report, with the unit of their rates or delays."""

TIMED_BY_DELAY: tuple[Kind, ...] = ("open-loop", "durable")
DELAY_TURNS = 2
"""Turns of these kinds last so many times `--seconds`: few messages decide the high percentiles."""


@dataclass(frozen=True)
class Cell:
    """`spread`: each subscriber subscribes to all topics, or to one of its own."""

    name: str
    title: str
    kind: Kind = "live"
    topics: int = 1
    subscribers: int = 1
    payload_bytes: int = 100
    spread: Literal["all", "own"] = "all"
    dialects: tuple[str, ...] = ("simplest",)
    peers: tuple[str, ...] = ("nats", "redis", "mosquitto")
    batch: int = 1
    """Messages per batch; 1: single messages."""
    window: int = 0
    """Unacknowledged messages per connection."""
    stored: int = 0
    """Messages in the log before the clock starts."""
    cluster: bool = False
    rate: int = 0
    """Messages due per second; 0: as fast as the target takes them."""

    @property
    def topic_names(self) -> list[str]:
        return [TOPIC_FORMAT.format(number) for number in range(self.topics)]

    @property
    def payload(self) -> bytes:
        repeats = -(-self.payload_bytes // len(PAYLOAD_PATTERN))
        return (PAYLOAD_PATTERN * repeats)[: self.payload_bytes]

    @property
    def message_bytes(self) -> int:
        """Topic and payload without framing: the same for every target."""
        return TOPIC_BYTES + self.payload_bytes

    @property
    def deliveries_per_cycle(self) -> int:
        return self.subscribers * (self.topics if self.spread == "all" else 1)

    def seconds(self, seconds: float) -> float:
        """The duration of a turn."""
        return seconds * DELAY_TURNS if self.kind in TIMED_BY_DELAY else seconds

    def suits(self, dialect: str) -> bool:
        """`spread="own"` needs topic filters; acknowledgements and replay need hermod."""
        if self.kind in ("acked", "latency", "replay", "start", "catch-up"):
            return dialect == "hermod"
        return self.spread == "all" or WIRES[dialect].filters

    def storing(self, messages: int) -> Cell:
        """With another number of messages in the log, rounded up to whole batches; unchanged if it stores none."""
        step = self.topics * STORE_BATCH
        return replace(self, stored=-(-messages // step) * step) if self.stored else self

    def topics_of(self, subscriber: int) -> list[str]:
        names = self.topic_names
        return names if self.spread == "all" else [names[subscriber % self.topics]]


LIVE_CELLS = (
    Cell("1:1", "1 subscriber, 1 topic, 100 B", dialects=DIALECTS),
    Cell("1:10", "10 subscribers, 1 topic, 100 B", subscribers=10),
    Cell("1:100", "100 subscribers, 1 topic, 100 B", subscribers=100, dialects=DIALECTS),
    Cell("100x100", "100 topics x 100 subscribers, 100 B", topics=100, subscribers=100),
    Cell("1000-topics", "1 subscriber, 1,000 topics, 100 B", topics=1000, dialects=DIALECTS),
    Cell("16B", "1 subscriber, 1 topic, 16 B", payload_bytes=16),
    Cell("16KiB", "1 subscriber, 1 topic, 16 KiB", payload_bytes=16 * 1024, dialects=DIALECTS),
    Cell(
        "100-own",
        "100 topics, a subscriber each, 100 B",
        topics=100,
        subscribers=100,
        spread="own",
        dialects=tuple(dialect for dialect in DIALECTS if WIRES[dialect].filters),
    ),
)

_OPEN = Cell("open", "open loop", kind="open-loop", peers=("nats", "redis"))

DELAY_CELLS = (
    replace(_OPEN, name="open-1k", title="1,000 messages per second, 1 subscriber, 100 B", rate=1_000),
    replace(
        _OPEN,
        name="open-1k:10",
        title="1,000 messages per second, 10 subscribers, 100 B",
        rate=1_000,
        subscribers=10,
    ),
    replace(_OPEN, name="open-50k", title="50,000 messages per second, 1 subscriber, 100 B", rate=50_000),
    replace(
        _OPEN,
        name="open-50k:10",
        title="50,000 messages per second, 10 subscribers, 100 B",
        rate=50_000,
        subscribers=10,
    ),
    Cell(
        "durable",
        "1,000 messages per second, 100 B",
        kind="durable",
        dialects=("simplest", "hermod"),
        peers=(),
        rate=1_000,
    ),
)

_LOGGED = Cell("logged", "log on", kind="logged", dialects=("simplest", "hermod"), peers=())
_LOGGED_ALL = replace(_LOGGED, dialects=("simplest", "hermod", "nanomsg", "fanout"))
_STORED = Cell("stored", "stored", kind="replay", dialects=("hermod",), peers=())
_ACKED = Cell("acked", "acknowledged", kind="acked", dialects=("hermod",), topics=8, window=1000)
_LAZY = ("jetstream", "js-lazy")
_ATOMIC = (*_LAZY, "js-atomic")

LOG_CELLS = (
    replace(_LOGGED_ALL, name="logged-1:1", title="log on: 1 subscriber, 100 B"),
    replace(_LOGGED, name="logged-1:100", title="log on: 100 subscribers, 100 B", subscribers=100),
    replace(
        _LOGGED_ALL,
        name="logged-16KiB",
        title="log on: 1 subscriber, 16 KiB",
        payload_bytes=16 * 1024,
        peers=("nats",),
    ),
    replace(_ACKED, title="8 publishers, 1,000 ahead each, 100 B", peers=_LAZY),
    replace(
        _ACKED,
        name="acked-100",
        title="8 publishers, 10 batches of 100 ahead each, 100 B",
        batch=100,
        peers=_ATOMIC,
    ),
    replace(
        _ACKED,
        name="acked-turns",
        title="8 publishers, a batch of 100 at a time each, 100 B",
        batch=100,
        window=100,
        peers=_ATOMIC,
    ),
    replace(_STORED, name="replay", title="1 subscriber from the earliest, 100 B", stored=1_000_000),
    replace(_STORED, name="start", title="start until ready", kind="start", topics=100, stored=10_000_000),
)

CLUSTER_CELLS = (
    replace(
        LIVE_CELLS[2],
        name="cluster-1:100",
        title="cluster: publisher at one node, 100 subscribers at another, 100 B",
        dialects=("simplest",),
        peers=("nats-cluster",),
        cluster=True,
    ),
    replace(
        _ACKED,
        name="cluster-acked",
        title="cluster: 8 publishers, 1,000 ahead each, 100 B",
        peers=("js-cluster",),
        cluster=True,
    ),
    Cell(
        "cluster-latency",
        "cluster: 1 publisher, 100 messages per second, 100 B",
        kind="latency",
        dialects=("hermod",),
        peers=("js-cluster",),
        cluster=True,
    ),
    replace(
        _STORED,
        name="cluster-catch-up",
        title="cluster: an empty node joins, 100 B",
        kind="catch-up",
        topics=8,
        stored=3_000_000,
        cluster=True,
    ),
)

CELLS = LIVE_CELLS + DELAY_CELLS + LOG_CELLS + CLUSTER_CELLS


def choose_cells(names: Sequence[str] | None, dialects: Sequence[str] | None = None) -> list[Cell]:
    """The named cells, in the order of `CELLS`; None: all.

    `dialects` replaces the dialects of each cell, where they suit it; None: as declared.
    """
    check_names("cell", names, [cell.name for cell in CELLS])
    check_names("dialect", dialects, DIALECTS)
    chosen = [cell for cell in CELLS if names is None or cell.name in names]
    if dialects is not None:
        named = [dialect for dialect in DIALECTS if dialect in dialects]
        chosen = [replace(cell, dialects=tuple(filter(cell.suits, named))) for cell in chosen]
    suitable = [cell for cell in chosen if cell.dialects]
    if not suitable:
        raise UsageError(
            "none of these cells suits any of these dialects",
            hint="nanomsg subscribers receive all topics; only hermod acknowledges and replays",
        )
    return suitable


def check_names(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise UsageError(f"unknown {kind} {name!r}", hint=f"known are {', '.join(known)}")
