"""One address for every listener: the http listener of a broker lists the others (`GET /listeners`).

The client stays with the host that the user named, and takes only the port from the response: a token never goes
to another host. From `https` it goes on to listeners with TLS only.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import h11
import msgspec

from polycast.address import Address, parse_address
from polycast.client.connection import ClientConnection
from polycast.client.credentials import take_credentials
from polycast.dialects.client_session import ClientSession, Command, Credentials, PendingAcks
from polycast.dialects.json_bodies import INVALID
from polycast.dialects.web.handshake import to_host, to_status_error
from polycast.errors import ProtocolError, RemoteError, UsageError
from polycast.text import printable

SCHEMES = {"http": ("tcp", 80), "https": ("tls", 443)}
"""The transport of each scheme, and its default port."""
PATH = "/listeners"
OK = 200
RESPONSE_BYTES = 64 * 1024
"""The longest response that a client reads."""
SHOWN_CHARACTERS = 200


class Listing(msgspec.Struct):
    listeners: dict[str, list[str]]


class ListingSession(ClientSession):
    """Sends one request when it opens; `listeners` has the addresses by the name of the listener."""

    dialect = "http"
    one_way = False

    def __init__(self, address: Address, credentials: Credentials) -> None:
        super().__init__(address, False, credentials)
        self.listeners: dict[str, list[str]] = {}
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=RESPONSE_BYTES)
        self._received = 0
        self._body = b""

    def open(self) -> Command:
        token = self.credentials.token
        headers = [("Host", to_host(self.address)), ("Connection", "close")]
        headers += [("Authorization", f"Bearer {token}")] if token else []
        request = h11.Request(method="GET", target=PATH, headers=headers)
        data = self._http.send(request) + self._http.send(h11.EndOfMessage())
        return Command(data, self.expect_ack(PendingAcks()))

    def read(self, block: bytes) -> tuple[int, int]:
        self._received += len(block)
        if self._received > RESPONSE_BYTES:
            raise ProtocolError(f"the list of listeners has more than {RESPONSE_BYTES:,} bytes")
        try:
            self._http.receive_data(block)
            while self._handle(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            raise ProtocolError(f"not HTTP: {error}") from error
        return len(block), 0

    def _handle(self, event: object) -> bool:
        """Whether there may be more events."""
        match event:
            case h11.Response():
                if event.status_code != OK:
                    raise to_status_error("no list of listeners", event.status_code, OK, to_host(self.address))
            case h11.Data():
                self._body += event.data
            case h11.EndOfMessage():
                self.listeners = self._decode()
                self.handle_ack()
                return False
        return event is not h11.NEED_DATA and event is not h11.PAUSED

    def _decode(self) -> dict[str, list[str]]:
        try:
            return msgspec.json.decode(self._body, type=Listing).listeners
        except INVALID as error:
            raise ProtocolError("the response is no list of listeners") from error


def is_http(at: str) -> bool:
    return at.partition("://")[0] in SCHEMES


def find_listener(at: str, listener: str) -> str:
    """The address of a listener, with the options of `at`, which is that of the http listener."""
    http = _parse(at)
    if listener == "http":
        return str(http)
    address, credentials = take_credentials(http)
    session = ListingSession(address, credentials)
    ClientConnection(session).disconnect()  # waits for nothing more from a host that may not be a broker
    return str(replace(choose(at, http, listener, session.listeners), options=http.options))


def _parse(at: str) -> Address:
    written, _, rest = at.partition("://")
    scheme, port = SCHEMES[written]
    location, separator, query = rest.partition("?")
    location = location.removesuffix("/")
    if not location.rpartition(":")[2].isdigit() or location.endswith("]"):
        location += f":{port}"
    try:
        return parse_address(f"{scheme}://{location}{separator}{query}")
    except UsageError as error:
        shown = f"{written}://{location}"  # without its options: one may be a token
        raise UsageError(f"{shown!r} is not an address", f"write {written}://HOST:PORT, without a path") from error


def choose(at: str, http: Address, listener: str, listed: dict[str, list[str]]) -> Address:
    """A listed address on the same host, rather one that is as secure as the http listener."""
    shown = f"{at.partition('?')[0]}: the broker"
    texts = listed.get(listener, [])
    if not texts:
        known = printable(", ".join(sorted(listed))[:SHOWN_CHARACTERS]) or "none"
        text = f"{shown} has no listener {listener}, or none for this client"
        raise RemoteError(text, f"--dialect takes another dialect; the listeners for this client are: {known}")
    here = sorted(_on_host(http, texts), key=lambda address: address.scheme != http.scheme)
    if not here:
        address = printable(texts[0][:SHOWN_CHARACTERS])
        text = f"{shown} has the listener {listener} on another host, {address}"
        raise RemoteError(text, f"--at {address} connects there, with your token if you have one")
    if http.scheme == "tls" and here[0].scheme != "tls":
        text = f"{shown} has the listener {listener} without TLS only"
        raise RemoteError(text, f"--at {here[0]} connects without TLS")
    return here[0]


def _on_host(http: Address, texts: list[str]) -> Iterator[Address]:
    """Those on the host that the user named, under that name. Names of other hosts are not resolved."""
    addresses = _resolve(http.host)
    for text in texts:
        try:
            address = parse_address(text)
        except UsageError:
            continue
        if address.scheme in ("tcp", "tls") and address.host.lower() in addresses:
            yield Address(address.scheme, http.host, address.port)


def _resolve(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    return {host.lower(), *(str(info[0]) for *_, info in found)}
