"""`polycast sub --from` with a broker that has a log."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from kit.broker import Broker
from kit.program import POLYCAST, Program, polycast
from kit.replay import publish
from kit.wire import wait_for

PAST = [("orders.eu", b"1"), ("orders", b"2"), ("orders.us", b"3"), ("reorders.eu", b"4"), ("orders.eu", b"5")]


def test_a_pattern_from_the_beginning_and_on(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as publisher:
        at = f"127.0.0.1:{broker.ports['hermod.sub']}"
        publish(publisher, PAST)
        with Program(*POLYCAST, "sub", "orders.>", "--from", "earliest", "--count", "5", "--at", at) as terminal:
            terminal.expect(b"orders.eu 1\norders.us 3\norders.eu 5\n")
            publish(publisher, [("orders.us", b"6"), ("other", b"7"), ("orders.eu", b"8"), ("orders.eu", b"9")])
            terminal.expect(b"orders.us 6\norders.eu 8\n")
            assert terminal.finish().code == 0


def test_from_a_sequence_a_time_and_after_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, PAST)
        middle = int(time.time()) + 1
        wait_for(lambda: time.time() > middle, "the clock to move")
        publish(publisher, [("orders.eu", b"6")])
    with Broker(data=tmp_path) as broker:
        at = f"--at=127.0.0.1:{broker.ports['hermod.sub']}"
        done = polycast("sub", "orders.eu", "--from", "1", "--count", "2", "--json", at)
        rows = [json.loads(text) for text in done.out.splitlines()]
        assert [(row["sequence"], row["payload"]) for row in rows] == [(1, "5"), (2, "6")]
        moment = datetime.fromtimestamp(middle, UTC).isoformat()
        assert polycast("sub", ">", "--from", moment, "--count", "1", at).out == b"orders.eu 6\n"
        assert polycast("sub", ">", "--from", "-1h", "--count", "6", at).out.count(b"\n") == 6


def test_a_sequence_that_is_not_there_yet(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, PAST)
        at = f"--at=127.0.0.1:{broker.ports['hermod.sub']}"
        failed = polycast("sub", "orders.eu", "--from", "7", at)
        assert failed.code == 1
        assert "sequence 2" in failed.err and "no 7 yet" in failed.err
