"""Publishers past their rate are paused; others are not affected."""

from __future__ import annotations

from pathlib import Path

import pytest

from access.gate import counted, gated
from kit.broker import Broker
from kit.hermod import OK, message
from kit.wire import Peer, wait_for
from polycast.server.io.rate_limiter import Bucket, RateLimit


def test_a_bucket_holds_one_second_and_refills_at_its_rate() -> None:
    bucket = Bucket(10, 100.0)
    assert bucket.spend(10, 100.0) == 0
    assert bucket.spend(5, 100.0) == pytest.approx(0.5)
    assert bucket.spend(0, 100.25) == pytest.approx(0.25)
    assert bucket.spend(0, 100.5) == 0
    assert bucket.spend(10, 200.0) == 0
    assert bucket.spend(1, 200.0) == pytest.approx(0.1)


def test_messages_and_bytes_are_limited_separately() -> None:
    assert RateLimit(0, 0, 0.0).spend(10**9, 10**9, 0.0) == 0
    assert RateLimit(10, 0, 0.0).spend(20, 10**9, 0.0) == pytest.approx(1)
    assert RateLimit(0, 10, 0.0).spend(10**9, 30, 0.0) == pytest.approx(2)
    assert RateLimit(10, 10, 0.0).spend(20, 30, 0.0) == pytest.approx(2)


def acknowledged(peer: Peer) -> bool:
    peer.send(message("x", b"y"))
    peer.expect(OK)
    return True


def slowed(broker: Broker) -> float:
    return counted(broker, "polycast_publishers_slowed_total")


FLOOD = message("x", b"y") * 30
"""Half a minute's worth at a rate of one message a second."""


@pytest.mark.parametrize("setting", ["connection_messages = 1.0", "connection_bytes = 1.0"])
def test_a_connection_past_its_rate_is_paused_alone(setting: str, tmp_path: Path) -> None:
    with gated(tmp_path, "guest may everything", listen=("hermod.pub",), more=setting) as broker:
        fast, other = broker.connect("hermod.pub"), broker.connect("hermod.pub")
        with fast, other:
            fast.send(FLOOD)
            fast.expect(OK * 30)
            wait_for(lambda: slowed(broker) == 1, "it to be counted")
            fast.send(message("x", b"late"))
            assert acknowledged(other)
            came = counted(broker, "polycast_messages_in_total", listener="hermod.pub")
            assert came == 31  # the later message has not been read


def test_an_identity_past_its_rate_has_all_its_connections_paused(tmp_path: Path) -> None:
    more = "identity_messages = 1.0"
    with gated(tmp_path, "guest may everything", listen=("hermod.pub", "simplest"), more=more) as broker:
        fast, twin = broker.connect("hermod.pub"), broker.connect("hermod.pub")
        with fast, twin, broker.connect_file("simplest") as here:
            fast.send(FLOOD)
            fast.expect(OK * 30)
            twin.send(message("x", b"y"))
            twin.expect(OK)
            wait_for(lambda: slowed(broker) == 2, "both to be counted")
            twin.send(message("x", b"late"))
            here.send(b"pub x 1 y\n")
            wait_for(lambda: counted(broker, "polycast_messages_in_total", listener="simplest") == 1, "the other")
            assert counted(broker, "polycast_messages_in_total", listener="hermod.pub") == 31


def test_a_paused_connection_is_read_again(tmp_path: Path) -> None:
    more = "connection_messages = 100.0"
    started = gated(tmp_path, "guest may everything", listen=("hermod.pub",), more=more)
    with started as broker, broker.connect("hermod.pub") as peer:
        peer.send(message("x", b"y") * 120)
        peer.expect(OK * 120)
        assert acknowledged(peer)
        assert slowed(broker) >= 1
