"""The dialect `hermod`, as subscribers see it on the wire."""

from __future__ import annotations

import pytest

from kit import hermod
from kit.broker import Broker
from kit.frames import pub
from kit.hermod import CLOSE, OK, delivery, expect_error, expect_no_more
from kit.room import Room
from kit.wire import Peer


def subscribe(room: Room, *topics: str, **more: object) -> Peer:
    subscriber = room.connect("hermod.sub")
    subscriber.send(hermod.topics(*topics, **more))
    subscriber.expect(OK)
    return subscriber


def test_topics_are_literal_names(room: Room) -> None:
    names = ["lit.a", "lit.>", ">", "~lit", "*"]
    subscriber = subscribe(room, *names)
    other = subscribe(room, "lit", "lit.", "LIT.A")
    room.simplest(b"".join(pub(name, b"x") for name in [*names, "lit.b", "literal", "x"]))
    for name in names:
        subscriber.expect(delivery(name, b"x", 0))
    expect_no_more(subscriber)
    expect_no_more(other)


def test_a_handshake_without_topics(room: Room) -> None:
    subscriber = subscribe(room)
    room.simplest(pub("none", b"x"))
    expect_no_more(subscriber)


def test_a_second_handshake_adds(room: Room) -> None:
    subscriber = subscribe(room, "add/a", "add/a")
    subscriber.send(hermod.topics("add/b", "add/a"))
    subscriber.expect(OK)
    room.simplest(pub("add/a", b"1") + pub("add/b", b"2") + pub("add/c", b"3"))
    subscriber.expect(delivery("add/a", b"1", 0) + delivery("add/b", b"2", 0))
    expect_no_more(subscriber)


def test_messages_do_not_wait_for_an_ok(room: Room) -> None:
    subscriber = subscribe(room, "ahead")
    room.simplest(pub("ahead", b"x") * 500)
    subscriber.expect(b"".join(delivery("ahead", b"x", number) for number in range(500)))


def test_an_error_of_a_client_is_in_the_log(broker: Broker, room: Room) -> None:
    subscriber = subscribe(room, "error")
    subscriber.send(b'{"status": "ERROR", "code": 7, "message": "no\\nroom"}' + CLOSE)
    assert subscriber.expect_closed() == b""
    port = subscriber.socket.getsockname()[1]
    log = broker.wait_for_log(f":{port}: refused")
    assert log.endswith(r"refused: ERROR of a client: 7, 'no\nroom'")


def test_an_ok_or_an_error_without_a_window_is_ignored(broker: Broker, room: Room) -> None:
    subscriber = subscribe(room, "matter")
    subscriber.send(
        OK * 3 + b'{"status": "ERROR", "code": 7, "message": "no"}' + hermod.acknowledgement("matter", 9)
    )
    subscriber.send(hermod.acknowledgement("matter", 9) + hermod.topics())
    subscriber.expect(OK)
    room.simplest(pub("matter", b"x"))
    subscriber.expect(delivery("matter", b"x", 0))
    expect_no_more(subscriber)


@pytest.mark.parametrize("word", ["CLOSE", "close", "Close"])
def test_close(broker: Broker, room: Room, word: str) -> None:
    subscriber = subscribe(room, "close")
    subscriber.send(b'{ "status": "%b" }' % word.encode())
    assert subscriber.expect_closed() == b""
    assert f":{subscriber.socket.getsockname()[1]}: closed" not in broker.log()


def test_due_messages_are_sent_before_a_close(room: Room) -> None:
    both = room.connect("hermod.sub")
    both.send(hermod.topics("due") + hermod.message("due", b"x") + CLOSE + hermod.message("due", b"y"))
    received = both.expect_closed()
    assert received == OK + delivery("due", b"x", 0) + OK


def test_from_is_refused_and_the_connection_stays_open(room: Room) -> None:
    subscriber = room.connect("hermod.sub")
    subscriber.send(hermod.topics("old", **{"from": "earliest"}))
    error = hermod.read_error(subscriber)
    assert error["code"] == 501
    assert "from" in str(error["message"])
    room.simplest(pub("old", b"1"))
    subscriber.send(hermod.topics("old"))
    subscriber.expect(OK)
    room.simplest(pub("old", b"2"))
    subscriber.expect(delivery("old", b"2", 1))


def test_too_many_subscriptions_cost_the_connection() -> None:
    with Broker("--set=limits.subscriptions=2") as broker, Room(broker) as room:
        subscriber = room.connect("hermod.sub")
        subscriber.send(hermod.topics("a", "b", "b"))
        subscriber.expect(OK)
        subscriber.send(hermod.topics("c"))
        expect_error(subscriber, 413)
        assert subscriber.expect_closed() == b""


