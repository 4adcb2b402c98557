"""The `Host` and `Origin` headers that HTTP requests may have."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from access.gate import counted, gated, write_config
from kit.broker import Broker
from kit.http import Response, read_response
from kit.websocket import upgrade

HOSTS = 'hosts = ["broker", "Gate.Example:9000"]\norigins = ["https://friend", "HTTP://Other.Example:80"]'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with gated(tmp_path_factory.mktemp("origin"), "guest may everything", more=HOSTS) as started:
        yield started


def response_to(broker: Broker, host: str, origin: str = "", here: bool = False) -> int:
    """The status of the response to an upgrade."""
    requested = upgrade(extra=f"Origin: {origin}\r\n" if origin else "").replace(
        b"Host: localhost", f"Host: {host}".encode()
    )
    with broker.connect_file("http") if here else broker.connect("http") as peer:
        peer.send(requested)
        peer.expect(b"HTTP/1.1 ")
        return int(peer.read_until(b" "))


def fetch(broker: Broker, host: str, *headers: str, path: str = "/metrics", method: str = "GET") -> Response:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
    with broker.connect("http") as peer:
        peer.send("\r\n".join(lines).encode())
        return read_response(peer)


# -- hosts -----------------------------------------------------------------------------------------------

KNOWN = (
    "localhost",
    "LOCALHOST:8080",
    "localhost.",
    "127.0.0.1:8080",
    "[::1]:8080",
    "10.1.2.3",
    "broker",
    "broker:1234",
    "Broker:8080",
    "gate.example:9000",
    "",
)
STRANGE = (
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example:8080",
    "evil.example@localhost",
    "gate.example",
    "gate.example:9001",
    "[localhost]",
    "a:b:c",
    "2130706433",
    "*",
)


@pytest.mark.parametrize("host", KNOWN)
def test_names_of_the_broker(host: str, broker: Broker) -> None:
    assert fetch(broker, host).status == 200
    assert response_to(broker, host) == 101


@pytest.mark.parametrize("host", STRANGE)
def test_any_other_name_is_refused_on_every_path(host: str, broker: Broker) -> None:
    """DNS rebinding: the pages of a site could read the responses of the broker."""
    assert response_to(broker, host) == 421
    for path in ("/", "/metrics", "/ubre", "/nowhere"):
        assert fetch(broker, host, path=path).status == 421
    assert b"access.hosts" in fetch(broker, host).body


def test_the_name_of_the_machine(broker: Broker) -> None:
    assert fetch(broker, socket.gethostname()).status == 200
    assert fetch(broker, f"{socket.gethostname().upper()}:8080").status == 200


def test_probe_pages_accept_any_host(broker: Broker) -> None:
    assert fetch(broker, "evil.example", path="/healthz").body == b"ok\n"
    assert fetch(broker, "evil.example", path="/readyz").body == b"ready\n"


def test_the_host_in_the_request_line_is_checked_too(broker: Broker) -> None:
    assert fetch(broker, "localhost", path="http://evil.example/metrics").status == 421
    assert fetch(broker, "evil.example", path="http://localhost/metrics").status == 421
    assert fetch(broker, "localhost", path="http://localhost:8080/metrics").status == 200


def test_a_request_without_a_host(broker: Broker) -> None:
    """HTTP/1.0 programs send none; browsers always do."""
    with broker.connect("http") as peer:
        peer.send(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert read_response(peer).status == 200


def test_two_hosts(broker: Broker) -> None:
    assert fetch(broker, "localhost", "Host: evil.example").status == 400


def test_hosts_are_checked_on_a_socket_file_too(broker: Broker) -> None:
    """Through a proxy, a browser would be `loopback`."""
    assert response_to(broker, "evil.example", "http://evil.example", here=True) == 421
    assert response_to(broker, "localhost", here=True) == 101


def test_a_token_does_not_help(tmp_path: Path) -> None:
    """Nor does `loopback`."""
    with gated(tmp_path, "loopback may everything", listen=("http",), networks=()) as broker:
        for extra in ((), ("Authorization: Bearer nonsense",)):
            assert fetch(broker, "evil.example", *extra).status == 421
            assert fetch(broker, "evil.example", *extra, path="/?token=nonsense").status == 421
        assert response_to(broker, "evil.example") == 421
        assert response_to(broker, "evil.example", "http://evil.example") == 421


def test_a_host_may_have_any_name_if_allowed(tmp_path: Path) -> None:
    with gated(tmp_path, "guest may everything", listen=("http",), more='hosts = ["*"]') as broker:
        assert fetch(broker, "evil.example").status == 200
        assert response_to(broker, "evil.example:80", "http://evil.example") == 101
        assert response_to(broker, "evil.example", "http://worse.example") == 403


def test_host_names_are_reloaded(tmp_path: Path) -> None:
    with gated(tmp_path, "guest may everything", listen=("http",)) as broker:
        assert fetch(broker, "late.example").status == 421
        write_config(tmp_path, "loopback may everything", "guest may everything", more='hosts = ["late.example"]')
        os.kill(broker.process.pid, signal.SIGHUP)
        broker.wait_for_log("reloaded")
        assert fetch(broker, "late.example").status == 200


def test_a_refused_name_is_in_the_log_and_counted(broker: Broker) -> None:
    before = counted(broker, "polycast_inputs_refused_total", reason="Misdirected Request")
    fetch(broker, "named.example:8080")
    line = broker.wait_for_log("named.example:8080")
    assert "access.hosts" in line
    assert counted(broker, "polycast_inputs_refused_total", reason="Misdirected Request") == before + 1


# -- origins ---------------------------------------------------------------------------------------------

ORIGINS = [
    ("broker:8080", "", True),
    ("broker:8080", "http://broker:8080", True),
    ("Broker:8080", "http://broker:8080", True),
    ("broker", "https://broker", True),
    ("broker", "https://broker:443", True),
    ("broker:80", "http://broker", True),
    ("[::1]:8080", "http://[::1]:8080", True),
    ("broker:8080", "https://friend", True),
    ("broker:8080", "https://friend:443", True),
    ("broker:8080", "http://other.example", True),
    ("broker:8080", "http://friend", False),
    ("broker:8080", "https://friend:444", False),
    ("broker:8080", "http://broker", False),
    ("broker:8080", "http://broker:80", False),
    ("broker", "http://broker:8080", False),
    ("broker:8080", "http://localhost:8080", False),
    ("broker:8080", "http://evil", False),
    ("broker:8080", "http://broker:8080.evil", False),
    ("broker:8080", "http://evil/broker:8080", False),
    ("broker:8080", "broker:8080", False),
    ("broker:8080", "null", False),
    ("broker:8080", "*", False),
]


@pytest.mark.parametrize(("host", "origin", "welcome"), ORIGINS)
def test_own_pages_and_those_that_are_listed(host: str, origin: str, welcome: bool, broker: Broker) -> None:
    assert response_to(broker, host, origin) == (101 if welcome else 403)
    headers = (f"Origin: {origin}",) if origin else ()
    assert fetch(broker, host, *headers).status == (200 if welcome else 403)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/topics/a", "/nowhere"])
def test_requests_from_pages_of_other_sites_are_refused(method: str, path: str, broker: Broker) -> None:
    """On every path, for every identity."""
    with broker.connect("http") as peer:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\n\r\n"
        peer.send(head.encode())
        assert read_response(peer, body=method != "HEAD").status == 403


def test_two_origins(broker: Broker) -> None:
    assert fetch(broker, "localhost", "Origin: http://localhost", "Origin: http://evil").status == 403
    assert fetch(broker, "localhost", "Origin: http://evil", "Origin: http://localhost").status == 403


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("cross-site", "no-cors", 403),
        ("same-site", "no-cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "no-cors", 200),
        ("none", "navigate", 200),
    ],
)
def test_embedding_by_other_sites(site: str, mode: str, status: int, broker: Broker) -> None:
    """Images and scripts are fetched without an Origin; navigation is allowed."""
    headers = (f"Sec-Fetch-Site: {site}", f"Sec-Fetch-Mode: {mode}")
    assert fetch(broker, "localhost", *headers).status == status


def test_a_listed_page_may_fetch(broker: Broker) -> None:
    headers = ("Origin: https://friend", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors")
    assert fetch(broker, "localhost", *headers).status == 200


def test_all_pages(tmp_path: Path) -> None:
    with gated(tmp_path, "guest may everything", listen=("http",), more='origins = ["*"]') as broker:
        assert response_to(broker, "localhost", "http://evil") == 101
        assert fetch(broker, "localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors").status == 200
        assert response_to(broker, "evil", "http://evil") == 421


def test_the_refusal_reveals_nothing_else(broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(upgrade(extra="Origin: http://evil\r\n"))
        assert read_response(peer).body == b"Forbidden\n"


def test_a_refused_page_is_in_the_log(broker: Broker) -> None:
    fetch(broker, "localhost:8080", "Origin: http://named.evil")
    line = broker.wait_for_log("http://named.evil")
    assert "localhost:8080" in line and "access.origins" in line
