"""What an operator should know before others can reach the broker: listeners that are open to the network without
TLS, rules that hold for anybody, and files that other accounts of this machine can read.

Said at start, by `serve --check` and by `polycast doctor`.
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
from polycast.log.folder import log_of
from polycast.log.modes import UMASKS, open_to_others
from polycast.server.access.identity import parse_networks
from polycast.server.access.rules import ANONYMOUS, LOOPBACK, parse_rule
from polycast.server.access.tokens import FILE, read_tokens
from polycast.server.settings import Settings


class Warned(NamedTuple):
    text: str
    cure: str
    level: int = logging.WARNING

    def __str__(self) -> str:
        return f"{self.text}; {self.cure}"


def find_warnings(settings: Settings) -> list[Warned]:
    return [*_of_listeners(settings), *_of_files(settings)]


def _of_listeners(settings: Settings) -> Iterator[Warned]:
    places = [(name, parse_address(text)) for name, texts in settings.listen.items() for text in texts]
    remote = [(name, address) for name, address in places if is_remote(address)]
    if not remote:
        return
    if plain := [f"{name} ({address})" for name, address in remote if address.scheme == "tcp"]:
        text = f"open to the network without TLS: {', '.join(plain)}"
        yield Warned(text, "tls://HOST:PORT encrypts a listener, 127.0.0.1 keeps it on this machine")
    rules = [*settings.access.rules, *_rules_of_tokens(settings)]
    for rule in rules:
        if parse_rule(rule).identity in _anybody(settings):
            cure = "give the rule to the name of a token, of a certificate or of a narrower network"
            yield Warned(f"open to everybody who can reach {remote[0][1]}: {rule!r}", cure)
    if all(parse_rule(rule).identity == LOOPBACK for rule in rules):
        text = f"open to the network, and nobody from there may do anything: {_names(remote)}"
        cure = "access.rules, or 'polycast token new NAME', says who may do what"
        yield Warned(text, cure, logging.INFO)


def _names(places: list[tuple[str, Address]]) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in places))


def is_remote(address: Address) -> bool:
    """Whether a peer on another machine may reach it. A name that cannot be looked up may lead anywhere."""
    if address.scheme == "ipc":
        return False
    try:
        found = socket.getaddrinfo(address.host, None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return not all(ip_address(str(place[0]).partition("%")[0]).is_loopback for *_, place in found)


def _anybody(settings: Settings) -> set[str]:
    """The identities of peers that have shown nothing, wherever they come from."""
    networks = parse_networks(settings.access.networks)
    return {ANONYMOUS, *(name for name, network in networks if network.prefixlen == 0)}


def _rules_of_tokens(settings: Settings) -> list[str]:
    """Tokens that cannot be read keep a broker from starting, and are told then."""
    try:
        return [rule for token in read_tokens(Path(settings.log.data) / FILE) for rule in token.rules]
    except (PolycastError, ValueError):
        return []


# -- files -----------------------------------------------------------------------------------------------


def _of_files(settings: Settings) -> Iterator[Warned]:
    data = Path(settings.log.data)
    umask = UMASKS[settings.log.access]
    for path in (data, log_of(data)):
        if mode := open_to_others(path, umask):
            cure = f"chmod {0o777 & ~umask:o} {path}, or set log.access"
            yield Warned(f"other accounts may look into {path}: its mode is {mode:04o}", cure)
            break
    for path in (data / FILE, *map(Path, filter(None, [settings.tls.key]))):
        if mode := open_to_others(path, stat.S_IRWXO):
            yield Warned(f"other accounts may read {path}: its mode is {mode:04o}", f"chmod 600 {path}")
