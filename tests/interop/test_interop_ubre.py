"""The first UBRE library, from npm, as a client of the broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.node import UbreClient
from kit.room import Room

pytestmark = pytest.mark.interop


@pytest.fixture
def url(broker: Broker) -> str:
    return url_of(broker)


def url_of(broker: Broker) -> str:
    return f"ws://127.0.0.1:{broker.ports['http']}/ubre"


# -- pub and sub -----------------------------------------------------------------------------------------


def test_it_subscribes_and_receives_from_other_dialects(room: Room, url: str) -> None:
    with UbreClient(url) as client:
        client.send_command(subscribe="news")
        client.flush()
        room.send_as_controller(room.controller(), "news für alle\nelsewhere nothing\n".encode())
        room.simplest(pub("news", b"\xff\x00") + pub("news/more", b"not asked for") + pub("news"))
        client.expect_event(topic="news", body="für alle")
        client.expect_event(topic="news", body={"$base64": "/wA="})
        client.expect_event(topic="news", body="")


def test_it_unsubscribes(room: Room, url: str) -> None:
    with UbreClient(url) as client:
        client.send_command(subscribe="news")
        client.send_command(subscribe="sports")
        client.send_command(unsubscribe="news")
        client.flush()
        room.simplest(pub("news", b"no more") + pub("sports", b"still"))
        client.expect_event(topic="sports", body="still")


def test_it_publishes_topics_that_the_broker_subscribes_to(room: Room, url: str) -> None:
    """The library publishes only what its peer subscribed to: the query makes the broker subscribe."""
    fanout = room.client(b"unsubscribe all\nsubscribe orders\nsubscribe chat\n")
    simplest = room.simplest(b"sub orders\nsub chat\n")
    with UbreClient(f"{url}?publishes=orders,chat") as client:
        client.expect_event(wanted="orders")
        client.expect_event(wanted="chat")
        client.send_command(publish="orders", body={"number": 7, "for": "Zoë"})
        client.send_command(publish="unwanted", body="stays at home")
        client.send_command(publish="chat", body="hello, world")
        client.send_command(publish="chat")
        fanout.expect('orders!{"number":7,"for":"Zoë"}\nchat!hello, world\nchat!\n'.encode())
        simplest.expect(pub("orders", '{"number":7,"for":"Zoë"}'.encode()))
        simplest.expect(pub("chat", b"hello, world") + pub("chat"))


BODIES = ["text", "", 7, 0.5, True, None, [], {"deep": [{"er": "ü"}]}, "x" * 100_000]


def test_a_body_is_the_same_at_the_other_end(url: str) -> None:
    with UbreClient(f"{url}?publishes=bodies") as one, UbreClient(url) as two:
        two.send_command(subscribe="bodies")
        two.flush()
        one.expect_event(wanted="bodies")
        for body in BODIES:
            one.send_command(publish="bodies", body=body)
            two.expect_event(topic="bodies", body=body)


def test_it_receives_its_own_messages(url: str) -> None:
    with UbreClient(f"{url}?publishes=echo") as client:
        client.expect_event(wanted="echo")
        client.send_command(subscribe="echo")
        client.send_command(publish="echo", body="hello, me")
        client.expect_event(topic="echo", body="hello, me")


# -- requests that another client serves -----------------------------------------------------------------


@contextmanager
def offer(url: str, route: str) -> Iterator[UbreClient]:
    """A client that serves this route, after its offer is sent."""
    with UbreClient(url) as server:
        server.send_command(handle=route)
        server.send_command(subscribe=route, body={"serve": True})
        server.flush()
        yield server


def test_another_client_responds(url: str) -> None:
    with offer(url, "double") as server, UbreClient(url) as client:
        for body in ({"x": 1}, "text", [None]):
            client.send_command(request="double", body=body)
            server.expect_event(requested="double", body=body)
            client.expect_event(route="double", success=body)
        client.send_command(request="double")
        server.expect_event(requested="double")
        client.expect_event(route="double")


def test_another_client_fails(url: str) -> None:
    with offer(url, "risky") as server, UbreClient(url) as client:
        client.send_command(request="risky", body={"fail": {"reason": "not today"}})
        server.expect_event(requested="risky", body={"fail": {"reason": "not today"}})
        client.expect_event(route="risky", fail={"reason": "not today"})


def test_ids_of_any_kind(url: str) -> None:
    """The library finds its promise by the id it sent: a 7 that came back as "7" would never be found."""
    with offer(url, "echo"), UbreClient(url) as client:
        for number in (7, "7", "an id with spaces", 0.5):
            client.send_command(request="echo", body=number, id=number)
            client.expect_event(route="echo", success=number)


def test_two_clients_share_the_work(url: str) -> None:
    with offer(url, "work") as one, offer(url, "work") as two, UbreClient(url) as client:
        for number in range(4):
            client.send_command(request="work", body=number)
            client.expect_event(route="work", success=number)
        requested = [[server.read_event()["body"] for _ in range(2)] for server in (one, two)]
        assert sorted(requested) == [[0, 2], [1, 3]]


def test_the_serving_client_disconnects(url: str) -> None:
    with offer(url, "slow") as server, UbreClient(url) as client:
        client.send_command(request="slow", body={"never": True})
        server.expect_event(requested="slow", body={"never": True})
        server.process.send_signal(signal.SIGKILL)
        client.expect_event(route="slow", fail="Gone")
        client.send_command(request="slow")
        client.expect_event(route="slow", fail="NotFound")


def test_a_route_without_a_server(url: str) -> None:
    with UbreClient(url) as client:
        client.send_command(subscribe="just/listening")
        client.send_command(request="just/listening", body=1)
        client.expect_event(route="just/listening", fail="NotFound")


def test_no_response_in_time() -> None:
    with (
        Broker("--set=ubre.request_seconds=0.1", listen=("http",)) as broker,
        offer(url_of(broker), "slow") as server,
        UbreClient(url_of(broker)) as client,
    ):
        client.send_command(request="slow", body={"never": True})
        server.expect_event(requested="slow", body={"never": True})
        client.expect_event(route="slow", fail="Timeout")


# -- requests that the broker serves ---------------------------------------------------------------------


def test_the_broker_publishes_for_it(room: Room, url: str) -> None:
    subscriber = room.simplest(b"sub by/request\n")
    with UbreClient(url) as client:
        for sequence in range(2):
            client.send_command(request="polycast/publish", body={"topic": "by/request", "body": {"n": sequence}})
            assert client.read_event()["success"]["sequence"] == sequence
            subscriber.expect(pub("by/request", b'{"n":%d}' % sequence))


@pytest.mark.parametrize("route", ["polycast/topics", "polycast/connections", "polycast/stats"])
def test_the_broker_describes_itself(room: Room, url: str, route: str) -> None:
    room.simplest(pub("seen/before", b"x"))
    with UbreClient(url) as client:
        client.send_command(request=route)
        event = client.read_event()
        assert event["route"] == route
        assert event["success"]


def test_the_broker_has_no_such_route(url: str) -> None:
    with UbreClient(url) as client:
        client.send_command(request="polycast/nonsense")
        client.expect_event(route="polycast/nonsense", fail="NotFound")


# -- the end ---------------------------------------------------------------------------------------------


def test_the_broker_closes() -> None:
    with Broker(listen=("http",)) as broker, UbreClient(url_of(broker)) as client:
        client.flush()
        broker.stop()
        client.expect_event(closed=1001)
