"""The dialect of a listener of which only the address is known.

The default ports of the dialects are known. At any other port the client sends the probe of hermod: a hermod
listener replies to it in hermod, and all others refuse it, reply otherwise or stay silent.
"""

from __future__ import annotations

from dataclasses import replace

from polycast.address import parse_address, split_addresses
from polycast.client.connect import DIALECTS, to_client_session
from polycast.client.connection import ClientConnection
from polycast.client.discovery import is_http
from polycast.dialects.registry import ROLES
from polycast.errors import HermodPeerError, RefusedError, RemoteError

PROBED = "hermod"
OTHER = "simplest"
"""The dialect of a listener that does not reply in hermod: the only one whose broker sends nothing by itself."""
PROBE_SECONDS = 3.0


def find_dialect(at: str) -> str:
    """The dialect of the first address that can be told without a connection, or that answers."""
    for address in split_addresses(at):
        if is_http(address) or ":" not in address:
            return PROBED
        if found := DEFAULT_PORTS.get(address.partition("?")[0].rpartition(":")[2]) or _probe(address):
            return found
    return PROBED


def _probe(at: str) -> str:
    """Empty if the listener cannot be reached."""
    session = to_client_session(PROBED, at, publishing=True)
    session.credentials = replace(session.credentials, token="")  # not for a listener that is unknown
    try:
        ClientConnection(session, PROBE_SECONDS).disconnect()
    except RefusedError as error:
        return OTHER if error.code == HermodPeerError.code else PROBED
    except RemoteError as error:
        return "" if isinstance(error.__cause__, OSError) and not session.pending else OTHER
    return PROBED


def _default_ports() -> dict[str, str]:
    ports = {}
    for name, client in DIALECTS.items():
        for listener in (client.publishers, client.subscribers):
            role = ROLES[listener]
            if role.dialect == name and role.default:
                ports[str(parse_address(role.default).port)] = name
    return ports


DEFAULT_PORTS = _default_ports()
