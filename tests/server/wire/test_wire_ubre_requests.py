"""Requests over `ubre`, from requester to responder and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kit.broker import Broker
from kit.room import Room
from kit.ubre import STREAMING, UbrePeer, envelope, frame, line, text
from kit.websocket import WebSocket

SERVE = {"serve": True}
SERVE_BINARY = b'{"serve":true}'


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(listen=("http", "ubre", "simplest", "fanout.client", "fanout.controller")) as running:
        yield running


@pytest.fixture
def requester(broker: Broker) -> Iterator[UbrePeer]:
    with UbrePeer(broker.ports["ubre"]) as peer:
        yield peer


@pytest.fixture
def server(broker: Broker) -> Iterator[UbrePeer]:
    with UbrePeer(broker.ports["ubre"]) as peer:
        peer.send_message(subscribe="add", body=SERVE)
        peer.flush()
        yield peer


def number_of(server: UbrePeer, route: str = "add", **body: Any) -> int:
    """The id that the broker gives to the next request."""
    head, tail = line(request=route, id=0, **body).split(b"0", 1)
    server.expect(head)
    digits = server.read_until(tail).removesuffix(tail)
    return int(digits)


# -- request and response --------------------------------------------------------------------------------


def test_success(requester: UbrePeer, server: UbrePeer) -> None:
    requester.send_message(request="add", id=1, body=[2, 3])
    number = number_of(server, body=[2, 3])
    server.send_message(success=number, body=5)
    requester.expect_message(success=1, body=5)
    requester.flush()


def test_fail(requester: UbrePeer, server: UbrePeer) -> None:
    requester.send_message(request="add", id=1)
    server.send_message(fail=number_of(server), body={"message": "no"})
    requester.expect_message(fail=1, body={"message": "no"})


def test_responses_without_a_body(requester: UbrePeer, server: UbrePeer) -> None:
    for word in ("success", "fail"):
        requester.send_message(request="add", id=1)
        server.send_message(**{word: number_of(server)})
        requester.expect_message(**{word: 1})


@pytest.mark.parametrize("id_", ["7", '"7"', "7.0", "null", "[1, 2]", '{"a": 1}', '"\\u00e9"', '"é"'])
def test_the_id_comes_back_as_it_was(requester: UbrePeer, server: UbrePeer, id_: str) -> None:
    requester.send(f'{{"request":"add","id":{id_}}}\n'.encode())
    server.send_message(success=number_of(server))
    requester.expect(f'{{"success":{id_}}}\n'.encode())
    requester.send(f'{{"request":{id_},"body":{{"route":"add","body":1}}}}\n'.encode())
    server.send_message(success=number_of(server, body=1), body=2)
    requester.expect(f'{{"success":{id_},"body":2}}\n'.encode())


def test_requesters_with_the_same_ids_get_their_own_responses(
    broker: Broker, server: UbrePeer, requester: UbrePeer
) -> None:
    with WebSocket(broker.ports["http"]) as other:
        requester.send_message(request="add", id=1, body="of one")
        one = number_of(server, body="of one")
        other.send_text(text(request="add", id=1, body="of two"))
        two = number_of(server, body="of two")
        server.send_message(success=two, body="for two")
        server.send_message(success=one, body="for one")
        other.expect_text(text(success=1, body="for two"))
        requester.expect_message(success=1, body="for one")


def test_over_websocket(broker: Broker, requester: UbrePeer) -> None:
    with WebSocket(broker.ports["http"]) as server:
        server.send_text(text(subscribe="over/ws", body=SERVE))
        server.flush()
        requester.send_message(request="over/ws", id="x", body={"a": 1})
        requested = server.read_frame().payload.decode()
        number = int(requested.split(",")[1].removeprefix('"id":'))
        assert requested == text(request="over/ws", id=number, body={"a": 1})
        server.send_text(text(success=number))
        requester.expect_message(success="x")


def test_a_requester_that_serves_the_route_itself(server: UbrePeer) -> None:
    server.send_message(request="add", id="mine")
    server.send_message(success=number_of(server), body=1)
    server.expect_message(success="mine", body=1)


def test_a_responder_gets_messages_too(requester: UbrePeer, server: UbrePeer) -> None:
    requester.send_message(publish="add", body="news")
    server.expect_message(publish="add", body="news")


def test_a_request_is_no_publication(room: Room, requester: UbrePeer, server: UbrePeer) -> None:
    simplest = room.simplest(b"sub add\n")
    requester.send_message(request="add", id=1)
    server.send_message(success=number_of(server))
    requester.expect_message(success=1)
    room.expect_quiet(simplest)


# -- binary ----------------------------------------------------------------------------------------------


def test_a_binary_request_to_a_json_responder(requester: UbrePeer, server: UbrePeer) -> None:
    for body, response in [('"text"', "text"), ('{"a":[1]}', {"a": [1]})]:
        requester.send(frame("R", b"\xff\0", envelope("add", body=[2, 3])))
        server.send_message(success=number_of(server, body=[2, 3]), body=response)
        requester.expect(frame("s", b"\xff\0", body.encode()))
    requester.send(frame("R", "", envelope("add")))
    server.send_message(fail=number_of(server))
    requester.expect(frame("f", ""))


def test_a_json_request_to_a_binary_responder(broker: Broker, requester: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as server:
        server.send(frame("S", "bin", SERVE_BINARY))
        server.flush()
        for body, response in [(b"\xff", {"$base64": "/w=="}), (b"text", "text"), (b'{"a": 1}', '{"a": 1}')]:
            requester.send_message(request="bin", id=1, body="é")
            number = binary_number_of(server, body="é")
            server.send(frame("s", number, body))
            requester.expect_message(success=1, body=response)
        requester.send_message(request="bin", id=2)
        server.send(frame("f", binary_number_of(server)))
        requester.expect_message(fail=2)


def test_binary_all_the_way(broker: Broker) -> None:
    with WebSocket(broker.ports["http"]) as requester, UbrePeer(broker.ports["ubre"]) as server:
        server.send(frame("S", "bin/all", SERVE_BINARY))
        server.flush()
        requester.send_binary(frame("R", "me", envelope("bin/all", body=None)))
        server.send(frame("s", binary_number_of(server, "bin/all", body=None), b"\xff\0"))
        requester.expect_binary(frame("s", "me", b"\xff\0"))
        requester.send_binary(frame("R", "me", envelope("bin/all"), STREAMING))
        server.send(frame("f", binary_number_of(server, "bin/all"), b"no"))
        requester.expect_binary(frame("f", "me", b"no"))


def binary_number_of(server: UbrePeer, route: str = "bin", **body: Any) -> str:
    requested = envelope(route, **body)
    head = server.read_until(requested).removesuffix(requested)
    number = head[7:].decode()
    assert head + requested == frame("R", number, requested)
    return str(int(number))


# -- responders ------------------------------------------------------------------------------------------


def test_no_responder(requester: UbrePeer, server: UbrePeer) -> None:
    server.send_message(subscribe="heard")
    server.flush()
    for route in ("nobody", "heard", "ad", "addd", "ADD", ""):
        requester.send_message(request=route, id=1)
        requester.expect_message(fail=1, body="NotFound")
    requester.send(frame("R", "2", envelope("nobody")))
    requester.expect(frame("f", "2", b'"NotFound"'))
    server.flush()


def test_a_responder_stops_serving(requester: UbrePeer, server: UbrePeer) -> None:
    server.send_message(unsubscribe="add")
    server.flush()
    requester.send_message(request="add", id=1)
    requester.expect_message(fail=1, body="NotFound")


def test_responders_take_turns(broker: Broker, requester: UbrePeer, server: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as second:
        second.send_message(subscribe="add", body=SERVE)
        second.flush()
        for turn in range(3):
            for responder in (server, second):
                requester.send_message(request="add", id=turn)
                responder.send_message(success=number_of(responder))
                requester.expect_message(success=turn)


def test_the_responder_is_gone(broker: Broker, requester: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as server:
        server.send_message(subscribe="brief", body=SERVE)
        server.flush()
        requester.send_message(request="brief", id=1)
        requester.send(frame("R", "2", envelope("brief")))
        number_of(server, "brief")
        number_of(server, "brief")
    requester.expect_message(fail=1, body="Gone")
    requester.expect(frame("f", "2", b'"Gone"'))
    requester.send_message(request="brief", id=3)
    requester.expect_message(fail=3, body="NotFound")


def test_the_requester_is_gone(broker: Broker, server: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as requester:
        requester.send_message(request="add", id=1)
        number = number_of(server)
    broker_forgets(server, number)


def broker_forgets(server: UbrePeer, number: int) -> None:
    """An unexpected response is ignored."""
    server.send_message(success=number, body="late")
    server.flush()


def test_only_the_chosen_responder_can_respond(broker: Broker, requester: UbrePeer, server: UbrePeer) -> None:
    requester.send_message(request="add", id=1)
    number = number_of(server)
    with UbrePeer(broker.ports["ubre"]) as stranger:
        stranger.send(line(success=number, body="wrong") + frame("s", str(number), b"wrong"))
        stranger.flush()
    server.send(line(success=str(number), body="wrong type") + line(success=number + 1, body="wrong number"))
    server.send_message(success=number, body="right")
    requester.expect_message(success=1, body="right")
    broker_forgets(server, number)
    requester.flush()


def test_no_response_in_time() -> None:
    with (
        Broker("--set=ubre.request_seconds=0.001", listen=("ubre", "http")) as broker,
        UbrePeer(broker.ports["ubre"]) as requester,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        requester.send_message(request="add", id="x")
        requester.expect_message(fail="x", body="Timeout")
        broker_forgets(server, number_of(server))
        requester.flush()


def test_a_half_closed_requester_gets_all_responses_that_are_sent_at_once() -> None:
    """The broker closes the connection after the last response."""
    with (
        Broker("--set=ubre.request_seconds=0.001", listen=("ubre", "http")) as broker,
        UbrePeer(broker.ports["ubre"]) as requester,
        UbrePeer(broker.ports["ubre"]) as other,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        requester.send(line(request="add", id=1) + line(request="add", id=2))
        requester.shut()
        assert requester.expect_closed() == line(fail=1, body="Timeout") + line(fail=2, body="Timeout")
        other.send_message(request="add", id=3)
        other.expect_message(fail=3, body="Timeout")


def test_all_requesters_get_a_response_when_the_responder_leaves(broker: Broker, requester: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as server, UbrePeer(broker.ports["ubre"]) as other:
        server.send_message(subscribe="sub", body=SERVE)
        server.flush()
        requester.send(line(request="sub", id=1) + line(request="sub", id=2))
        requester.shut()
        for _ in range(2):
            number_of(server, "sub")
        other.send_message(request="sub", id=3)
        number_of(server, "sub")
        server.close()
        other.expect_message(fail=3, body="Gone")
        assert requester.expect_closed() == line(fail=1, body="Gone") + line(fail=2, body="Gone")


def test_too_many_open_requests() -> None:
    with (
        Broker("--set=ubre.requests=4", listen=("ubre", "http")) as broker,
        UbrePeer(broker.ports["ubre"]) as requester,
        UbrePeer(broker.ports["ubre"]) as other,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        requester.send(line(request="add", id=1) + line(request="add", id=2))
        requester.expect_message(fail=2, body="Busy")
        number = number_of(server)
        other.send_message(request="add", id=3)
        server.send_message(success=number_of(server))
        other.expect_message(success=3)
        server.send_message(success=number)
        requester.expect_message(success=1)


# -- invalid requests ------------------------------------------------------------------------------------


def test_bad_requests(requester: UbrePeer) -> None:
    for message, response in [
        (line(request=5, id=7), line(fail=7, body="BadRequest")),
        (line(request=7), line(fail=7, body="BadRequest")),
        (line(request="7", body={"route": 5}), line(fail="7", body="BadRequest")),
        (line(request="7", body="add"), line(fail="7", body="BadRequest")),
        (frame("R", "7", b"add"), frame("f", "7", b'"BadRequest"')),
        (frame("R", "7"), frame("f", "7", b'"BadRequest"')),
    ]:
        requester.send(message)
        requester.expect(response)
    requester.flush()


# -- half-closed and closed connections -------------------------------------------------------------------


@pytest.mark.parametrize("output", [line(request="add", id=1), frame("R", "1", envelope("add"), STREAMING)])
def test_a_half_closed_requester_gets_the_response(requester: UbrePeer, server: UbrePeer, output: bytes) -> None:
    requester.send(output)
    requester.shut()
    server.send_message(success=number_of(server), body=5)
    response = requester.expect_closed()
    assert response in (line(success=1, body=5), frame("s", "1", b"5"))


def test_a_responder_with_bad_input_gets_no_more_requests(
    broker: Broker, requester: UbrePeer, server: UbrePeer
) -> None:
    """The broker has closed it, but its own side of the connection is still open."""
    with UbrePeer(broker.ports["ubre"]) as bad:
        bad.send_message(subscribe="add", body=SERVE)
        bad.flush()
        requester.send_message(request="add", id=1)
        requester.send_message(request="add", id=2)
        server.send_message(success=number_of(server), body="from the good one")
        requester.expect_message(success=1, body="from the good one")
        bad.send(b"c")
        requester.expect_message(fail=2, body="Gone")
        requester.send_message(request="add", id=3)
        server.send_message(success=number_of(server))
        requester.expect_message(success=3)


def test_a_broker_that_stops_leaves_no_request_open() -> None:
    with Broker(listen=("ubre",)) as broker, UbrePeer(broker.ports["ubre"]) as server:
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        with UbrePeer(broker.ports["ubre"]) as requester:
            requester.send_message(request="add", id=1)
            number_of(server)
            broker.stop()
            assert requester.expect_closed() == line(fail=1, body="Gone")
