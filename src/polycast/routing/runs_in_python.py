"""The functions of `runs`, in Python."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from polycast.model import PackedSlices
from polycast.routing.audience import Audience


class Topic:
    __slots__ = ("audience", "index_version", "last_offset", "name", "next_sequence")

    def __init__(self, name: str, next_sequence: int, last_offset: int = -1) -> None:
        self.name = name
        self.next_sequence = next_sequence
        self.last_offset = last_offset
        """-1: no message yet."""
        self.audience: Audience
        self.index_version = -1
        """The version of the subscriptions that `audience` was found with; -1: none."""


Grouped = list[tuple[Audience, PackedSlices]]


def number(
    young: dict[bytes, Topic],
    use: Callable[[bytes], Topic],
    keys: list[bytes],
    run_ends: Sequence[int],
    offset: int,
) -> tuple[list[Topic], list[int]]:
    topics = [young.get(key) or use(key) for key in keys]
    sequences: list[int] = []
    start = 0
    for topic, stop in zip(topics, run_ends, strict=True):
        sequences.append(topic.next_sequence)
        topic.next_sequence += stop - start
        topic.last_offset = offset + stop - 1
        start = stop
    return topics, sequences


def group(
    topics: list[Topic], run_ends: Sequence[int], version: int, refresh: Callable[[Topic], object], local: bool
) -> Grouped:
    edges: dict[Audience, array[int]] = {}
    current: Audience | None = None
    its_edges = array("q")
    start = 0
    for topic, stop in zip(topics, run_ends, strict=True):
        if topic.index_version != version:
            refresh(topic)
        if topic.audience is current:
            its_edges[-1] = stop
        else:
            current = topic.audience
            its_edges = edges.setdefault(current.local if local else current, array("q"))
            its_edges.extend((start, stop))
        start = stop
    return [
        (audience, PackedSlices(found, sum(found[1::2]) - sum(found[::2])))
        for audience, found in edges.items()
        if audience.members
    ]
