"""The rights to serve a route and to query topics: separate from subscribe and admin, revoked at once."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from access.gate import gated, write_config
from kit.broker import Broker
from kit.ubre import UbrePeer, line
from kit.wire import wait_for
from polycast.server.dispatch.request_handler import QUERIES_AT_MOST, REQUEST_BYTES

SERVE = {"serve": True}
GUEST = ("guest may publish >",)
SQL = "spark/sql"


def peer_of(broker: Broker) -> UbrePeer:
    return UbrePeer(broker.ports["ubre"])


def guests(folder: Path, *rules: str, more: str = "") -> Broker:
    return gated(folder, *rules, listen=("ubre", "http"), more=more)


def flush(peer: UbrePeer) -> None:
    """The broker has handled all that the peer sent."""
    assert peer.refusal("nobody/serves/this", None) in ("Forbidden", "NotFound")


def next_request(peer: UbrePeer) -> dict[str, Any]:
    requested: dict[str, Any] = json.loads(peer.read_until(b"\n"))
    return requested


# -- serve -----------------------------------------------------------------------------------------------


def test_subscribe_does_not_include_serve(tmp_path: Path) -> None:
    with guests(tmp_path, *GUEST, "guest may subscribe >") as broker:
        with peer_of(broker) as peer:
            peer.send_message(subscribe="pay", body=SERVE)
            peer.expect_closed()
        with peer_of(broker) as requester:
            assert requester.refusal("pay", 1) == "NotFound"


def test_the_right_to_serve_delivers_requests_and_no_messages(tmp_path: Path) -> None:
    started = guests(tmp_path, *GUEST, "guest may serve pay.>")
    with started as broker, peer_of(broker) as responder, peer_of(broker) as requester:
        responder.send_message(subscribe="pay.card", body=SERVE)
        flush(responder)
        requester.send_message(publish="pay.card", body="a message")
        requester.send_message(request="pay.card", id=1, body=2)
        requested = next_request(responder)
        assert (requested["request"], requested["body"]) == ("pay.card", 2)
        responder.send_message(success=requested["id"], body=3)
        requester.expect_message(success=1, body=3)


def test_a_route_that_no_rule_lets_it_serve(tmp_path: Path) -> None:
    with guests(tmp_path, *GUEST, "guest may serve pay.>") as broker, peer_of(broker) as peer:
        peer.send_message(subscribe="ship", body=SERVE)
        peer.expect_closed()


@pytest.mark.parametrize("route", [SQL, "polycast/topics"])
def test_the_routes_of_the_broker_need_admin(route: str, tmp_path: Path) -> None:
    rules = ("guest may serve >", "guest may serve polycast/>", "guest may serve spark/>", "guest may subscribe >")
    with guests(tmp_path, *rules) as broker, peer_of(broker) as peer:
        peer.send_message(subscribe=route, body=SERVE)
        peer.expect_closed()


@pytest.mark.parametrize(
    ("route", "right"), [(SQL, "guest may admin"), ("pay", "guest may serve pay")], ids=["admin", "serve"]
)
def test_a_peer_that_loses_the_right_stops_serving_at_once(route: str, right: str, tmp_path: Path) -> None:
    stays = ("loopback may everything", "guest may publish >", "guest may subscribe >", "guest may query >")
    with guests(tmp_path, *stays, right) as broker, peer_of(broker) as responder, peer_of(broker) as requester:
        responder.send_message(subscribe=route, body=SERVE)
        flush(responder)
        write_config(tmp_path, *stays)
        broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in broker.log(), "the new rules")
        responder.expect_closed()
        assert requester.refusal(route, {}) == "NotFound"


def test_offers_are_limited_like_subscriptions(tmp_path: Path) -> None:
    more = "[limits]\nsubscriptions = 3"
    with (
        guests(tmp_path, "guest may serve >", more=more) as broker,
        peer_of(broker) as peer,
    ):
        for number in range(3):
            peer.send_message(subscribe=f"r{number}", body=SERVE)
        flush(peer)
        peer.send_message(subscribe="r4", body=SERVE)
        peer.expect_closed()
        assert "limits.subscriptions" in broker.log()


def test_all_connections_of_an_identity_have_one_share_of_the_open_requests(
    tmp_path: Path,
) -> None:
    """The share is a quarter of `ubre.requests`."""
    rules = ("guest may publish+serve slow", "other may publish slow")
    started = gated(
        tmp_path, *rules, listen=("ubre",), networks=("guest=127.0.0.1/32", "other=127.0.0.2/32"),
        more="[ubre]\nrequests = 40",
    )  # fmt: skip
    with started as broker, peer_of(broker) as responder, ExitStack() as stack:
        responder.send_message(subscribe="slow", body=SERVE)
        flush(responder)
        for peer in [stack.enter_context(peer_of(broker)) for _ in range(5)]:
            for number in range(10):
                peer.send_message(request="slow", id=number)
            peer.send_message(request="nobody/serves/this", id="all sent")
            peer.read_until(line(fail="all sent", body="Forbidden"))
        other = stack.enter_context(UbrePeer(broker.ports["ubre"], source="127.0.0.2"))
        other.send_message(request="slow", id=1, body="of another")
        while (requested := next_request(responder)).get("body") != "of another":
            assert requested["request"] == "slow"


# -- query -----------------------------------------------------------------------------------------------


def test_admin_alone_does_not_open_sql(tmp_path: Path) -> None:
    rules = ("guest may admin", "guest may publish >", "guest may subscribe >", "guest may publish spark/>")
    with guests(tmp_path, *rules) as broker, peer_of(broker) as peer:
        assert peer.refusal(SQL, {"query": "SELECT 1"}) == "Forbidden"


@pytest.mark.parametrize(
    ("rules", "reported"),
    [
        (["guest may query orders.>", "guest may query =a"], ["orders.>", "a"]),
        (["guest may everything"], None),
    ],
    ids=["some", "all"],
)
def test_the_responder_receives_the_identity_and_its_topics(
    rules: list[str], reported: list[str] | None, tmp_path: Path
) -> None:
    started = guests(tmp_path, *rules, "guest may admin")
    with started as broker, peer_of(broker) as responder, peer_of(broker) as requester:
        responder.send_message(subscribe=SQL, body=SERVE)
        flush(responder)
        forged = {"identity": "loopback", "query": None, "body": {"query": "SELECT 1"}}
        requester.send_message(request=SQL, id=1, body=forged)
        assert next_request(responder)["body"] == {"identity": "guest", "query": reported, "body": forged}


@pytest.mark.parametrize(
    ("body", "response"),
    [("text", "BadRequest"), ({"query": "x" * REQUEST_BYTES}, "TooLarge")],
    ids=["text", "large"],
)
def test_a_query_that_cannot_be_forwarded(body: Any, response: str, tmp_path: Path) -> None:
    more = "[limits]\nline_bytes = 1_000_000"
    with guests(tmp_path, "guest may query >", more=more) as broker, peer_of(broker) as peer:
        assert peer.refusal(SQL, body).startswith(response)


@pytest.mark.parametrize(
    ("after", "response"),
    [
        (["guest may query orders.>"], {"success": 1, "body": "rows"}),
        (["guest may query >", "guest may query orders.>"], {"success": 1, "body": "rows"}),
        (["guest may everything"], {"success": 1, "body": "rows"}),
        (["guest may query orders.new.>"], {"fail": 1, "body": "Forbidden"}),
        ([], {"fail": 1, "body": "Forbidden"}),
    ],
    ids=["the same", "more", "everything", "less", "nothing"],
)
def test_a_query_is_forbidden_if_the_right_was_lost_before_the_response(
    after: list[str], response: dict[str, Any], tmp_path: Path
) -> None:
    stays = ("loopback may everything", "guest may admin")
    started = guests(tmp_path, *stays, "guest may query orders.>")
    with started as broker, peer_of(broker) as responder, peer_of(broker) as requester:
        responder.send_message(subscribe=SQL, body=SERVE)
        flush(responder)
        requester.send_message(request=SQL, id=1, body={"query": "SELECT 1"})
        requested = next_request(responder)
        write_config(tmp_path, *stays, *after)
        broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in broker.log(), "the new rules")
        responder.send_message(success=requested["id"], body="rows")
        requester.expect_message(**response)


def test_the_response_of_a_pipeline_is_forbidden_if_the_requester_is_no_longer_admin(tmp_path: Path) -> None:
    stays = ("loopback may everything", "other may admin")
    networks = ("guest=127.0.0.1/32", "other=127.0.0.2/32")
    started = gated(
        tmp_path, *stays, "guest may admin", "guest may subscribe >", listen=("ubre",), networks=networks
    )
    with (
        started as broker,
        peer_of(broker) as requester,
        UbrePeer(broker.ports["ubre"], source="127.0.0.2") as responder,
    ):
        responder.send_message(subscribe="spark/standing", body=SERVE)
        flush(responder)
        requester.send_message(request="spark/standing", id=1)
        requested = next_request(responder)
        write_config(tmp_path, *stays, "guest may subscribe >", networks=networks)
        broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in broker.log(), "the new rules")
        responder.send_message(success=requested["id"], body="rows")
        requester.expect_message(fail=1, body="Forbidden")


# -- open queries ----------------------------------------------------------------------------------------


def test_the_open_queries_of_an_identity_are_limited(tmp_path: Path) -> None:
    """Spark runs one query at a time, also those whose requester has left."""
    rules = ("guest may query >", "guest may admin")
    with guests(tmp_path, *rules) as broker, peer_of(broker) as responder:
        responder.send_message(subscribe=SQL, body=SERVE)
        flush(responder)
        numbers = []
        for number in range(QUERIES_AT_MOST):
            with peer_of(broker) as requester:  # its query stays open when it leaves
                requester.send_message(request=SQL, id=number, body={"query": "SELECT 1"})
                numbers.append(next_request(responder)["id"])
        with peer_of(broker) as requester:
            assert requester.refusal(SQL, {"query": "SELECT 1"}) == "Busy"
            responder.send_message(success=numbers[0], body=1)
            flush(responder)
            requester.send_message(request=SQL, id=7, body={"query": "SELECT 2"})
            assert next_request(responder)["body"]["body"] == {"query": "SELECT 2"}
            assert requester.refusal(SQL, {"query": "SELECT 1"}) == "Busy"
        assert "queries 'SELECT 2'" in broker.log()


def test_the_queries_of_a_responder_that_leaves_are_not_open(tmp_path: Path) -> None:
    rules = ("guest may query >", "guest may admin")
    with guests(tmp_path, *rules) as broker, peer_of(broker) as requester:
        for _ in range(2):
            with peer_of(broker) as responder:
                responder.send_message(subscribe=SQL, body=SERVE)
                flush(responder)
                for number in range(QUERIES_AT_MOST):
                    requester.send_message(request=SQL, id=number, body={"query": "SELECT 1"})
                    assert next_request(responder)["body"]["identity"] == "guest"
            for _ in range(QUERIES_AT_MOST):
                assert json.loads(requester.read_until(b"\n"))["body"] == "Gone"
