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
def asker(broker: Broker) -> Iterator[UbrePeer]:
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


def test_success(asker: UbrePeer, server: UbrePeer) -> None:
    asker.send_message(request="add", id=1, body=[2, 3])
    number = number_of(server, body=[2, 3])
    server.send_message(success=number, body=5)
    asker.expect_message(success=1, body=5)
    asker.flush()


def test_fail(asker: UbrePeer, server: UbrePeer) -> None:
    asker.send_message(request="add", id=1)
    server.send_message(fail=number_of(server), body={"message": "no"})
    asker.expect_message(fail=1, body={"message": "no"})


def test_responses_without_a_body(asker: UbrePeer, server: UbrePeer) -> None:
    for word in ("success", "fail"):
        asker.send_message(request="add", id=1)
        server.send_message(**{word: number_of(server)})
        asker.expect_message(**{word: 1})


@pytest.mark.parametrize("id_", ["7", '"7"', "7.0", "null", "[1, 2]", '{"a": 1}', '"\\u00e9"', '"é"'])
def test_the_id_comes_back_as_it_was(asker: UbrePeer, server: UbrePeer, id_: str) -> None:
    asker.send(f'{{"request":"add","id":{id_}}}\n'.encode())
    server.send_message(success=number_of(server))
    asker.expect(f'{{"success":{id_}}}\n'.encode())
    asker.send(f'{{"request":{id_},"body":{{"route":"add","body":1}}}}\n'.encode())
    server.send_message(success=number_of(server, body=1), body=2)
    asker.expect(f'{{"success":{id_},"body":2}}\n'.encode())


def test_requesters_with_the_same_ids_get_their_own_responses(
    broker: Broker, server: UbrePeer, asker: UbrePeer
) -> None:
    with WebSocket(broker.ports["http"]) as other:
        asker.send_message(request="add", id=1, body="of one")
        one = number_of(server, body="of one")
        other.send_text(text(request="add", id=1, body="of two"))
        two = number_of(server, body="of two")
        server.send_message(success=two, body="for two")
        server.send_message(success=one, body="for one")
        other.expect_text(text(success=1, body="for two"))
        asker.expect_message(success=1, body="for one")


def test_over_websocket(broker: Broker, asker: UbrePeer) -> None:
    with WebSocket(broker.ports["http"]) as server:
        server.send_text(text(subscribe="over/ws", body=SERVE))
        server.flush()
        asker.send_message(request="over/ws", id="x", body={"a": 1})
        asked = server.read_frame().payload.decode()
        number = int(asked.split(",")[1].removeprefix('"id":'))
        assert asked == text(request="over/ws", id=number, body={"a": 1})
        server.send_text(text(success=number))
        asker.expect_message(success="x")


def test_a_requester_that_serves_the_route_itself(server: UbrePeer) -> None:
    server.send_message(request="add", id="mine")
    server.send_message(success=number_of(server), body=1)
    server.expect_message(success="mine", body=1)


def test_a_responder_gets_messages_too(asker: UbrePeer, server: UbrePeer) -> None:
    asker.send_message(publish="add", body="news")
    server.expect_message(publish="add", body="news")


def test_a_request_is_no_publication(room: Room, asker: UbrePeer, server: UbrePeer) -> None:
    simplest = room.simplest(b"sub add\n")
    asker.send_message(request="add", id=1)
    server.send_message(success=number_of(server))
    asker.expect_message(success=1)
    room.expect_quiet(simplest)


# -- binary ----------------------------------------------------------------------------------------------


def test_a_binary_request_to_a_json_responder(asker: UbrePeer, server: UbrePeer) -> None:
    for body, answer in [('"text"', "text"), ('{"a":[1]}', {"a": [1]})]:
        asker.send(frame("R", b"\xff\0", envelope("add", body=[2, 3])))
        server.send_message(success=number_of(server, body=[2, 3]), body=answer)
        asker.expect(frame("s", b"\xff\0", body.encode()))
    asker.send(frame("R", "", envelope("add")))
    server.send_message(fail=number_of(server))
    asker.expect(frame("f", ""))


