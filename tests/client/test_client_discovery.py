"""One address for every listener: `GET /listeners`, and what a client makes of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from access.gate import write_config
from client.scripted import Scripted, read_to_end
from client.shells import KINDS
from kit.broker import Broker
from kit.certificates import Authority
from kit.http import Response, read_response
from kit.program import polycast_here
from polycast.address import Address, parse_address
from polycast.client.connect import to_client_session
from polycast.client.discovery import choose, find_listener
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Exact, Message

EVERY = (
    "simplest",
    "fanout.client",
    "fanout.controller",
    "hermod.pub",
    "hermod.sub",
    "nanomsg.pub",
    "nanomsg.sub",
)
OPEN = tuple(f"--listen={name}=tcp://0.0.0.0:0" for name in (*EVERY, "simplest.peer", "http"))
RULES = (
    "loopback may everything",
    "sensors may publish s.> over hermod",
    "crew may admin over http",
    "master may everything",
)
GUESTS = ("guest=127.0.0.0/8",)


class Gate(NamedTuple):
    broker: Broker
    tokens: dict[str, str]

    def at(self, name: str = "") -> str:
        shown = f"/?token={self.tokens[name]}" if name else ""
        return f"http://localhost:{self.broker.ports['http']}{shown}"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """Open to all interfaces; over tcp everybody is `guest`, and has no rights without a token."""
    folder = tmp_path_factory.mktemp("listeners")
    config = write_config(folder, *RULES, networks=GUESTS)
    tokens = {}
    for name in ("sensors", "crew", "master"):
        made = polycast_here("token", "new", name, "--data", str(folder / "data"))
        tokens[name] = made.out.decode().strip()
    with Broker(f"--config={config}", f"--data={folder}/data", *OPEN, listen=()) as started:
        yield Gate(started, tokens)


def get_listeners(gate: Gate, name: str, host: str = "localhost:1234") -> Response:
    shown = f"Authorization: Bearer {gate.tokens[name]}\r\n" if name else ""
    with gate.broker.connect("http") as peer:
        peer.send(f"GET /listeners HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n".encode())
        return read_response(peer)


# -- what the broker says, and to whom -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "shown"), [("localhost:1", "localhost"), ("[::1]:80", "[::1]"), ("10.1.2.3", "10.1.2.3")]
)
def test_a_wildcard_is_the_host_that_the_client_used(gate: Gate, host: str, shown: str) -> None:
    response = get_listeners(gate, "master", host)
    found = json.loads(response.body)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert set(found) == {"node", "version", "listeners"}
    wanted = {name: [f"tcp://{shown}:{gate.broker.ports[name]}"] for name in (*EVERY, "http")}
    assert found["listeners"] == wanted, "without the listeners for other brokers"


def test_a_peer_sees_the_listeners_of_the_dialects_in_which_it_has_rights(gate: Gate) -> None:
    assert set(json.loads(get_listeners(gate, "sensors").body)["listeners"]) == {"hermod.pub", "hermod.sub"}
    assert set(json.loads(get_listeners(gate, "crew").body)["listeners"]) == {"http"}


def test_a_peer_without_rights_sees_nothing(gate: Gate) -> None:
    response = get_listeners(gate, "")
    assert (response.status, response.body) == (403, b"Forbidden\n")
    with gate.broker.connect("http") as peer:
        peer.send(b"GET /listeners HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nonsense\r\n\r\n")
        assert read_response(peer).status == 401


# -- what a client makes of it ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_http_port_is_enough_for_every_dialect(gate: Gate, kind: str) -> None:
    at = gate.at("master")
    with KINDS[kind]("hermod", at) as subscriber, KINDS[kind]("hermod", at, publishing=True) as publisher:
        subscriber.subscribe([Exact("s.1")])
        publisher.publish([Message("s.1", b"hello")])
        assert [message.payload for message in next(subscriber.messages())] == [b"hello"]
    with KINDS[kind]("ubre", at) as client:
        assert client.request("polycast/stats").success


def test_every_listener_is_found(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYCAST_TOKEN", gate.tokens["master"])
    for dialect in ("simplest", "fanout", "hermod", "nanomsg"):
        for publishing in (False, True):
            session = to_client_session(dialect, gate.at(), publishing)
            assert session.address.port in gate.broker.ports.values()


def test_without_rights_there_is_a_refusal(gate: Gate) -> None:
    with pytest.raises(RefusedError, match="no list of listeners: the status is 403") as caught:
        find_listener(gate.at(), "hermod.pub")
    assert caught.value.code == 403


def test_a_listener_that_is_not_there(gate: Gate) -> None:
    with pytest.raises(RemoteError, match="has no listener simplest, or none for this client") as caught:
        find_listener(gate.at("sensors"), "simplest")
    assert "hermod.pub, hermod.sub" in caught.value.hint
    assert gate.tokens["sensors"] not in f"{caught.value} {caught.value.hint}"


def test_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("server.pem")
    places = [f"--listen={name}=tls://127.0.0.1:0" for name in ("hermod.pub", "http")]
    with Broker(
        *places, "--listen=simplest=tcp://127.0.0.1:0", f"--set=tls.certificate={certificate}", listen=()
    ) as broker:
        ports = {name: parse_address(text).port for name, text in broker.addresses}
        at = f"https://localhost:{ports['http']}?ca={authority.file}"
        assert find_listener(at, "hermod.pub").startswith(f"tls://localhost:{ports['hermod.pub']}?ca=")
        published = polycast_here("pub", "a", "b", "--at", at)
        assert (published.code, published.err) == (0, "")
        with pytest.raises(RemoteError, match="has the listener simplest without TLS only") as caught:
            find_listener(at, "simplest")
        assert caught.value.hint == f"--at tcp://localhost:{ports['simplest']} connects without TLS"


@pytest.mark.parametrize(
    ("at", "listener", "found"),
    [
        ("http://[::1]:8080", "http", "tcp://[::1]:8080"),
        ("http://[::1]", "http", "tcp://[::1]:80"),
        ("https://broker.example", "http", "tls://broker.example:443"),
        ("http://broker/?token=a%20b", "http", "tcp://broker:80?token=a+b"),
    ],
)
def test_addresses(at: str, listener: str, found: str) -> None:
    assert find_listener(at, listener) == found


@pytest.mark.parametrize("at", ["http://", "http://a/b", "http://a:99999", "https://a:b:c?token=secret"])
def test_what_is_no_address(at: str) -> None:
    with pytest.raises(UsageError, match="is not an address") as caught:
        find_listener(at, "http")
    assert "secret" not in str(caught.value) and "HOST:PORT" in caught.value.hint


# -- a hostile server ------------------------------------------------------------------------------------

HERE = Address("tcp", "localhost", 8080)


@pytest.mark.parametrize(
    "listed",
    [
        "tcp://10.9.8.7:7878",
        "tcp://evil.example:7878",
        "tcp://localhost.evil.example:1",
        "ipc:///tmp/x",
        "ws://a:1/",
        "?",
        "",
    ],
)
def test_a_client_never_follows_to_another_host(listed: str) -> None:
    with pytest.raises(RemoteError, match="on another host") as caught:
        choose("http://localhost:8080", HERE, "hermod.pub", {"hermod.pub": [listed]})
    assert caught.value.hint.startswith(f"--at {listed}")


@pytest.mark.parametrize("listed", ["tcp://127.0.0.1:7878", "tcp://LOCALHOST:7878", "tcp://localhost:7878"])
def test_another_name_of_the_same_host_is_that_host_under_the_given_name(listed: str) -> None:
    found = choose("http://localhost:8080", HERE, "hermod.pub", {"hermod.pub": ["tcp://10.9.8.7:1", listed]})
    assert str(found) == "tcp://localhost:7878"


def test_the_terminal_gets_no_escapes() -> None:
    for listed in ({"\x1b[2J": ["a"]}, {"hermod.pub": ["tcp://\x1b[2J:1"]}):
        with pytest.raises(RemoteError) as caught:
            choose("http://localhost:8080", HERE, "hermod.pub", listed)
        assert "\x1b" not in f"{caught.value} {caught.value.hint}"


ENDLESS = 1 << 22


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


RESPONSES: dict[str, tuple[bytes, str]] = {
    "huge": (ok(b" " * ENDLESS), "has more than 65,536 bytes"),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * ENDLESS, "has more than 65,536 bytes|not HTTP"),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" * ENDLESS, "has more than 65,536 bytes"),
    "nested": (ok(b"[" * 60_000), "is no list of listeners"),
    "no JSON": (ok(b"{]"), "is no list of listeners"),
    "another": (ok(b"{}"), "is no list of listeners"),
    "no UTF-8": (ok(b'{"listeners":{"\xff":["\xff"]}}'), "is no list of listeners"),
    "a text": (ok(b'{"listeners":{"a":"b"}}'), "is no list of listeners"),
    "elsewhere": (b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n", "the status is 302"),
    "mail": (b"220 mail\r\n\r\n", "not HTTP"),
    "short": (ok(b"{}")[:-1], "the broker closed the connection"),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_server_that_is_no_broker(name: str) -> None:
    response, expected = RESPONSES[name]

    def serve(connection: socket.socket) -> None:
        try:
            assert connection.recv(1 << 16).startswith(b"GET /listeners HTTP/1.1\r\n")
            connection.sendall(response)
            if name != "short":
                read_to_end(connection)
        except OSError:
            pass  # the client has left

    with Scripted(serve) as at, pytest.raises(RemoteError, match=expected):
        find_listener(f"http://{at}", "hermod.pub")
