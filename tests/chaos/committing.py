"""A publisher that stages and commits rows as the sink of Spark does: stages at any nodes, a commit at any other.

An attempt that fails is repeated at another node. Some commits are repeated after their acknowledgement, and some
are sent without waiting for it: the rows appear once.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from chaos.load import Roaming
from crash.publishers import Unit
from polycast.client.staging import Stager
from polycast.dialects.client_session import PendingAcks
from polycast.errors import RefusedError, RemoteError

NO_STAGE = 404
PASSING = (500, 503)
"""The node stops, or its disk is full."""
REPEATED_SHARE, ABANDONED_SHARE = 0.3, 0.2
RETRY_SECONDS = 0.3


class Abandoned(Exception):  # noqa: N818 -- nothing is wrong
    """The client closed its connection before the acknowledgement."""


class Committing(Roaming):
    acknowledges = True
    pause = 0.3

    def __init__(self, name: str, fleet: Any, random: Any) -> None:
        super().__init__(name, fleet, random)
        self.units: list[Unit] = []
        self.repeated = 0
        self._never = threading.Event()
        """A commit that was sent gets its acknowledgement, also while the test ends."""

    def run(self) -> None:
        while not self.ending.is_set() and not self.wrong:
            self.lives.append(len(self.sent))
            unit = self._make_unit()
            parts = self._cut(unit)
            self.pending.append(unit)
            while not self._publish(unit, parts) and not self.wrong:
                self.ending.wait(RETRY_SECONDS)
            self.pending.clear()
            self.acked.update(unit.numbers)
            self.clock.note()
            if self.random.random() < REPEATED_SHARE:
                self._repeat(unit, parts)
            self.ending.wait(self.pause)

    def _make_unit(self) -> Unit:
        first = len(self.sent)
        for _ in range(self.random.choice((10, 300, 3000))):
            self.make_message()
        unit = Unit(range(first, len(self.sent)), b"", b"", f"{self.name}-{first}")
        self.units.append(unit)
        return unit

    def _cut(self, unit: Unit) -> dict[str, range]:
        """The rows of each stage."""
        count = self.random.randint(1, 3)
        size = -(-len(unit.numbers) // count)
        return {str(part): unit.numbers[part * size : (part + 1) * size] for part in range(count)}

    def _publish(self, unit: Unit, parts: dict[str, range]) -> bool:
        """False: try again, at other nodes."""
        try:
            for name, numbers in parts.items():
                with self._connect(unit) as stager:
                    stager.stage(name, [self._to_rows(numbers)])
            while True:
                try:
                    with self._connect(unit) as stager:
                        self._commit(stager, unit, parts)
                    return True
                except Abandoned:
                    continue
        except RefusedError as error:
            if error.code not in (*PASSING, NO_STAGE):
                self.wrong = f"{unit.batch_id}: {error.code} {error}"
        except (RemoteError, OSError):
            pass
        return False

    def _connect(self, unit: Unit) -> Stager:
        port = self.broker.port(self.listener, self._never)
        return Stager(f"tcp://127.0.0.1:{port}", unit.batch_id)

    def _commit(self, stager: Stager, unit: Unit, parts: dict[str, range]) -> None:
        if self.random.random() < ABANDONED_SHARE:
            stager.send(stager.session.to_commit(unit.batch_id, list(parts), len(unit.numbers), PendingAcks()))
            raise Abandoned
        count = stager.commit(list(parts), len(unit.numbers))
        if count != len(unit.numbers):
            self.wrong = f"{unit.batch_id}: {count:,} rows of {len(unit.numbers):,} are acknowledged"

    def _repeat(self, unit: Unit, parts: dict[str, range]) -> None:
        """At another node, without the stages: the batch is known everywhere. A node that is behind waits."""
        try:
            with self._connect(unit) as stager:
                stager.commit(list(parts), len(unit.numbers))
            self.repeated += 1
        except RefusedError as error:
            if error.code not in PASSING:
                self.wrong = f"{unit.batch_id} again: {error.code} {error}"
        except (RemoteError, OSError):
            pass

    def _to_rows(self, numbers: range) -> pa.RecordBatch:
        rows = [self.sent[number] for number in numbers]
        columns = pa.array([row[0] for row in rows], pa.string()), pa.array([row[1] for row in rows], pa.binary())
        return pa.RecordBatch.from_arrays(list(columns), names=["topic", "payload"])
