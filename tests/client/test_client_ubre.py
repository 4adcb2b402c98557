"""Requests, served routes and formats."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from client.scripted import Scripted, read_to_end
from client.shells import KINDS, Shell, place, take, take_plain
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from kit.wire import GUARD_SECONDS
from polycast.client import NO_BODY, Handler, Response, connect, from_body, to_body
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Body, Exact, Format, Message, StartPosition

VALUES = ["text", "", 21, -1.5, None, True, [1, {"a": "größer"}], {"deep": [[]]}]


def dial(kind: str, broker: Broker) -> Shell:
    return KINDS[kind]("ubre", place(broker, "ubre"))


@contextmanager
def serving(broker: Broker, route: str, handler: Handler) -> Iterator[None]:
    """A client that serves a route, until the block ends."""
    ready = threading.Event()

    def serve() -> None:
        with connect("ubre", place(broker, "ubre")) as client:
            client.subscribe([Exact(f"end {route}")])
            client.serve(route, handler)
            ready.set()
            next(client.messages())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(GUARD_SECONDS)
    try:
        yield
    finally:
        with connect("ubre", place(broker, "ubre")) as client:
            client.publish([Message(f"end {route}", b"")])
        thread.join(GUARD_SECONDS)


# -- requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES)
def test_a_request_goes_to_the_serving_client(broker: Broker, kind: str, value: object) -> None:
    with serving(broker, "echo", lambda body: body), dial(kind, broker) as client:
        response = client.request("echo", to_body(value))
    assert response.success
    assert response.value == value


def test_a_request_without_a_body(broker: Broker, kind: str) -> None:
    with serving(broker, "echo", lambda body: body), dial(kind, broker) as client:
        assert client.request("echo") == Response(True, NO_BODY)


def test_responses_match_their_requests(broker: Broker, kind: str) -> None:
    with serving(broker, "square", lambda body: to_body(from_body(body) ** 2)), dial(kind, broker) as client:
        assert [client.request("square", to_body(n)).value for n in range(10)] == [n * n for n in range(10)]


def test_an_exception_of_a_handler_is_a_failure(
    broker: Broker, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(body: Body) -> Body:
        raise ValueError("not today")

    with serving(broker, "refuse", refuse), dial(kind, broker) as client:
        response = client.request("refuse")
        assert (response.success, response.value) == (False, "not today")
        assert client.request("refuse").success is False
    assert "a request for refuse failed" in caplog.text


RESULTS: dict[str, Any] = {
    "None": None, "text": "text", "a tuple": (True, Body()),
    "a body of text": Body(cast(Any, "text"), Format.TEXT),
    "no format": Body(b"{}", cast(Any, "json")), "a response without a body": Response(True, cast(Any, "text")),
}  # fmt: skip


@pytest.mark.parametrize("result", RESULTS)
def test_an_invalid_result_of_a_handler_is_a_failure(
    broker: Broker, kind: str, result: str, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter([RESULTS[result], to_body("fine")])
    with serving(broker, "confused", lambda body: next(results)), dial(kind, broker) as client:
        response = client.request("confused")
        assert not response.success
        assert "Body" in response.value
        assert client.request("confused").value == "fine"
    assert "a request for confused failed" in caplog.text


def test_a_handler_may_return_a_failure(broker: Broker, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    no = Response(False, to_body({"reason": "too late"}))
    with serving(broker, "no", lambda body: no), dial(kind, broker) as client:
        assert client.request("no") == no
    assert caplog.text == ""


def test_the_message_of_an_exception_need_not_be_utf8(
    broker: Broker, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "polycast.client")  # a report of what was logged must be UTF-8

    def refuse(body: Body) -> Body:
        raise ValueError("\udcff")

    with serving(broker, "odd", refuse), dial(kind, broker) as client:
        assert client.request("odd") == Response(False, to_body("?"))


async def respond_later(body: Body) -> Body:
    return body


def test_handlers_that_cannot_be(broker: Broker, kind: str) -> None:
    with dial(kind, broker) as client, pytest.raises(UsageError, match="no function"):
        client.serve("route", cast(Any, None))
    with dial("blocking", broker) as client, pytest.raises(UsageError, match="async") as caught:
        client.serve("route", respond_later)
    assert "connect_async" in caught.value.hint


def test_a_handler_that_turns_out_to_be_async_is_a_failure(broker: Broker, kind: str) -> None:
    with serving(broker, "later", lambda body: cast(Any, respond_later(body))), dial(kind, broker) as client:
        response = client.request("later")
    assert (response.success, response.value) == (False, "coroutine is not a Body")


def test_a_request_with_something_else_than_a_body(broker: Broker, kind: str) -> None:
    with dial(kind, broker) as client, pytest.raises(UsageError, match="str is not a Body") as caught:
        client.request("polycast/topics", cast(Any, "text"))
    assert "to_body" in caught.value.hint


def test_a_route_without_a_server(broker: Broker, kind: str) -> None:
    with dial(kind, broker) as client:
        assert client.request("nowhere") == Response(False, Body(b"NotFound", Format.TEXT))


def test_a_client_can_serve_itself_while_it_waits(broker: Broker, kind: str) -> None:
    with dial(kind, broker) as client:
        client.serve("own", lambda body: to_body("mine"))
        assert client.request("own").value == "mine"


def test_the_broker_serves_routes(broker: Broker, room: Room, kind: str) -> None:
    subscriber = room.simplest(b"sub by.request\n")
    with dial(kind, broker) as client:
        response = client.request("polycast/publish", to_body({"topic": "by.request", "body": "x"}))
    assert response.success
    assert "sequence" in response.value
    subscriber.expect(pub("by.request", b"x"))


def test_no_response_in_time(kind: str) -> None:
    waiting = threading.Event()

    def slow(body: Body) -> Body:
        waiting.wait(GUARD_SECONDS)
        return body

    with Broker(listen=("http",)) as broker, serving(broker, "slow", slow), dial(kind, broker) as client:
        with pytest.raises(RemoteError, match=r"no reply within 0\.1 s"):
            client.request("slow", timeout=0.1)
        waiting.set()
        assert client.request("slow", to_body("another")).value == "another"


# -- messages --------------------------------------------------------------------------------------------


FORMATS = [
    Message("x", b"plain", Format.TEXT),
    Message("x", b"", Format.TEXT),
    Message("x", b'{"a":[1,2.50]}', Format.JSON),
    Message("x", b"", Format.NONE),
]


def test_formats_survive(broker: Broker, kind: str) -> None:
    with dial(kind, broker) as subscriber, dial(kind, broker) as publisher:
        subscriber.subscribe([Exact("x")])
        publisher.publish(FORMATS)
        assert take_plain(subscriber, len(FORMATS)) == FORMATS


@pytest.mark.parametrize(
    "message",
    [
        Message("x", b"{open", Format.JSON),
        Message("x", b'"\xff"', Format.JSON),
        Message("x", b"\xff", Format.TEXT),
        Message("x", b"y", Format.NONE),
    ],
)
def test_a_payload_that_is_not_of_its_format(broker: Broker, kind: str, message: Message) -> None:
    with dial(kind, broker) as client, pytest.raises(UsageError, match=f"of the format {message.format}"):
        client.publish([message])


def test_bytes_are_bytes_elsewhere_and_text_where_they_can_be(broker: Broker, room: Room, kind: str) -> None:
    other = room.simplest(b"sub raw\n")
    with dial(kind, broker) as client:
        client.subscribe([Exact("raw")])
        client.publish([Message("raw", b"\xff\0"), Message("raw", b"hi"), Message("raw", b"")])
        assert take_plain(client, 3) == [
            Message("raw", b"\xff\0"),
            Message("raw", b"hi", Format.TEXT),
            Message("raw", b"", Format.TEXT),
        ]
    other.expect(pub("raw", b"\xff\0") + pub("raw", b"hi") + pub("raw", b""))


def test_a_publisher_reads_its_own_messages(broker: Broker, kind: str) -> None:
    """All of it comes back while it is still publishing."""
    count, payload = 1000, b"z" * 10_000
    with dial(kind, broker) as client:
        client.subscribe([Exact("self")])
        client.publish(Message("self", payload) for _ in range(count))
        assert len(take(client, count)) == count


def test_a_message_that_is_too_large_is_refused_with_the_reason(kind: str) -> None:
    with (
        Broker("--set=limits.payload_bytes=1000", listen=("http",)) as broker,
        pytest.raises(RefusedError, match="exceeds the limit of 1,000") as caught,
        dial(kind, broker) as client,
    ):
        client.publish([Message("large", b"x" * 2000)])
    assert caught.value.code == 1009


# -- addresses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["ws://{}/ubre", "ws://{}", "ws://{}/", "tcp://{}", "{}"])
def test_addresses(broker: Broker, kind: str, shape: str) -> None:
    with KINDS[kind]("ubre", shape.format(f"127.0.0.1:{broker.ports['http']}")) as client:
        assert client.request("polycast/topics").success


def test_another_path_is_no_way_in(broker: Broker, kind: str) -> None:
    with pytest.raises(RemoteError, match=r"no upgrade to WebSocket: the status is 4\d\d") as caught:
        KINDS[kind]("ubre", f"ws://127.0.0.1:{broker.ports['http']}/elsewhere")
    assert "is that the address for ubre" in caught.value.hint


def test_a_response_that_is_not_http(kind: str) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"220 mail\r\n\r\n")
        read_to_end(connection)

    with Scripted(greet) as at, pytest.raises(RemoteError, match="not HTTP"):
        KINDS[kind]("ubre", at)


def test_messages_have_their_position(broker: Broker, kind: str) -> None:
    topic = f"placed ubre {kind}"
    output = [(topic, b"\xff", Format.BYTES), (topic, b"null", Format.JSON), (topic, b"", Format.NONE)]
    with KINDS[kind]("ubre", place(broker, "ubre")) as client:
        client.subscribe([Exact(topic)])
        client.publish(Message(*each) for each in output)
        received = take(client, 3)
    assert [each[:3] for each in received] == output
    first = received[0].offset
    assert first is not None
    assert [each[3:5] for each in received] == [(0, first), (1, first + 1), (2, first + 2)]
    with KINDS[kind]("hermod", place(broker, "hermod")) as again:
        again.subscribe([Exact(topic)], StartPosition(offset=first))
        assert [each[3:] for each in take(again, 3)] == [each[3:] for each in received]
