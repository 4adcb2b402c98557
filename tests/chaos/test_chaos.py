"""A cluster under load in all dialects, while nodes and servers are killed, paused, cut off and slowed down.

Afterwards nothing acknowledged is missing, doubled, moved or different at any node; offsets, sequences and chains
are equal everywhere; a resuming subscriber has seen each message once and in order, whatever node it was at.
`make chaos ROUNDS=200` runs so many faults in one cluster; SEED repeats a choice of faults.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from chaos.checks import check_publisher, check_resuming, check_tables, count_misses
from chaos.faults import Faults
from chaos.fleet import NAMES, PATIENCE, Fleet
from chaos.load import AckClock, Listening, Resuming, Roaming, RoamingAcknowledged, all_publishers
from kit.wire import wait_for

ROUNDS = int(os.environ.get("POLYCAST_CHAOS", "0"))
SEED = os.environ.get("POLYCAST_CHAOS_SEED") or str(random.randrange(10**9))
SMALL = ("kill-node", "pause-node", "cut-node", "kill-leader", "join-and-leave")
"""What `make test` runs."""


class Chaos:
    def __init__(self, fleet: Fleet, seed: str) -> None:
        source = Random(seed)
        self._fleet = fleet
        self._random = Random(source.random())
        self._clock = AckClock()
        self._publishers = list(all_publishers(fleet, source, self._clock))
        self._acknowledged = [each for each in self._publishers if isinstance(each, RoamingAcknowledged)]
        self._subscribers = [Resuming(fleet, Random(source.random())) for _ in range(2)]
        self._listening = Listening(fleet)
        self._faults = Faults(fleet, self._random)
        self._done: Counter[str] = Counter()
        self._pauses: dict[str, float] = {}

    def play(self, rounds: int) -> str:
        for thread in (*self._publishers, *self._subscribers, self._listening):
            thread.start()
        kinds = self._faults.kinds()
        self._wait_for_progress()
        for kind in self._random.choices(list(kinds), k=rounds) if rounds else SMALL:
            self._clock.longest = 0.0
            began = time.monotonic()
            kinds[kind]()
            self._wait_for_progress()
            self._done[kind] += 1
            self._pauses[kind] = max(self._pauses.get(kind, 0.0), self._clock.longest)
            print(f"{kind}: {time.monotonic() - began:.1f} s, pause {self._clock.longest:.1f} s", flush=True)  # noqa: T201
        return self._finish()

    def _wait_for_progress(self) -> None:
        """Every publisher gets acknowledgements again, at nodes that all run."""
        before = [len(each.acked) for each in self._acknowledged]
        for publisher, acked in zip(self._acknowledged, before, strict=True):
            wait_for(
                lambda publisher=publisher, acked=acked: len(publisher.acked) > acked or publisher.wrong,  # type: ignore[misc]
                f"acknowledgements of {publisher.name}; seed {SEED}",
                PATIENCE,
            )
        for name in NAMES:
            assert self._fleet.nodes[name].is_running, self._fleet.nodes[name].log()[-3000:]

    def _finish(self) -> str:
        _end(self._publishers)
        for publisher in self._publishers:
            assert not publisher.is_alive() and not publisher.pending, publisher.name
        rows = check_tables(self._fleet)
        for subscriber in self._subscribers:
            wait_for(lambda each=subscriber: each.next >= len(rows) or each.wrong, "the last message", PATIENCE)  # type: ignore[misc]
        _end(self._subscribers)
        _end([self._listening])
        unacked = {each.name: check_publisher(rows, each) for each in self._publishers}
        for subscriber in self._subscribers:
            check_resuming(rows, subscriber)
        for node in self._fleet.nodes.values():
            assert not any(word in node.log() for word in ("Traceback", "CRITICAL")), node.log()[-3000:]
        return self._report(len(rows), unacked, count_misses(rows, self._listening))

    def _report(self, rows: int, unacked: dict[str, int], misses: tuple[int, int]) -> str:
        faults = ", ".join(
            f"{kind} {count} ({self._pauses[kind]:.1f} s)" for kind, count in sorted(self._done.items())
        )
        plain = ", ".join(
            f"{each.name} {unacked[each.name]:,} of {len(each.sent):,}"
            for each in self._publishers
            if not isinstance(each, RoamingAcknowledged)
        )
        skipped = (
            "" if self._fleet.disk else "; full-disk was skipped: mount is not allowed, or the round is small"
        )
        moves = sum(each.moves for each in self._subscribers)
        return (
            f"{self._done.total()} faults, with the longest time without acknowledgements: {faults}{skipped}\n"
            f"{sum(len(each.acked) for each in self._acknowledged):,} acknowledged, {rows:,} in the log; "
            f"acknowledged and lost 0, doubled 0, moved 0\n"
            f"not acknowledged and lost: {plain}\n"
            f"{len(self._subscribers)} hermod subscribers, each message once over {moves:,} moves; "
            f"a simplest subscriber missed {misses[0]:,} and got {misses[1]:,} again"
        )


def _end(threads: list[Roaming] | list[Resuming] | list[Listening]) -> None:
    for thread in threads:
        thread.ending.set()
    for thread in threads:
        thread.join(PATIENCE)


@pytest.mark.slow
def test_a_cluster_loses_nothing(tmp_path: Path) -> None:
    print(f"POLYCAST_CHAOS_SEED={SEED}")  # noqa: T201
    with Fleet(tmp_path, Random(SEED), small_disk=ROUNDS > 0) as fleet:
        print(Chaos(fleet, SEED).play(ROUNDS))  # noqa: T201
