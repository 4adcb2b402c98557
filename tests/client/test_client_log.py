"""Features of a broker's log for clients of `hermod`: replays, and idempotent batches."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from client.scripted import Scripted, read_exactly, read_to_end
from client.shells import KINDS, take
from kit import hermod
from polycast.dialects.client_subscriptions import StartFrom
from polycast.errors import RefusedError, UsageError
from polycast.model import Contains, Everything, Exact, Message, Pattern, Prefix, StartPosition

HELLO = b'{"batch_type":"End"}'


def read_header(connection: socket.socket) -> dict[str, Any]:
    """The next header, which nothing follows."""
    text = b""
    while more := connection.recv(1):
        text += more
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            continue
        return found
    raise AssertionError(f"the client left after {text!r}")


# -- subscribing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "start", "output"),
    [
        ([Exact("a"), Exact("b.>")], None, {"topics": ["a", "b.>"]}),
        ([Prefix("a."), Contains("x"), Everything()], None, {"topics": [], "patterns": ["a.>", "~x", ">"]}),
        ([Exact("a"), Prefix("a")], "latest", {"topics": ["a"], "patterns": ["a>"], "from": "latest"}),
        ([Exact("a")], StartPosition(), {"topics": ["a"], "from": "earliest"}),
        ([Everything()], StartPosition(), {"topics": [], "patterns": [">"], "from": "earliest"}),
        (
            [Exact("time"), Exact("b")],
            StartPosition(5),
            {"topics": ["time", "b"], "from": {"topics": {"time": 5, "b": 5}}},
        ),
        ([Everything()], StartPosition(offset=2**62), {"topics": [], "patterns": [">"], "from": f"@{2**62}"}),
        ([Everything()], StartPosition(seconds=2.25), {"topics": [], "patterns": [">"], "from": {"time": 2250}}),
    ],
)
def test_where_to_begin(
    kind: str, patterns: list[Pattern], start: StartFrom | None, output: dict[str, Any]
) -> None:
    def script(connection: socket.socket) -> None:
        assert read_header(connection) == {**output, "offsets": True}
        connection.sendall(hermod.OK)
        assert read_to_end(connection) == b'{"status":"CLOSE"}'

    with Scripted(script) as at, KINDS[kind]("hermod", at) as client:
        client.subscribe(patterns, start)


def test_the_log_is_replayed_before_live_messages(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(hermod.OK + b"".join(hermod.delivery("a.b", b"%d" % n, n) for n in range(3, 6)))
        read_to_end(connection)

    with Scripted(script) as at, KINDS[kind]("hermod", at) as client:
        client.subscribe([Prefix("a.")], StartPosition(seconds=1.0))
        assert [(message.payload, message.sequence) for message in take(client, 3)] == [
            (b"3", 3),
            (b"4", 4),
            (b"5", 5),
        ]


def test_a_sequence_is_of_one_topic(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        assert read_to_end(connection) == b'{"status":"CLOSE"}'

    with (
        Scripted(script) as at,
        KINDS[kind]("hermod", at) as client,
        pytest.raises(UsageError, match=r"'a\.>' may match many"),
    ):
        client.subscribe([Exact("b"), Prefix("a.")], StartPosition(7))
    with Scripted(script) as at, KINDS[kind]("hermod", at) as client:
        pass


def test_a_broker_without_a_log_refuses(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(b'{"status": "ERROR", "code": 501, "message": "from needs the log"}\n')
        read_to_end(connection)

    with Scripted(script) as at, KINDS[kind]("hermod", at) as client:
        with pytest.raises(RefusedError, match="501 from needs the log") as caught:
            client.subscribe([Exact("a")], StartPosition())
        assert caught.value.code == 501


# -- publishing ------------------------------------------------------------------------------------------


def greet(connection: socket.socket) -> None:
    read_exactly(connection, HELLO)
    connection.sendall(hermod.ok(0))


def in_short(topic: str, payload: bytes) -> bytes:
    return b'{"topic":"%b","payload_size":%d,"checksum":"%b"}%b' % (
        topic.encode(), len(payload), hermod.checksum(payload).encode(), payload,
    )  # fmt: skip


def test_a_batch_with_an_id_goes_as_one_however_large(kind: str) -> None:
    large = b"x" * 300_000

    def script(connection: socket.socket) -> None:
        greet(connection)
        assert read_header(connection) == {"batch_type": "Count", "count": 4, "batch_id": "é 1"}
        read_exactly(connection, in_short("a", large) * 2 + in_short("b", b"") * 2)
        connection.sendall(hermod.ok(4))
        assert read_to_end(connection) == b""

    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client:
        messages = [Message("a", large)] * 2 + [Message("b", b"")] * 2
        assert client.publish_once(iter(messages), "é 1") == 4
        assert client.publish_once([], "é 2") == 0


def test_a_broker_that_has_another_batch_under_the_id(kind: str) -> None:
    """It publishes nothing, and that is no success."""

    def script(connection: socket.socket) -> None:
        greet(connection)
        assert read_header(connection)["count"] == 1
        read_exactly(connection, in_short("a", b"x"))
        connection.sendall(hermod.ok(7))

    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client:
        with pytest.raises(RefusedError, match="was published with 7 messages, and this one has 1") as caught:
            client.publish_once([Message("a", b"x")], "again")
        assert caught.value.code == 422 and "another batch id" in caught.value.hint


def test_a_batch_that_did_not_become_durable(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        greet(connection)
        read_header(connection)
        read_exactly(connection, in_short("a", b"x") * 2)
        connection.sendall(b'{"status": "ERROR", "code": 500, "message": "not stored: no room", "count": 0}\n')

    with Scripted(script) as at, KINDS[kind]("hermod", at, True) as client:
        with pytest.raises(RefusedError, match="500 not stored: no room; 0 of 2 messages were accepted") as caught:
            client.publish_once([Message("a", b"x")] * 2, "id")
        assert caught.value.code == 500


def test_a_subscribing_connection_cannot_publish_a_batch(kind: str) -> None:
    def script(connection: socket.socket) -> None:
        read_to_end(connection)

    with (
        Scripted(script) as at,
        KINDS[kind]("hermod", at) as client,
        pytest.raises(UsageError, match="subscribes"),
    ):
        client.publish_once([Message("a", b"x")], "id")
