"""Rights of requests for topics, and which sites may make them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from access.gate import BASE, counted, write_config
from kit.broker import Broker
from kit.http import Response, get, read_response, request
from kit.program import polycast_here
from kit.wire import GUARD_SECONDS

MORE = 'origins = ["https://friend"]\n[limits]\nframe_seconds = 0.2\n'


READERS = ("reader", "leaver")


class Gate(NamedTuple):
    broker: Broker
    folder: Path
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("topics")
    tokens = {name: new_token(folder, name) for name in READERS}
    rules = ("loopback may everything", *BASE, *(f"{name} may subscribe > over http" for name in READERS))
    config, file = write_config(folder, *rules, more=MORE), f"--listen=http=ipc://{folder}/http"
    with Broker(f"--config={config}", file, listen=("http",), data=folder) as started:
        yield Gate(started, folder, tokens)


@pytest.fixture
def broker(gate: Gate) -> Broker:
    return gate.broker


def new_token(folder: Path, name: str) -> str:
    made = polycast_here("token", "new", name, f"--data={folder}")
    assert made.code == 0, made.err
    return made.out.decode().strip()


def fetch(broker: Broker, data: bytes) -> Response:
    with broker.connect("http") as peer:
        peer.send(data)
        return read_response(peer)


def post(path: str, *headers: str) -> bytes:
    return request("POST", path, "Content-Length: 1", *headers, body=b"x")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post("/topics/open.a"), 200),
        (post("/topics/open%2Ea"), 200),
        (post("/topics/closed"), 403),
        (post("/topics/polycast/open.a"), 403),
        (post("/topics/../open.a"), 403),
        (get("/topics/open.a"), 200),
        (get("/topics/closed"), 403),
        (get("/topics/polycast/events/connect"), 403),
        (get("/events?pattern=>"), 403),
        (get("/events?pattern=open.>&pattern=closed"), 403),
        (get("/events?pattern=polycast/>"), 403),
        (get("/metrics"), 403),
        (post("/topics/open.a", "Authorization: Bearer nonsense"), 401),
        (get("/events?pattern=open.>&token=nonsense"), 401),
    ],
)
def test_rights(broker: Broker, data: bytes, status: int) -> None:
    assert fetch(broker, data).status == status


def test_the_right_is_checked_before_the_body(broker: Broker) -> None:
    for headers in (
        ["Content-Length: 9000000"],
        ["Transfer-Encoding: chunked"],
        ["Content-Length: 1", "Expect: 100-continue"],
    ):
        response = fetch(broker, request("POST", "/topics/closed", *headers))
        assert (response.status, response.headers["connection"]) == (403, "close")
    assert "may not publish to 'closed'" in broker.wait_for_log("closed")


def test_each_request_has_the_rights_of_its_own_token(gate: Gate) -> None:
    """Also when they come at once, as from a proxy."""
    shown = f"Authorization: Bearer {gate.tokens['reader']}"
    with gate.broker.connect("http") as peer:
        requested = [
            get("/topics/closed", shown),
            get("/topics/closed"),
            post("/topics/open.a", shown),
            post("/topics/open.a"),
        ]
        peer.send(b"".join(requested))
        assert [read_response(peer).status for _ in requested] == [200, 403, 403, 200]


def test_a_revoked_token_ends_its_stream(gate: Gate) -> None:
    with gate.broker.connect("http") as peer:
        peer.send(get(f"/events?pattern=%3E&token={gate.tokens['leaver']}"))
        peer.read_until(b"event: log\n")
        assert polycast_here("token", "revoke", "leaver", f"--data={gate.folder}").code == 0
        assert b'"Forbidden"' in peer.read_until(b"event: refused\n") + peer.read_until(b"\n\n")


# -- browsers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        ["Origin: http://evil", "Content-Type: text/plain"],
        ["Origin: null", "Content-Type: text/plain"],
        ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Content-Type: text/plain"],
        ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"],
    ],
)
def test_pages_of_other_sites_cannot_publish(broker: Broker, headers: list[str]) -> None:
    """Requests that a browser sends without a preflight, such as those of a form."""
    before = counted(broker, "polycast_messages_in_total")
    response = fetch(broker, post("/topics/open.a", *headers))
    assert response.status == 403 and "access-control-allow-origin" not in response.headers
    assert counted(broker, "polycast_messages_in_total") == before


def test_listed_sites_may_read_the_responses(broker: Broker) -> None:
    for data in (
        post("/topics/open.a", "Origin: https://friend"),
        get("/topics/open.a", "Origin: https://friend"),
    ):
        response = fetch(broker, data)
        assert response.status == 200
        assert (response.headers["access-control-allow-origin"], response.headers["vary"]) == (
            "https://friend",
            "origin",
        )
    with broker.connect("http") as peer:
        peer.send(get("/events?pattern=open.%3E", "Origin: https://friend", "Sec-Fetch-Mode: cors"))
        assert b"\r\nAccess-Control-Allow-Origin: https://friend\r\n" in peer.read_until(b"\r\n\r\n")


def test_preflight_requests(broker: Broker) -> None:
    requested = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
    with broker.connect("http") as peer:
        peer.send(request("OPTIONS", "/topics/closed", "Origin: https://friend", *requested))
        head = peer.read_until(b"\r\n\r\n").decode().lower()
        assert head.startswith("http/1.1 204 ") and "content-length" not in head
        assert "\r\naccess-control-allow-methods: get, head, options, post\r\n" in head
        assert "authorization" in head and "\r\naccess-control-allow-origin: https://friend\r\n" in head
        peer.send(request("OPTIONS", "/topics/closed", "Origin: https://evil", *requested))
        assert read_response(peer).status == 403


# -- slow peers --------------------------------------------------------------------------------------------


def test_a_body_that_drips_has_a_deadline(broker: Broker) -> None:
    """Whether it comes in chunks or not, and although each byte comes in time."""
    for head in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
        with broker.connect("http") as peer:
            peer.send(request("POST", "/topics/open.a", head))
            peer.socket.settimeout(0.01)
            response = b""
            for _ in range(int(GUARD_SECONDS / 0.01)):
                try:
                    response += peer.socket.recv(4096)
                    break
                except TimeoutError:
                    peer.send(b"0")
            assert response.startswith(b"HTTP/1.1 408 ") and b"bytes/s" in response