def test_a_json_request_to_a_binary_responder(broker: Broker, asker: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as server:
        server.send(frame("S", "bin", SERVE_BINARY))
        server.flush()
        for body, answer in [(b"\xff", {"$base64": "/w=="}), (b"text", "text"), (b'{"a": 1}', '{"a": 1}')]:
            asker.send_message(request="bin", id=1, body="é")
            number = binary_number_of(server, body="é")
            server.send(frame("s", number, body))
            asker.expect_message(success=1, body=answer)
        asker.send_message(request="bin", id=2)
        server.send(frame("f", binary_number_of(server)))
        asker.expect_message(fail=2)


def test_binary_all_the_way(broker: Broker) -> None:
    with WebSocket(broker.ports["http"]) as asker, UbrePeer(broker.ports["ubre"]) as server:
        server.send(frame("S", "bin/all", SERVE_BINARY))
        server.flush()
        asker.send_binary(frame("R", "me", envelope("bin/all", body=None)))
        server.send(frame("s", binary_number_of(server, "bin/all", body=None), b"\xff\0"))
        asker.expect_binary(frame("s", "me", b"\xff\0"))
        asker.send_binary(frame("R", "me", envelope("bin/all"), STREAMING))
        server.send(frame("f", binary_number_of(server, "bin/all"), b"no"))
        asker.expect_binary(frame("f", "me", b"no"))


def binary_number_of(server: UbrePeer, route: str = "bin", **body: Any) -> str:
    asked = envelope(route, **body)
    head = server.read_until(asked).removesuffix(asked)
    number = head[7:].decode()
    assert head + asked == frame("R", number, asked)
    return str(int(number))


# -- responders ------------------------------------------------------------------------------------------


def test_no_responder(asker: UbrePeer, server: UbrePeer) -> None:
    server.send_message(subscribe="heard")
    server.flush()
    for route in ("nobody", "heard", "ad", "addd", "ADD", ""):
        asker.send_message(request=route, id=1)
        asker.expect_message(fail=1, body="NotFound")
    asker.send(frame("R", "2", envelope("nobody")))
    asker.expect(frame("f", "2", b'"NotFound"'))
    server.flush()


def test_a_responder_stops_serving(asker: UbrePeer, server: UbrePeer) -> None:
    server.send_message(unsubscribe="add")
    server.flush()
    asker.send_message(request="add", id=1)
    asker.expect_message(fail=1, body="NotFound")


def test_responders_take_turns(broker: Broker, asker: UbrePeer, server: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as second:
        second.send_message(subscribe="add", body=SERVE)
        second.flush()
        for turn in range(3):
            for responder in (server, second):
                asker.send_message(request="add", id=turn)
                responder.send_message(success=number_of(responder))
                asker.expect_message(success=turn)


def test_the_responder_is_gone(broker: Broker, asker: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as server:
        server.send_message(subscribe="brief", body=SERVE)
        server.flush()
        asker.send_message(request="brief", id=1)
        asker.send(frame("R", "2", envelope("brief")))
        number_of(server, "brief")
        number_of(server, "brief")
    asker.expect_message(fail=1, body="Gone")
    asker.expect(frame("f", "2", b'"Gone"'))
    asker.send_message(request="brief", id=3)
    asker.expect_message(fail=3, body="NotFound")


def test_the_requester_is_gone(broker: Broker, server: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as asker:
        asker.send_message(request="add", id=1)
        number = number_of(server)
    broker_forgets(server, number)


def broker_forgets(server: UbrePeer, number: int) -> None:
    """An unexpected response is ignored."""
    server.send_message(success=number, body="late")
    server.flush()


def test_only_the_chosen_responder_can_respond(broker: Broker, asker: UbrePeer, server: UbrePeer) -> None:
    asker.send_message(request="add", id=1)
    number = number_of(server)
    with UbrePeer(broker.ports["ubre"]) as stranger:
        stranger.send(line(success=number, body="wrong") + frame("s", str(number), b"wrong"))
        stranger.flush()
    server.send(line(success=str(number), body="wrong type") + line(success=number + 1, body="wrong number"))
    server.send_message(success=number, body="right")
    asker.expect_message(success=1, body="right")
    broker_forgets(server, number)
    asker.flush()


def test_no_response_in_time() -> None:
    with (
        Broker("--set=ubre.request_seconds=0.001", listen=("ubre", "http")) as broker,
        UbrePeer(broker.ports["ubre"]) as asker,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        asker.send_message(request="add", id="x")
        asker.expect_message(fail="x", body="Timeout")
        broker_forgets(server, number_of(server))
        asker.flush()


def test_a_half_closed_requester_gets_all_responses_that_are_sent_at_once() -> None:
    """The broker closes the connection after the last response."""
    with (
        Broker("--set=ubre.request_seconds=0.001", listen=("ubre", "http")) as broker,
        UbrePeer(broker.ports["ubre"]) as asker,
        UbrePeer(broker.ports["ubre"]) as other,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        asker.send(line(request="add", id=1) + line(request="add", id=2))
        asker.shut()
        assert asker.expect_closed() == line(fail=1, body="Timeout") + line(fail=2, body="Timeout")
        other.send_message(request="add", id=3)
        other.expect_message(fail=3, body="Timeout")


def test_all_requesters_get_a_response_when_the_responder_leaves(broker: Broker, asker: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as server, UbrePeer(broker.ports["ubre"]) as other:
        server.send_message(subscribe="sub", body=SERVE)
        server.flush()
        asker.send(line(request="sub", id=1) + line(request="sub", id=2))
        asker.shut()
        for _ in range(2):
            number_of(server, "sub")
        other.send_message(request="sub", id=3)
        number_of(server, "sub")
        server.close()
        other.expect_message(fail=3, body="Gone")
        assert asker.expect_closed() == line(fail=1, body="Gone") + line(fail=2, body="Gone")


def test_too_many_open_requests() -> None:
    with (
        Broker("--set=ubre.requests=4", listen=("ubre", "http")) as broker,
        UbrePeer(broker.ports["ubre"]) as asker,
        UbrePeer(broker.ports["ubre"]) as other,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        asker.send(line(request="add", id=1) + line(request="add", id=2))
        asker.expect_message(fail=2, body="Busy")
        number = number_of(server)
        other.send_message(request="add", id=3)
        server.send_message(success=number_of(server))
        other.expect_message(success=3)
        server.send_message(success=number)
        asker.expect_message(success=1)


# -- invalid requests ------------------------------------------------------------------------------------


def test_bad_requests(asker: UbrePeer) -> None:
    for message, answer in [
        (line(request=5, id=7), line(fail=7, body="BadRequest")),
        (line(request=7), line(fail=7, body="BadRequest")),
        (line(request="7", body={"route": 5}), line(fail="7", body="BadRequest")),
        (line(request="7", body="add"), line(fail="7", body="BadRequest")),
        (frame("R", "7", b"add"), frame("f", "7", b'"BadRequest"')),
        (frame("R", "7"), frame("f", "7", b'"BadRequest"')),
    ]:
        asker.send(message)
        asker.expect(answer)
    asker.flush()


# -- half-closed and closed connections -------------------------------------------------------------------


@pytest.mark.parametrize("output", [line(request="add", id=1), frame("R", "1", envelope("add"), STREAMING)])
def test_a_half_closed_requester_gets_the_response(asker: UbrePeer, server: UbrePeer, output: bytes) -> None:
    asker.send(output)
    asker.shut()
    server.send_message(success=number_of(server), body=5)
    answer = asker.expect_closed()
    assert answer in (line(success=1, body=5), frame("s", "1", b"5"))


def test_a_responder_with_bad_input_gets_no_more_requests(
    broker: Broker, asker: UbrePeer, server: UbrePeer
) -> None:
    """The broker has closed it, but its own side of the connection is still open."""
    with UbrePeer(broker.ports["ubre"]) as bad:
        bad.send_message(subscribe="add", body=SERVE)
        bad.flush()
        asker.send_message(request="add", id=1)
        asker.send_message(request="add", id=2)
        server.send_message(success=number_of(server), body="from the good one")
        asker.expect_message(success=1, body="from the good one")
        bad.send(b"c")
        asker.expect_message(fail=2, body="Gone")
        asker.send_message(request="add", id=3)
        server.send_message(success=number_of(server))
        asker.expect_message(success=3)


def test_a_broker_that_stops_leaves_no_request_open() -> None:
    with Broker(listen=("ubre",)) as broker, UbrePeer(broker.ports["ubre"]) as server:
        server.send_message(subscribe="add", body=SERVE)
        server.flush()
        with UbrePeer(broker.ports["ubre"]) as asker:
            asker.send_message(request="add", id=1)
            number_of(server)
            broker.stop()
            assert asker.expect_closed() == line(fail=1, body="Gone")
