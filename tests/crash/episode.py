"""Several runs of one broker, each with another kind of end; then all observations are compared."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random

from crash.live_subscriber import LiveSubscriber
from crash.log_checks import check_acknowledged, check_delivered, check_log, read_with_pyarrow, read_with_reader
from crash.publishers import all_publishers
from crash.restartable import RestartableBroker
from kit import hermod
from kit.program import polycast
from kit.replay import handshake, read_messages
from kit.wire import GUARD_SECONDS, Peer, wait_for
from polycast.log.repair.verify import LogFinding, verify

ENDS = ("traffic", "traffic", "traffic", "sealing", "starting", "starting", "clean")
TRAFFIC_SECONDS = 0.4


class Episode:
    def __init__(self, place: Path, seed: str, sync: str) -> None:
        self._random = Random(seed)
        self._folder = place / "log"
        self._sync = sync
        self._broker = RestartableBroker(place, place / "stderr.txt")
        self._publishers = list(all_publishers(self._broker, self._random))
        self._subscriber = LiveSubscriber(self._broker)
        self._start_seconds = 1.0
        self._module = self._random.choice(("polycast", "crash.small_reserve"))
        self._delivery = self._random.choice(("live", "live", "committed"))

    def play(self, rounds: int) -> str:
        """A summary of the episode."""
        for thread in (*self._publishers, self._subscriber):
            thread.start()
        try:
            ends = [self._round() for _ in range(rounds)]
            self._start()
            self._finish()
        finally:
            for publisher in self._publishers:
                publisher.ending.set()
            self._subscriber.ending.set()
            self._broker.end()
        return f"{self._delivery} delivery, {' '.join(ends)}: {self._check()}"

    # -- a round -----------------------------------------------------------------------------------------

    def _round(self) -> str:
        end = self._random.choice(ENDS)
        if end == "starting":
            self._launch()
            _wait(self._random.uniform(0, self._start_seconds * 1.1))
        else:
            self._start()
            self._wait_for_traffic()
            _wait(self._random.uniform(0, TRAFFIC_SECONDS))
        if end == "sealing":
            self._wait_for_sealing()
        if end == "clean":
            self._broker.stop()
        else:
            self._broker.kill()
        self._verify()
        return end

    def _launch(self) -> None:
        segment = self._random.choice((65_536, 65_536, 300_000))
        self._broker.start(
            f"--set=log.sync={self._sync}", f"--set=log.delivery={self._delivery}",
            f"--set=log.segment_bytes={segment}",
            f"--set=log.sync_seconds={self._random.choice((0.01, 0.1))}",
            f"--set=log.seal_share={self._random.choice((0.05, 1.0))}", module=self._module,
        )  # fmt: skip

    def _start(self) -> None:
        began = time.monotonic()
        self._launch()
        self._broker.wait_until_ready()
        self._start_seconds = time.monotonic() - began

    def _acked(self) -> int:
        return sum(len(publisher.acked) for publisher in self._publishers)

    def _wait_for_traffic(self) -> None:
        before = self._acked()
        wait_for(lambda: self._acked() > before, "acknowledgements")

    def _wait_for_sealing(self) -> None:
        """Waits for a segment that is being sealed, for a limited time."""
        end = time.monotonic() + TRAFFIC_SECONDS
        while time.monotonic() < end and not list(self._folder.glob("*.parquet.tmp")):
            _wait(0.0005)
        _wait(self._random.uniform(0, 0.02))

    # -- at the end --------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._wait_for_traffic()
        for publisher in self._publishers:
            publisher.ending.set()
        for publisher in self._publishers:
            publisher.join(GUARD_SECONDS)
            assert not publisher.is_alive() and not publisher.pending, publisher.name
        self._replay()
        self._broker.stop()
        self._subscriber.ending.set()
        self._subscriber.join(GUARD_SECONDS)

    def _replay(self) -> None:
        """A replay from the earliest offset returns all rows in order."""
        rows = read_with_reader(self._folder)
        port = self._broker.port("hermod.sub", threading.Event())
        assert port
        with Peer(port) as peer:
            peer.send(handshake(since="earliest", patterns=[">", "polycast/>"]))
            peer.expect(hermod.OK)
            replayed = read_messages(peer, len(rows))
        assert [delivered[:3] for delivered in replayed] == [row[1:] for row in rows]

    def _verify(self) -> None:
        if self._folder.exists():
            findings = [found for found in verify(self._folder) if isinstance(found, LogFinding)]
            assert all(found.note for found in findings), findings

    def _check(self) -> str:
        self._verify()
        rows = read_with_reader(self._folder)
        others, gaps = read_with_pyarrow(self._folder)
        assert rows == others
        check_log(rows, gaps)
        check_delivered(rows, self._subscriber, only_durable=self._delivery == "committed")
        for publisher in self._publishers:
            check_acknowledged(rows, publisher)
        self._check_log_lines()
        verified = polycast("log", "verify", "--data", str(self._folder.parent))
        assert verified.code == 0, verified
        delivered = len(self._subscriber.delivered)
        return (
            f"{self._acked():,} acknowledged, {len(rows):,} durable, {delivered:,} delivered, {len(gaps):,} gaps"
        )

    def _check_log_lines(self) -> None:
        """A kill is not damage: only unfinished groups are in the quarantine."""
        log = self._broker.log()
        assert not any(word in log for word in ("Traceback", "CRITICAL", " ERROR ")), log[-4000:]
        quarantined = [path.name for path in (self._folder / "quarantine").glob("*")]
        assert all(name.endswith(".tail") for name in quarantined), quarantined


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
