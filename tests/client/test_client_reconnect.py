"""Clients that lose their broker: what they do, what they say, and when they give up."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from client.scripted import Scripted, read_exactly, read_to_end
from client.shells import KINDS, Shell, place, take
from client.test_client_log import read_header
from kit import hermod
from kit.broker import Broker
from kit.wire import GUARD_SECONDS, wait_for
from polycast.client import DIALECTS, State, StateChange, connect, to_body
from polycast.errors import RefusedError, RemoteError, ReplyTimeoutError
from polycast.model import Exact, Message

LOG = "0123456789abcdef"
WELCOME = b'{"status": "OK", "log": "%b", "next": 5}\n' % LOG.encode()
GREETING = b'{"status": "OK", "count": 0, "log": "%b", "batch_ids": 100}\n' % LOG.encode()


def delivery(offset: int) -> bytes:
    head = b'{"topic": "a", "sequence": %d, "offset": %d, "time": 1, "payload_size": 1, "checksum": ""}x'
    return head % (offset, offset)


def greet(connection: socket.socket) -> None:
    assert read_header(connection) == {"batch_type": "End", "offsets": True}
    connection.sendall(GREETING)


def close_at_once(connection: socket.socket) -> None:
    pass


def talk_nonsense(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n")
    read_to_end(connection)


def dial(kind: str, at: str, states: list[StateChange] | None = None, publishing: bool = False) -> Shell:
    on_state = (lambda change: None) if states is None else states.append
    return KINDS[kind]("hermod", at, publishing, reconnect=True, on_state=on_state)


# -- subscribers -----------------------------------------------------------------------------------------


def test_a_subscriber_resumes_behind_its_last_message(kind: str) -> None:
    """Past brokers that close at once or speak another protocol."""

    def first(connection: socket.socket) -> None:
        assert read_header(connection) == {"topics": ["a"], "offsets": True, "delivery": "committed"}
        connection.sendall(WELCOME + delivery(5) + delivery(9))

    def again(connection: socket.socket) -> None:
        resumed = {"from": "@10", "log": LOG}
        assert read_header(connection) == {"topics": ["a"], "offsets": True, "delivery": "committed", **resumed}
        connection.sendall(WELCOME + delivery(12))
        read_to_end(connection)

    states: list[StateChange] = []
    scripts = first, close_at_once, talk_nonsense, close_at_once, again
    with Scripted(*scripts) as at, dial(kind, at, states) as client:
        client.subscribe([Exact("a")])
        assert [message.offset for message in take(client, 3)] == [5, 9, 12]
        assert client.reconnects == 1
    changes = [change.state for change in states]
    assert changes[:3] == [State.CONNECTING, State.CONNECTED, State.DISCONNECTED]
    assert changes.count(State.DISCONNECTED) == 4 and changes[-2:] == [State.RESUMED, State.CLOSED]
    assert all(change.error for change in states if change.state is State.DISCONNECTED)


def test_another_log_is_the_end(kind: str) -> None:
    def first(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(WELCOME)

    def other(connection: socket.socket) -> None:
        assert read_header(connection)["log"] == LOG
        connection.sendall(b'{"status": "ERROR", "code": 412, "message": "another log"}\n')

    with Scripted(first, other) as at, dial(kind, at) as client:
        client.subscribe([Exact("a")])
        with pytest.raises(RefusedError, match="412 another log") as caught:
            client.receive(GUARD_SECONDS)
        assert caught.value.code == 412


def test_rights_that_were_revoked_are_the_end(tmp_path: Path) -> None:
    """By a rule that is gone after a restart."""
    at = f"ipc://{tmp_path}/socket"
    allowed, refused = (f"--set=access.rules=loopback may subscribe {topic}" for topic in "ab")
    with Broker(f"--listen=hermod.sub={at}", allowed, listen=(), data=tmp_path) as broker:
        client = connect("hermod", at)
        client.subscribe([Exact("a")])
        broker.kill()
    with Broker(f"--listen=hermod.sub={at}", refused, listen=(), data=tmp_path), client:
        with pytest.raises(RefusedError) as caught:
            client.receive(GUARD_SECONDS)
        assert caught.value.code == 403


def test_a_gap_in_the_log_is_a_state_and_no_acknowledgement(kind: str) -> None:
    notice = b'{"status": "ERROR", "code": 410, "message": "3 messages are gone", "first": 6, "next": 9}\n'

    def script(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(notice + WELCOME + delivery(5) + notice + delivery(9))
        read_to_end(connection)

    states: list[StateChange] = []
    with Scripted(script) as at, dial(kind, at, states) as client:
        client.subscribe([Exact("a")])
        assert [message.offset for message in take(client, 2)] == [5, 9]
    gaps = [change for change in states if change.state is State.GAP]
    assert [(gap.first, gap.next, gap.text) for gap in gaps] == [(6, 9, "3 messages are gone")] * 2


@pytest.mark.parametrize("dialect", ["simplest", "fanout", "nanomsg", "ubre"])
def test_a_dialect_without_offsets_subscribes_again_and_reports_possible_loss(
    kind: str, dialect: str, tmp_path: Path
) -> None:
    at = f"ipc://{tmp_path}/socket"
    flag = f"--listen={DIALECTS[dialect].subscribers}={at}"
    states: list[StateChange] = []
    with Broker(flag, listen=("hermod.pub",)) as broker:
        client = KINDS[kind](dialect, at, reconnect=True, on_state=states.append)
        client.subscribe([Exact("a")])
        broker.kill()
    with Broker(flag, listen=("hermod.pub",)) as broker, client:
        wait_for(lambda: client.reconnects == 1 or _poll(client), "the client to come back")
        with connect("hermod", place(broker, "hermod", True), True) as publisher:
            publisher.publish([Message("a", b"x")])
        assert take(client, 1)[0].payload == b"x"
    again = [change for change in states if change.state is State.CONNECTED][-1]
    assert again.text.endswith("messages in between may be lost")


def _poll(client: Shell) -> bool:
    """Reads, and reconnects if need be."""
    with suppress(ReplyTimeoutError):
        client.receive(0.2)
    return client.reconnects == 1


# -- publishers and requests -----------------------------------------------------------------------------


def test_a_publisher_sends_again_under_the_same_batch_id(kind: str) -> None:
    frames: list[dict[str, object]] = []

    def read_block(connection: socket.socket) -> None:
        frames.append(read_header(connection))
        read_exactly(connection, hermod.message("a", b"x").replace(b": ", b":").replace(b", ", b","))

    def first(connection: socket.socket) -> None:
        greet(connection)
        read_block(connection)

    def again(connection: socket.socket) -> None:
        greet(connection)
        read_block(connection)
        connection.sendall(hermod.ok(1))
        read_to_end(connection)

    with Scripted(first, again) as at, dial(kind, at, publishing=True) as client:
        client.publish([Message("a", b"x")])
    assert frames[0] == frames[1] and str(frames[0]["batch_id"]).startswith("polycast/client/")


def test_without_batch_ids_a_publisher_reports_an_unknown_outcome(kind: str) -> None:
    def first(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(hermod.ok(0))
        connection.recv(1)

    def again(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(hermod.ok(0))
        connection.recv(1 << 16)
        connection.sendall(hermod.OK)
        read_to_end(connection)

    with Scripted(first, again) as at, dial(kind, at, publishing=True) as client:
        with pytest.raises(RemoteError):
            client.publish([Message("a", b"x")])
        client.publish([Message("a", b"y")])
        assert client.reconnects == 1


def test_a_refusal_that_ends_the_connection_is_not_repeated(kind: str) -> None:
    def refuse(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(1 << 16)
        connection.sendall(b'{"status": "ERROR", "code": 413, "message": "too large", "count": 0}\n')

    def accept(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(1 << 16)
        connection.sendall(hermod.ok(1))
        read_to_end(connection)

    with Scripted(refuse, accept) as at, dial(kind, at, publishing=True) as client:
        with pytest.raises(RefusedError, match="413 too large"):
            client.publish([Message("a", b"x")])
        client.publish([Message("a", b"y")])


def test_a_request_in_flight_fails_and_the_next_one_goes_on(kind: str) -> None:
    def first(connection: socket.socket) -> None:
        greet(connection)
        read_header(connection)

    def again(connection: socket.socket) -> None:
        greet(connection)
        number = read_header(connection)["id"]
        connection.sendall(b'{"status": "OK", "id": %d, "format": "none", "payload_size": 0}\n' % number)
        read_to_end(connection)

    with Scripted(first, again) as at, dial(kind, at, publishing=True) as client:
        with pytest.raises(RemoteError, match=r"closed|reset"):
            client.request("a")
        assert client.request("a").success


def test_no_acknowledgement_in_time_is_a_timeout(kind: str) -> None:
    ended = threading.Event()

    def script(connection: socket.socket) -> None:
        greet(connection)
        ended.wait(GUARD_SECONDS)

    with Scripted(script) as at, dial(kind, at, publishing=True) as client:
        for act in (lambda: client.publish([Message("a", b"x")], 0.01), lambda: client.request("a", timeout=0.01)):
            with pytest.raises(TimeoutError, match=r"no reply within 0\.01 s"):
                act()
        ended.set()


def test_no_broker_in_time_is_a_timeout_with_the_reason(kind: str) -> None:
    with Scripted(greet) as at:
        client = dial(kind, at, publishing=True)
    with client, pytest.raises(ReplyTimeoutError, match=r"not connected within 0\.2 s: "):
        client.publish([Message("a", b"x")], timeout=0.2)


def test_served_routes_are_offered_again(kind: str, tmp_path: Path) -> None:
    at = f"ipc://{tmp_path}/socket"
    with Broker(f"--listen=http={at}", listen=()) as broker:
        client = KINDS[kind]("ubre", at, reconnect=True)
        client.serve("double", lambda body: body)
        broker.kill()
    with Broker(f"--listen=http={at}", listen=()), connect("ubre", at) as other, client:
        wait_for(lambda: client.reconnects == 1 or _poll(client), "the client to come back")
        response: list[object] = []
        requesting = threading.Thread(target=lambda: response.append(other.request("double", to_body(4)).value))
        requesting.start()
        while requesting.is_alive():
            _poll(client)
        assert response == [4]


# -- several addresses -----------------------------------------------------------------------------------


def test_the_first_address_that_responds_serves_and_then_the_next(kind: str, tmp_path: Path) -> None:
    def first(connection: socket.socket) -> None:
        read_header(connection)
        connection.sendall(WELCOME + delivery(5))

    def second(connection: socket.socket) -> None:
        assert read_header(connection)["from"] == "@6"
        connection.sendall(WELCOME + delivery(6))
        read_to_end(connection)

    nowhere = f"ipc://{tmp_path}/nothing"
    states: list[StateChange] = []
    with Scripted(first) as one, Scripted(second) as two, dial(kind, f"{nowhere}, {one},{two}", states) as client:
        client.subscribe([Exact("a")])
        assert [message.offset for message in take(client, 2)] == [5, 6]
        assert str(two) in states[-1].address and states[-1].state is State.RESUMED


def test_no_address_responds(kind: str, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=r"cannot reach .*two"):
        dial(kind, f"ipc://{tmp_path}/one,ipc://{tmp_path}/two")
