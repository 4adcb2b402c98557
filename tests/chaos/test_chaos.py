"""A cluster under load in all dialects, with stages and commits, while nodes and servers are killed, paused, cut
off and slowed down.

Afterwards nothing acknowledged is missing, doubled, moved or different at any node; offsets, sequences and chains
are equal everywhere; a resuming subscriber has seen each message once and in order, whatever node it was at.
`make chaos ROUNDS=200` runs so many faults in one cluster; SEED repeats a choice of faults. There a stream of
Spark writes as well (POLYCAST_CHAOS_SPARK=0: without), and another node joins and leaves all the time.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from chaos.checks import Findings, check_publisher, check_resuming, check_spark, check_tables, count_misses
from chaos.committing import Committing
from chaos.faults import Faults
from chaos.fleet import NAMES, PATIENCE, Fleet
from chaos.guests import Guests
from chaos.load import AckClock, Listening, Resuming, Roaming, all_publishers
from chaos.spark_writer import SparkWriter
from kit.wire import wait_for

ROUNDS = int(os.environ.get("POLYCAST_CHAOS", "0"))
SEED = os.environ.get("POLYCAST_CHAOS_SEED") or str(random.randrange(10**9))
SPARK = bool(ROUNDS) and os.environ.get("POLYCAST_CHAOS_SPARK", "1") != "0"
SMALL = ("kill-node", "pause-node", "cut-node", "kill-leader", "pause-two-servers", "join-and-leave")
"""What `make test` runs."""
COMMITTING = 2
LONG_SLOWER = 5
SPARK_SECONDS = 240.0
"""Spark waits longer after each failure."""


class Chaos:
    def __init__(self, fleet: Fleet, seed: str, slower: float) -> None:
        source = Random(seed)
        self._fleet = fleet
        self._random = Random(source.random())
        self._clock = AckClock()
        self._publishers = list(all_publishers(fleet, source, self._clock, [Committing] * COMMITTING, slower))
        self._acknowledged = [each for each in self._publishers if each.acknowledges]
        self._subscribers = [Resuming(fleet, Random(source.random())) for _ in range(2)]
        self._listening = Listening(fleet)
        self._faults = Faults(fleet, self._random)
        self._guests = Guests(fleet.folder, fleet.servers, Random(source.random()))
        self._spark: SparkWriter | None = None
        self._done: Counter[str] = Counter()
        self._pauses: dict[str, float] = {}
        self.findings = Findings()

    def play(self, rounds: int, spark: bool) -> str:
        with ExitStack() as stack:
            if spark:
                self._spark = SparkWriter(
                    self._fleet.folder / "spark", [self._fleet.nodes[n].fixed for n in NAMES]
                )
                stack.callback(self._spark.end)
                self._spark.start()
            for thread in (*self._publishers, *self._subscribers, self._listening):
                thread.start()
            self._wait_for_progress()
            if rounds:
                stack.callback(self._end_guests)
                self._guests.start()
            self._break(list(self._choose(rounds)) if rounds else SMALL)
            if self._spark:
                self._spark.wait_for_batches(2, SPARK_SECONDS)
        return self._finish()

    def _choose(self, rounds: int) -> Iterator[str]:
        """Every kind once, in any order, and again."""
        kinds = list(self._faults.kinds())
        while rounds > 0:
            yield from self._random.sample(kinds, min(rounds, len(kinds)))
            rounds -= len(kinds)

    def _break(self, chosen: Sequence[str]) -> None:
        kinds = self._faults.kinds()
        for number, kind in enumerate(chosen, 1):
            self._clock.longest = 0.0
            began = time.monotonic()
            kinds[kind]()
            self._wait_for_progress()
            self._done[kind] += 1
            self._pauses[kind] = max(self._pauses.get(kind, 0.0), self._clock.longest)
            seconds = time.monotonic() - began
            print(f"{number} {kind}: {seconds:.1f} s, pause {self._clock.longest:.1f} s", flush=True)  # noqa: T201

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

    def _end_guests(self) -> None:
        self._guests.ending.set()
        self._guests.join(2 * PATIENCE)
        self.findings.check(not self._guests.is_alive(), "a node that joins hangs")

    def _finish(self) -> str:
        findings = self.findings
        _end(self._publishers)
        for publisher in self._publishers:
            findings.check(not publisher.is_alive() and not publisher.pending, f"{publisher.name} does not end")
        rows = check_tables(self._fleet, findings)
        for subscriber in self._subscribers:
            wait_for(lambda each=subscriber: each.next >= len(rows) or each.wrong, "the last message", PATIENCE)  # type: ignore[misc]
        _end(self._subscribers)
        _end([self._listening])
        unacked = {each.name: check_publisher(rows, each, findings) for each in self._publishers}
        for subscriber in self._subscribers:
            check_resuming(rows, subscriber, findings)
        if self._spark:
            check_spark(rows, self._spark, findings)
        for log in [*(node.log() for node in self._fleet.nodes.values()), *self._guests.problems]:
            findings.check(not any(word in log for word in ("Traceback", "CRITICAL")), log[-3000:])
        return self._report(len(rows), unacked, count_misses(rows, self._listening, findings))

    def _report(self, rows: int, unacked: dict[str, int], misses: tuple[int, int]) -> str:
        plain = ", ".join(
            f"{each.name} {unacked[each.name]:,} of {len(each.sent):,}"
            for each in self._publishers
            if not each.acknowledges
        )
        lines = [
            self._summary(),
            "longest time without acknowledgements, by fault: "
            + ", ".join(f"{kind} {self._done[kind]} ({self._pauses[kind]:.1f} s)" for kind in sorted(self._done)),
            f"{rows:,} messages in the log of every node; not acknowledged and lost: {plain}",
            f"{len(self._subscribers)} hermod subscribers, each message once over "
            f"{sum(each.moves for each in self._subscribers):,} moves; "
            f"a simplest subscriber missed {misses[0]:,} and got {misses[1]:,} again",
            *self._describe_commits(),
        ]
        if self._fleet.disk is None:
            lines.append("full-disk was skipped: mount is not allowed, or the round is small")
        return "\n".join(lines)

    def _summary(self) -> str:
        acked = sum(len(each.acked) for each in self._acknowledged) + (self._spark.committed if self._spark else 0)
        found = self.findings
        return (
            f"faults {self._done.total()}, acked {acked:,}, lost {found.lost:,}, doubled {found.doubled:,}, "
            f"moved {found.moved:,}, longest pause {max(self._pauses.values()):.1f} s"
        )

    def _describe_commits(self) -> Iterator[str]:
        commits = [each for each in self._publishers if isinstance(each, Committing)]
        count, repeated = sum(len(each.units) for each in commits), sum(each.repeated for each in commits)
        yield f"{count:,} commits of staged rows, {repeated:,} of them repeated at another node"
        if spark := self._spark:
            batches = f"{spark.batches:,} batches, {spark.failures} restarts"
            yield f"Spark committed {spark.committed:,} rows in {batches}"
        if self._guests.joined:
            yield f"another node joined {self._guests.joined} times; {self._guests.failed} starts failed meanwhile"


def _end(threads: list[Roaming] | list[Resuming] | list[Listening]) -> None:
    for thread in threads:
        thread.ending.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_all_kinds_of_faults_are_there() -> None:
    """Those of the design: one, two or all; nodes and servers, leader and followers."""
    kinds = {name.removeprefix("do_").replace("_", "-") for name in dir(Faults) if name.startswith("do_")}
    nodes = {f"{verb}-{which}" for verb in ("kill", "pause") for which in ("node", "two-nodes", "all-nodes")}
    servers = {
        f"{verb}-{which}"
        for verb in ("kill", "pause")
        for which in ("leader", "follower", "two-servers", "all-servers")
    }
    partitions = {f"cut-{which}" for which in ("node", "leader", "follower", "all-servers")}
    others = {"full-disk", "clock", "slow-disk", "join-and-leave", "stall-node", "stall-leader", "restart-node"}
    assert kinds == nodes | servers | partitions | others | {"kill-node-while-it-starts"}


@pytest.mark.slow
def test_a_cluster_loses_nothing(tmp_path: Path) -> None:
    print(f"POLYCAST_CHAOS_SEED={SEED}")  # noqa: T201
    with Fleet(tmp_path, Random(SEED), small_disk=ROUNDS > 0) as fleet:
        chaos = Chaos(fleet, SEED, LONG_SLOWER if ROUNDS else 1)
        print(chaos.play(ROUNDS, SPARK))  # noqa: T201
        assert chaos.findings == Findings()
