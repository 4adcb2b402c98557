"""Cells: the traffic shapes that are measured.

A cell says how many topics one publisher writes to in turn (interleaved: never two messages in a row on one
topic unless there is just one), how many subscribers listen, to what, and how large a payload is. One *cycle*
is one message on each topic; everything the driver sends is a whole number of cycles, so that every
subscriber of a cell is owed the same bytes.

A cell also names the dialects that Polycast is measured in; the peers take part in every cell. What one
dialect shows of the broker need not be shown five times, so most cells name just one.

Topic names are of one width and differ from each other, so that none contains another: one of the wires
matches substrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from polycast.bench.wires import DIALECTS, WIRES
from polycast.errors import UsageError

TOPIC_FORMAT = "topic{:04d}"
TOPIC_BYTES = len(TOPIC_FORMAT.format(0))
PAYLOAD_PATTERN = b"0123456789abcdef"  # nothing that any text protocol would have to escape


@dataclass(frozen=True)
class Cell:
    """One shape of traffic. `spread`: each subscriber takes all topics, or just its own."""

    name: str
    title: str
    topics: int = 1
    subscribers: int = 1
    payload_bytes: int = 100
    spread: Literal["all", "own"] = "all"
    dialects: tuple[str, ...] = ("simplest",)

    @property
    def topic_names(self) -> list[str]:
        return [TOPIC_FORMAT.format(number) for number in range(self.topics)]

    @property
    def payload(self) -> bytes:
        repeats = -(-self.payload_bytes // len(PAYLOAD_PATTERN))
        return (PAYLOAD_PATTERN * repeats)[: self.payload_bytes]

    @property
    def message_bytes(self) -> int:
        """Topic and payload, without any protocol's framing: the same number for every target."""
        return TOPIC_BYTES + self.payload_bytes

    @property
    def deliveries_per_cycle(self) -> int:
        return self.subscribers * (self.topics if self.spread == "all" else 1)

    def suits(self, dialect: str) -> bool:
        """Own topics are for those who can ask for them."""
        return self.spread == "all" or WIRES[dialect].selects

    def topics_of(self, subscriber: int) -> list[str]:
        names = self.topic_names
        return names if self.spread == "all" else [names[subscriber % self.topics]]


CELLS = (
    Cell("1:1", "1 subscriber, 1 topic, 100 B", dialects=DIALECTS),
    Cell("1:10", "10 subscribers, 1 topic, 100 B", subscribers=10),
    Cell("1:100", "100 subscribers, 1 topic, 100 B", subscribers=100, dialects=DIALECTS),
    Cell("100x100", "100 topics x 100 subscribers, 100 B", topics=100, subscribers=100),
    Cell("1000-topics", "1 subscriber, 1,000 topics, 100 B", topics=1000),
    Cell("16B", "1 subscriber, 1 topic, 16 B", payload_bytes=16),
    Cell("16KiB", "1 subscriber, 1 topic, 16 KiB", payload_bytes=16 * 1024),
    Cell("100-own", "100 topics, a subscriber each, 100 B", topics=100, subscribers=100, spread="own"),
)


def choose_cells(names: Sequence[str] | None, dialects: Sequence[str] | None = None) -> list[Cell]:
    """The named cells in the order of the list above; None is all of them.

    Named dialects are measured in each of these cells that suits them; None leaves the cells as they are.
    """
    _check_names("cell", names, [cell.name for cell in CELLS])
    _check_names("dialect", dialects, DIALECTS)
    chosen = [cell for cell in CELLS if names is None or cell.name in names]
    if dialects is not None:
        named = [dialect for dialect in DIALECTS if dialect in dialects]
        chosen = [replace(cell, dialects=tuple(filter(cell.suits, named))) for cell in chosen]
    return _with_dialects(chosen)


def _with_dialects(cells: list[Cell]) -> list[Cell]:
    kept = [cell for cell in cells if cell.dialects]
    if not kept:
        raise UsageError(
            "none of these cells suits any of these dialects",
            hint="a nanomsg subscriber gets every topic, so it cannot take part where each has its own",
        )
    return kept


def _check_names(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise UsageError(f"unknown {kind} {name!r}", hint=f"known are {', '.join(known)}")
