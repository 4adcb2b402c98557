"""Security warnings about a configuration: listeners open to the network without TLS, rules for all peers, and
files that other accounts of this machine can read.

Reported at start, by `serve --check` and by `polycast doctor`.
"""

from __future__ import annotations

import logging
import socket
import stat
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from polycast.address import Address, parse_address
from polycast.errors import PolycastError
from polycast.log.files.folder import log_folder
from polycast.log.files.permissions import UMASKS, open_to_others
from polycast.server.access.http_allowlist import ANY
from polycast.server.access.identity import parse_networks
from polycast.server.access.rules import ANONYMOUS, LOOPBACK, parse_rule
from polycast.server.access.tokens import FILE, read_tokens
from polycast.server.settings import Settings


class Exposure(NamedTuple):
    text: str
    cure: str
    level: int = logging.WARNING

    def __str__(self) -> str:
        return f"{self.text}; {self.cure}"


def find_warnings(settings: Settings) -> list[Exposure]:
    return [*_of_listeners(settings), *_of_sites(settings), *_of_dialled(settings), *_of_files(settings)]


def _of_listeners(settings: Settings) -> Iterator[Exposure]:
    addresses = [(name, parse_address(text)) for name, texts in settings.listen.items() for text in texts]
    remote = [(name, address) for name, address in addresses if is_remote(address)]
    if not remote:
        return
    if plain := [f"{name} ({address})" for name, address in remote if address.scheme == "tcp"]:
        text = f"open to the network without TLS: {', '.join(plain)}"
        yield Exposure(text, "tls://HOST:PORT encrypts a listener, 127.0.0.1 limits it to this machine")
    rules = [*settings.access.rules, *_rules_of_tokens(settings)]
    for rule in rules:
        if parse_rule(rule).identity in _unauthenticated(settings):
            cure = "restrict the rule to a token, a certificate or a narrower network"
            yield Exposure(f"open to everyone who can reach {remote[0][1]}: {rule!r}", cure)
    if all(parse_rule(rule).identity == LOOPBACK for rule in rules):
        text = f"open to the network, but no remote peer has rights: {_names(remote)}"
        cure = "access.rules and 'polycast token new NAME' grant rights"
        yield Exposure(text, cure, logging.INFO)


def _of_sites(settings: Settings) -> Iterator[Exposure]:
    """Browser protections that are disabled."""
    access = settings.access
    if settings.listen.get("http") and ANY in access.hosts:
        yield Exposure(
            "access.hosts accepts every name",
            "list the names of the broker: any other name may belong to a malicious site",
        )
    if settings.listen.get("http") and ANY in access.origins:
        yield Exposure("access.origins accepts the pages of every site", "list the trusted sites")


def _of_dialled(settings: Settings) -> Iterator[Exposure]:
    """Dialled addresses whose servers are not verified."""
    peers = [parse_address(text, "tcp") for text in settings.simplest.peers]
    dialled = [*peers, *(parse_address(text) for texts in settings.connect.values() for text in texts)]
    if plain := [str(address) for address in dialled if address.scheme in ("tcp", "ws") and not _is_here(address)]:
        cure = "tls:// and wss:// verify the server and encrypt the traffic"
        yield Exposure(f"dialled over the network without TLS: {', '.join(plain)}", cure)
    wide = [text for text in settings.simplest.discover_networks if text.endswith("/0")]
    if settings.simplest.discover and wide:
        cure = "list the networks of your own brokers"
        yield Exposure(f"announced brokers are dialled anywhere: simplest.discover_networks has {wide[0]}", cure)


def _is_here(address: Address) -> bool:
    """Without DNS: a start must not wait for it."""
    try:
        return address.host == "localhost" or ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _names(listeners: list[tuple[str, Address]]) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in listeners))


def is_remote(address: Address) -> bool:
    """Whether another machine can reach the address. A host that cannot be resolved counts as remote."""
    if address.scheme == "ipc":
        return False
    try:
        found = socket.getaddrinfo(address.host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    return not all(ip_address(str(info[0]).partition("%")[0]).is_loopback for *_, info in found)


def _unauthenticated(settings: Settings) -> set[str]:
    """The identities that need neither token nor certificate, for every source address."""
    networks = parse_networks(settings.access.networks)
    return {ANONYMOUS, *(name for name, network in networks if network.prefixlen == 0)}


def _rules_of_tokens(settings: Settings) -> list[str]:
    """A token file that cannot be read prevents the start, and is reported there."""
    try:
        return [rule for token in read_tokens(Path(settings.log.data) / FILE) for rule in token.rules]
    except (PolycastError, ValueError):
        return []


# -- files -----------------------------------------------------------------------------------------------


def _of_files(settings: Settings) -> Iterator[Exposure]:
    data = Path(settings.log.data)
    umask = UMASKS[settings.log.access]
    for path in (data, log_folder(data)):
        if mode := open_to_others(path, umask):
            cure = f"chmod {0o777 & ~umask:o} {path}, or set log.access"
            yield Exposure(f"other accounts can read {path}: its mode is {mode:04o}", cure)
            break
    for text in (text for texts in settings.listen.values() for text in texts):
        address = parse_address(text)
        if int(address.options.get("mode", "0"), 8) & stat.S_IWOTH:
            cure = "mode=660 limits it to the group; rules for loopback limit what its peers may do"
            yield Exposure(f"every account of this machine can connect to {address.path} as {LOOPBACK}", cure)
    tls = settings.tls
    keys = [tls.key or tls.certificate, tls.dial_key or tls.dial_certificate]
    for path in (data / FILE, *map(Path, filter(None, keys))):
        if mode := open_to_others(path, stat.S_IRWXO):
            yield Exposure(f"other accounts can read {path}: its mode is {mode:04o}", f"chmod 600 {path}")
