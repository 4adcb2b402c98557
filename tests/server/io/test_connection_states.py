"""The lifecycle of a connection: every event in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from polycast.dialects.guard import Guard
from polycast.dialects.session import Session, SessionContext
from polycast.errors import PeerError
from polycast.server.io.connection import TRANSITIONS, Connection
from polycast.server.io.connection_state import ConnectionEvent, ConnectionState
from polycast.server.io.receive_buffer import SHARED_BYTES, ReceiveBuffer, SharedMemory
from polycast.server.stats.counters import Counters

OPEN, INPUT_ENDED, CLOSING, CLOSED = ConnectionState

Act = Callable[[Connection], None]
REACH: dict[ConnectionState, list[Act]] = {
    OPEN: [],
    INPUT_ENDED: [Connection.end_input],
    CLOSING: [Connection.close],
    CLOSED: [lambda connection: connection.connection_lost(None)],
}
"""How a connection gets into each state."""
METHODS: dict[ConnectionEvent, Act] = {
    ConnectionEvent.END_INPUT: Connection.end_input,
    ConnectionEvent.RESUME_INPUT: Connection.resume_input,
    ConnectionEvent.CLOSE: Connection.close,
    ConnectionEvent.HALF_CLOSE: lambda connection: connection.fail(PeerError("wrong")),
    ConnectionEvent.SHUT_DOWN: Connection.shut_down,
    ConnectionEvent.DISCONNECT: lambda connection: connection.disconnect("slow", "too slow"),
    ConnectionEvent.ABORT: Connection.abort,
    ConnectionEvent.LOSE: lambda connection: connection.connection_lost(None),
}
"""How each event is caused; `REJECT` has no method."""
ENDS = {
    # event: the call to the transport, whether subscriptions are removed, the state after it
    ConnectionEvent.CLOSE: ("close", True, CLOSING),
    ConnectionEvent.HALF_CLOSE: ("write_eof", True, CLOSING),
    ConnectionEvent.SHUT_DOWN: ("write_eof", False, CLOSING),
    ConnectionEvent.DISCONNECT: ("abort", True, CLOSING),
    ConnectionEvent.ABORT: ("abort", False, CLOSING),
    ConnectionEvent.LOSE: ("", False, CLOSED),
}
ERRORS = {
    (OPEN, ConnectionEvent.RESUME_INPUT),
    (CLOSING, ConnectionEvent.RESUME_INPUT),
    (CLOSED, ConnectionEvent.RESUME_INPUT),
    (INPUT_ENDED, ConnectionEvent.REJECT),
    (CLOSING, ConnectionEvent.REJECT),
    (CLOSED, ConnectionEvent.REJECT),
}


class TalkingSession(Session):
    def closing_bytes(self, error: PeerError | None) -> bytes:
        return b"bye"


class Transport(Mock):
    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return bool(self.close.called or self.abort.called)

    def ends(self) -> list[str]:
        return [call[0] for call in self.method_calls if call[0] in ("close", "write_eof", "abort")]


def listener(accepts: bool = True) -> Mock:
    counters = Counters()
    made = Mock(counters=counters, queue_bytes=1000, policy="disconnect", unauthorized_bytes=100)
    made.admit.return_value = Guard()
    made.opened.return_value = accepts
    made.awaits_reply.return_value = True
    return made


def connect(made: Mock, transport: Transport) -> Connection:
    buffer = ReceiveBuffer(SharedMemory(SHARED_BYTES))
    connection = Connection(made, TalkingSession(SessionContext()), buffer, "#1")
    connection.connection_made(transport)
    return connection


def in_state(state: ConnectionState) -> tuple[Connection, Mock, Transport]:
    made, transport = listener(), Transport()
    connection = connect(made, transport)
    for act in REACH[state]:
        act(connection)
    assert connection.state is state
    made.reset_mock()
    transport.reset_mock()
    return connection, made, transport


def test_a_missing_key_is_a_programming_error() -> None:
    assert {(state, event) for state in ConnectionState for event in ConnectionEvent} - ERRORS == set(TRANSITIONS)


@pytest.mark.parametrize("state", [OPEN, INPUT_ENDED])
@pytest.mark.parametrize("event", list(ENDS))
def test_every_end_of_a_connection_that_lives(state: ConnectionState, event: ConnectionEvent) -> None:
    connection, made, transport = in_state(state)
    METHODS[event](connection)
    call, leaves, after = ENDS[event]
    assert connection.state is after
    assert transport.ends() == ([call] if call else [])
    assert made.leave.called == leaves
    assert made.closed.called == (after is CLOSED)


@pytest.mark.parametrize(
    ("event", "calls"),
    [
        (ConnectionEvent.END_INPUT, []),
        (ConnectionEvent.CLOSE, ["close"]),
        (ConnectionEvent.HALF_CLOSE, ["close"]),  # without closing bytes, so there is nothing to wait for
        (ConnectionEvent.SHUT_DOWN, []),
        (ConnectionEvent.DISCONNECT, ["abort"]),
        (ConnectionEvent.ABORT, ["abort"]),
        (ConnectionEvent.LOSE, []),
    ],
)
def test_a_connection_that_closes_gives_no_other_reason(event: ConnectionEvent, calls: list[str]) -> None:
    connection, made, transport = in_state(CLOSING)
    METHODS[event](connection)
    assert connection.state is (CLOSED if event is ConnectionEvent.LOSE else CLOSING)
    assert transport.ends() == calls
    assert not transport.writelines.called
    assert not made.leave.called
    assert connection.close_reason == ("left", "")
    assert not +made.counters.closed


@pytest.mark.parametrize("event", [event for event in METHODS if (CLOSED, event) not in ERRORS])
def test_nothing_happens_to_a_closed_connection(event: ConnectionEvent) -> None:
    connection, made, transport = in_state(CLOSED)
    METHODS[event](connection)
    assert connection.state is CLOSED
    assert not transport.ends()
    assert not made.leave.called
    assert not made.closed.called


@pytest.mark.parametrize(("state", "event"), sorted(ERRORS, key=str))
def test_events_that_cannot_happen(state: ConnectionState, event: ConnectionEvent) -> None:
    connection, _, _ = in_state(state)
    with pytest.raises(KeyError):
        connection._apply(event)


def test_a_connection_without_a_slot_is_rejected() -> None:
    made, transport = listener(accepts=False), Transport()
    connection = connect(made, transport)
    assert connection.state is CLOSING
    assert transport.ends() == ["abort"]
    assert not made.leave.called


def test_input_ends_and_resumes() -> None:
    connection, _, transport = in_state(OPEN)
    connection.end_input()
    connection.end_input()
    assert connection.input_ended
    connection.resume_input()
    assert connection.state is OPEN
    assert not transport.ends()


def test_only_the_first_reason_counts() -> None:
    connection, made, transport = in_state(OPEN)
    connection.disconnect("stalled", "received nothing")
    connection.disconnect("slow", "too slow")
    connection.fail(PeerError("wrong"))
    assert connection.close_reason == ("stalled", "received nothing")
    assert made.counters.closed == {"stalled": 1}
    assert transport.ends()[0] == "abort"


def test_closing_bytes_that_exceed_the_queue_disconnect_the_peer() -> None:
    made, transport = listener(), Transport()
    made.queue_bytes = 1
    transport.get_write_buffer_size = lambda: 1  # type: ignore[method-assign]
    connection = connect(made, transport)
    connection.fail(PeerError("wrong"))
    assert connection.close_reason[0] == "slow"
    assert made.counters.closed == {"slow": 1}
    assert made.leave.call_count == 1
    assert transport.ends() == ["abort"]
