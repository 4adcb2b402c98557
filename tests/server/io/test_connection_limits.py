"""Limits of connections, and of subscriptions per connection."""

from __future__ import annotations

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.room import GREETING, Room
from kit.wire import Peer, wait_for


def try_to_enter(broker: Broker) -> Peer | None:
    """A fanout client that was greeted, or None if it was rejected."""
    client = broker.connect("fanout.client")
    if client.socket.recv(len(GREETING)) == GREETING:
        return client
    client.close()
    return None


def test_connections_past_the_limit_are_rejected_until_one_closes() -> None:
    with Broker("--set=limits.connections=3") as broker:
        one, two, three = (broker.connect("fanout.client") for _ in range(3))
        for client in (one, two, three):
            client.expect(GREETING)
        for listener in ("fanout.client", "simplest", "fanout.controller"):
            with broker.connect(listener) as late:
                assert late.expect_closed() == b""
        for client in (one, two, three):
            client.send(b"time\n")
            assert client.read_until(b"\n").strip().isdigit()
        two.close()
        new = wait_for(lambda: try_to_enter(broker), "a free place")
        assert new is not None
        new.send(b"time\n")
        assert new.read_until(b"\n").strip().isdigit()
        new.close()
        for client in (one, three):
            client.close()
        assert "raise limits.connections" in broker.wait_for_log("rejected: 3 connections")


def test_rejected_connections_are_counted_and_logged_once() -> None:
    with Broker("--set=limits.connections=1") as broker:
        with broker.connect("fanout.client") as only:
            only.expect(GREETING)
            for _ in range(20):
                with broker.connect("simplest") as late:
                    assert late.expect_closed() == b""
        assert broker.log().count("rejected") == 1
        broker.stop()
        assert "turned_away 20" in broker.wait_for_log("INFO simplest:")


def test_a_subscription_past_the_limit_closes_the_connection() -> None:
    with Broker("--set=limits.subscriptions=3") as broker, Room(broker) as room:
        greedy = room.simplest(b"sub a\nsub b\nsub c\nsub a\nsub b\nunsub c\nsub d\n")
        witness = room.simplest(b"sub a\n")
        room.simplest(pub("a", b"1"))
        greedy.expect(pub("a", b"1"))
        witness.expect(pub("a", b"1"))
        greedy.send(b"sub e\n" + pub("a", b"not looked at"))
        assert greedy.expect_closed() == b""
        assert "subscription of 4 exceeds the limit of 3" in broker.wait_for_log("limits.subscriptions")
        room.simplest(pub("a", b"2"))
        witness.expect(pub("a", b"2"))


def test_the_standing_subscription_of_a_fanout_client_counts() -> None:
    with Broker("--set=limits.subscriptions=2") as broker, Room(broker) as room:
        client = room.client(b"subscribe a\n")
        client.send(b"subscribe b\n")
        assert client.expect_closed() == b""


@pytest.mark.parametrize("count", [10_000])
def test_many_subscriptions_on_one_connection(count: int) -> None:
    with Broker() as broker, Room(broker) as room:
        names = [f"topic/{number}/end" for number in range(count)]
        subscriber = room.simplest("".join(f"sub {name}\n" for name in names).encode())
        publisher = room.simplest(pub("topic/1/end", b"1") + pub("other", b"2") + pub(names[-1], b"3"))
        subscriber.expect(pub("topic/1/end", b"1") + pub(names[-1], b"3"))
        room.send_commands(subscriber, "".join(f"unsub {name}\n" for name in names[:-1]).encode())
        room.send_commands(publisher, pub("topic/1/end", b"4") + pub(names[-1], b"5"))
        subscriber.expect(pub(names[-1], b"5"))
