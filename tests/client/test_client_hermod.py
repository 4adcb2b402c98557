"""Acknowledgements, refusals and sequences."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from client.scripted import Scripted, read_exactly, read_to_end
from client.shells import KINDS, place, take
from kit import hermod
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from kit.wire import GUARD_SECONDS
from polycast.errors import RefusedError, RemoteError
from polycast.model import Everything, Exact, Format, Message, StartPosition

HELLO = b'{"batch_type":"End"}'
"""The first frame of a publisher: an `End` without a batch, with an immediate reply."""
BLOCK = 256 * 1024
IN_FLIGHT = 8


def greet(connection: socket.socket) -> None:
    read_exactly(connection, HELLO)
    connection.sendall(hermod.ok(0))


def error(code: int, message: str, **more: int) -> bytes:
    extra = "".join(f', "{name}": {value}' for name, value in more.items())
    return f'{{"status": "ERROR", "code": {code}, "message": "{message}"{extra}}}\n'.encode()


def in_short(topic: str, payload: bytes) -> bytes:
    return b'{"topic":"%b","payload_size":%d,"checksum":"%b"}%b' % (
        topic.encode(), len(payload), hermod.checksum(payload).encode(), payload,
    )  # fmt: skip


# -- publishing ------------------------------------------------------------------------------------------


def test_one_message_goes_by_itself_and_many_as_a_batch(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        greet(connection)
        read_exactly(connection, in_short("a", b"one"))
        connection.sendall(hermod.OK)
        read_exactly(connection, b'{"batch_type":"Count","count":2}' + in_short("a", b"") + in_short("b}", b"{x"))
        connection.sendall(hermod.ok(2))
        assert read_to_end(connection) == b""

    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client:
        client.publish([Message("a", b"one")])
        client.publish([Message("a", b""), Message("b}", b"{x")])
        client.publish([])


def test_a_refusal_is_raised_with_its_code_and_the_connection_goes_on(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        greet(connection)
        read_exactly(connection, in_short("a", b"x"))
        connection.sendall(error(403, "not for you"))
        read_exactly(connection, in_short("b", b"y"))
        connection.sendall(hermod.OK)

    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client:
        with pytest.raises(RefusedError, match=r"refused: 403 not for you$") as caught:
            client.publish([Message("a", b"x")])
        assert caught.value.code == 403
        client.publish([Message("b", b"y")])


def test_a_refusal_in_a_batch_counts_the_accepted_messages(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        greet(connection)
        read_exactly(connection, b'{"batch_type":"Count","count":3}' + in_short("a", b"x") * 3)
        connection.sendall(error(500, "disk full", count=2))

    reported = pytest.raises(RefusedError, match="500 disk full; 2 of 3 messages were accepted")
    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client, reported:
        client.publish([Message("a", b"x")] * 3)


def test_after_a_refusal_nothing_more_is_sent(kind: str) -> None:
    taken: list[int] = []

    def script(connection: socket.socket) -> None:
        greet(connection)
        taken.append(len(connection.recv(1)))
        connection.sendall(error(500, "disk full", count=0) + hermod.OK * IN_FLIGHT)
        with suppress(ConnectionResetError):  # it leaves without having looked at the rest
            while data := connection.recv(1 << 20):
                taken.append(len(data))

    with (
        Scripted(script) as at,
        pytest.raises(RefusedError, match="disk full"),
        KINDS[kind]("hermod", at, True) as client,
    ):
        client.publish(Message("a", b"x" * BLOCK) for _ in range(1000))
    assert sum(taken) < (IN_FLIGHT + 2) * (BLOCK + 200)


def test_no_more_than_a_window_is_sent_ahead(kind: str) -> None:
    """A broker that does not reply receives so many blocks and no more, until it does."""
    frame = in_short("a", b"x" * BLOCK)
    more = threading.Event()

    def script(connection: socket.socket) -> None:
        greet(connection)
        for _ in range(IN_FLIGHT):
            read_exactly(connection, frame)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(GUARD_SECONDS)
        for _ in range(IN_FLIGHT):
            connection.sendall(hermod.OK)
        for _ in range(2):
            read_exactly(connection, frame)
            connection.sendall(hermod.OK)
        more.set()

    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client:
        client.publish(Message("a", b"x" * BLOCK) for _ in range(IN_FLIGHT + 2))
        assert more.wait(GUARD_SECONDS)


def test_a_broker_refuses_what_is_too_large() -> None:
    with Broker("--set=limits.payload_bytes=1000", listen=("hermod.pub",)) as broker:
        for kind in KINDS.values():
            with (
                pytest.raises(RefusedError, match="2,000,000 exceeds the limit of 1,000") as caught,
                kind("hermod", place(broker, "hermod", True), True) as client,
            ):
                client.publish([Message("fine", b""), Message("large", b"x" * 2_000_000)])
            assert caught.value.code == 413


def test_the_error_of_a_stopping_broker(kind: str) -> None:
    with (
        Broker(listen=("hermod.pub",)) as broker,
        pytest.raises(RemoteError, match="503"),
        KINDS[kind]("hermod", place(broker, "hermod", True), True) as client,
    ):
        broker.stop()
        client.publish([Message("a", b"x")])


def test_a_reply_that_is_no_status(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        read_exactly(connection, HELLO)
        connection.sendall(b'{"status": 1}')
        read_to_end(connection)

    with Scripted(script) as at, pytest.raises(RemoteError, match="cannot read the status"):
        KINDS[kind]("hermod", at, True)


# -- subscribing -----------------------------------------------------------------------------------------


def test_messages_have_their_sequence(broker: Broker, room: Room, kind: str) -> None:
    topic = f"counted {kind}"
    with KINDS[kind]("hermod", place(broker, "hermod")) as client:
        client.subscribe([Exact(topic)])
        with KINDS[kind]("hermod", place(broker, "hermod", True), True) as publisher:
            publisher.publish(Message(topic, b"%d" % number) for number in range(5))
        received = take(client, 5)
    assert [each[:4] for each in received] == [
        (topic, b"%d" % number, Format.BYTES, number) for number in range(5)
    ]


def test_messages_have_their_offset_and_their_time(broker: Broker, kind: str) -> None:
    """The same ones live and from the log, and those that the log says."""
    topic = f"placed {kind}"
    before = time.time()
    with KINDS[kind]("hermod", place(broker, "hermod")) as client:
        client.subscribe([Exact(topic)])
        with KINDS[kind]("hermod", place(broker, "hermod", True), True) as publisher:
            publisher.publish([Message(topic, b"one"), Message("between", b""), Message(topic, b"two")])
        received = take(client, 2)
    one, two = received
    assert one.offset is not None and two.offset == one.offset + 2
    assert one.time is not None and before - 1 <= one.time <= time.time()
    with KINDS[kind]("hermod", place(broker, "hermod")) as client:
        client.subscribe([Everything()], StartPosition(offset=one.offset))
        again = take(client, 3)
    assert [again[0], again[2]] == received and again[1].topic == "between"


def test_a_broker_without_a_log_has_no_offsets(kind: str) -> None:
    with (
        Broker(listen=("hermod.pub", "hermod.sub")) as broker,
        KINDS[kind]("hermod", place(broker, "hermod")) as client,
        KINDS[kind]("hermod", place(broker, "hermod", True), True) as publisher,
    ):
        client.subscribe([Exact("a")])
        publisher.publish([Message("a", b"x")])
        assert take(client, 1) == [Message("a", b"x", Format.BYTES, 0)]


def test_subscriptions_are_in_force_when_subscribe_returns(broker: Broker, room: Room, kind: str) -> None:
    with KINDS[kind]("hermod", place(broker, "hermod")) as client:
        client.subscribe([Exact("now"), Exact("polycast/own")])
        room.simplest(pub("now", b"x") + pub("polycast/own", b"y"))
        assert [message.topic for message in take(client, 2)] == ["now", "polycast/own"]


def test_a_subscription_that_is_refused(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        read_exactly(connection, b'{"topics":["secret"],"offsets":true}')
        connection.sendall(error(403, "not for you"))
        read_exactly(connection, b'{"topics":["open"],"offsets":true}')
        connection.sendall(hermod.OK + hermod.delivery("open", b"x", 7))
        read_exactly(connection, b'{"status":"CLOSE"}')

    with Scripted(script) as at, KINDS[kind]("hermod", at) as client:
        with pytest.raises(RefusedError, match="403 not for you"):
            client.subscribe([Exact("secret")])
        client.subscribe([Exact("open")])
        assert take(client, 1) == [Message("open", b"x", Format.BYTES, 7)]


def test_a_checksum_that_does_not_fit(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        read_exactly(connection, b'{"topics":["a"],"offsets":true}')
        good = hermod.delivery("a", b"good", 0)
        connection.sendall(hermod.OK + good + good.replace(b"}good", b"}evil"))
        read_to_end(connection)

    received: list[Message] = []
    with Scripted(script) as at, pytest.raises(RemoteError, match="checksum"), KINDS[kind]("hermod", at) as client:
        client.subscribe([Exact("a")])
        for messages in client.messages():
            received += messages
    assert [message.payload for message in received] == [b"good"]


def test_deliveries_cut_anywhere(kind: str) -> None:
    deliveries = b"".join(hermod.delivery('a"}', b"{" * number, number) for number in range(9))

    def script(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_exactly(connection, b'{"topics":["a\\"}"],"offsets":true}')
        for byte in hermod.OK + deliveries:
            connection.sendall(bytes([byte]))
        read_to_end(connection)

    with Scripted(script) as at, KINDS[kind]("hermod", at) as client:
        client.subscribe([Exact('a"}')])
        received = take(client, 9)
    assert [(message.payload, message.sequence) for message in received] == [(b"{" * n, n) for n in range(9)]