def test_messages_of_other_dialects(room: Room) -> None:
    subscriber = subscribe(room, "from/é", "from/f", "a%20b")
    room.simplest(pub("from/é", b"\x00\n") + pub("a%20b", b""))
    room.send_as_controller(room.controller(), b"from/f hello there\n")
    subscriber.expect(delivery("from/é", b"\x00\n", 0) + delivery("a%20b", b"", 0))
    subscriber.expect(delivery("from/f", b"hello there", 0))


def test_messages_to_other_dialects(room: Room) -> None:
    client, listener = room.client(b"subscribe to.>\n"), room.simplest(b"sub to.\n")
    publisher = room.connect("hermod.pub")
    publisher.send(hermod.message("to.a b\n!", b"1\n2") + hermod.message("to.x", b""))
    publisher.expect(OK * 2)
    client.expect(b"to.a%20b%0A%21!1\\n2\nto.x!\n")
    listener.expect(pub("to.a%20b%0A!", b"1\n2") + pub("to.x", b""))


# -- window and batch ------------------------------------------------------------------------------------


def one(topic: str, *numbers: int) -> bytes:
    return b"".join(delivery(topic, b"x", number) for number in numbers)


def test_a_window_holds_back_what_is_not_acknowledged(room: Room) -> None:
    slow, fast = subscribe(room, "win", window=2), subscribe(room, "win")
    room.simplest(pub("win", b"x") * 5)
    fast.expect(one("win", 0, 1, 2, 3, 4))
    slow.expect(one("win", 0, 1))
    slow.send(OK)
    slow.expect(one("win", 2))
    slow.send(hermod.acknowledgement("win", 2))
    slow.expect(one("win", 3, 4))
    expect_no_more(slow)


def test_deliveries_in_batches(room: Room) -> None:
    subscriber = subscribe(room, "bat", batch=3, window=3)
    room.simplest(pub("bat", b"x") * 5)
    subscriber.expect(b'{"batch_type": "Count", "count": 3}' + one("bat", 0, 1, 2))
    subscriber.send(OK)
    subscriber.expect(b'{"batch_type": "Count", "count": 2}' + one("bat", 3, 4))
    expect_no_more(subscriber)


def test_a_later_handshake_replaces_the_window(room: Room) -> None:
    subscriber = subscribe(room, "rep/a")
    subscriber.send(hermod.topics("rep/b", window=1))
    subscriber.expect(OK)
    room.simplest(pub("rep/a", b"x") * 2 + pub("rep/b", b"x") * 2)
    subscriber.expect(one("rep/a", 0))
    subscriber.send(hermod.topics(window=0))
    subscriber.expect(OK + one("rep/a", 1) + one("rep/b", 0, 1))
    room.simplest(pub("rep/a", b"x"))
    subscriber.expect(one("rep/a", 2))


def test_own_messages_of_a_subscriber_follow_those_held_by_its_window(room: Room) -> None:
    both = subscribe(room, "own", window=2)
    room.simplest(pub("own", b"x") * 3)
    both.expect(one("own", 0, 1))
    both.send(hermod.message("own", b"x") + OK * 2)
    both.expect(OK + one("own", 2, 3))
    both.send(hermod.message("own", b"x") + hermod.topics(window=0))
    both.expect(OK * 2 + one("own", 4))
    expect_no_more(both)


def test_messages_released_by_an_ok_are_sent_before_a_close(room: Room) -> None:
    subscriber = subscribe(room, "room", window=1)
    room.simplest(pub("room", b"x") * 3)
    subscriber.expect(one("room", 0))
    subscriber.send(OK + CLOSE)
    assert subscriber.expect_closed() == one("room", 1)


def test_a_subscriber_that_never_acknowledges_is_disconnected_past_the_queue_limit() -> None:
    with Broker("--set=limits.queue_bytes=65536") as broker, Room(broker) as room:
        slow, witness = subscribe(room, "full", window=1), subscribe(room, "full")
        publisher = room.simplest()
        for number in range(10):
            room.send_commands(publisher, pub("full", b"y" * 10_000))
            witness.expect(delivery("full", b"y" * 10_000, number))
        assert slow.expect_closed() == delivery("full", b"y" * 10_000, 0)
        assert "limits.queue_bytes" in broker.wait_for_log("too slow")


def test_a_subscriber_that_never_acknowledges_times_out() -> None:
    with Broker("--set=limits.ack_seconds=0.1") as broker, Room(broker) as room:
        slow = subscribe(room, "late", window=1)
        room.simplest(pub("late", b"x") * 2)
        slow.expect(one("late", 0))
        expect_error(slow, 503)
        assert slow.expect_closed() == b""
        assert "limits.ack_seconds" in broker.wait_for_log("no ack for")
