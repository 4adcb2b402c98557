"""Configuration: defaults, then the file, then the environment, then flags; the last source wins.

    [limits]                          POLYCAST_LIMITS_QUEUE_BYTES=1MiB        --set limits.queue_bytes=1MiB
    queue_bytes = 1_048_576
    idle_seconds = "10m"

Settings whose names end with `bytes` or `seconds` are numbers, or texts with a unit.

If a source names listeners, only those open; addresses to connect to are set in the same way. An unknown name or a
value of the wrong type is an error that contains its source, the expected type and the nearest known name.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec

from polycast.address import PORT_LIMIT, WEB, Address, parse_address
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError
from polycast.log.settings import LogSettings
from polycast.server.access.http_allowlist import parse_host, parse_origin
from polycast.server.access.identity import parse_networks
from polycast.server.access.rules import parse_rule
from polycast.server.access.settings import REQUIRED, TlsSettings
from polycast.server.settings import (
    DIALECT_TABLES,
    POLICIES,
    TABLES,
    Settings,
    declared,
    parse_host_port,
    parse_server,
    types,
)
from polycast.text import hide_credentials, parse_seconds, parse_size

PREFIX = "POLYCAST_"
LARGEST = 2**53
"""Largest number of any setting: scans add a few of them in int64."""
OPTIONS = ("policy", "replay")
"""Options of every address, after `?`."""
MODE = "mode"
"""Additional option of a socket file: its mode, as for chmod."""
REPLAYS = ("last",)
ADDRESSED = ("listen", "connect")
"""Tables of addresses: where the broker listens, and where it connects to."""
BOOLEANS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
NUMBER = re.compile(r"[-+]?[0-9][0-9_.]*(?:e[-+]?[0-9]+)?", re.IGNORECASE)
UNITS: dict[str, Callable[[str], float]] = {"bytes": parse_size, "seconds": parse_seconds}
"""By the last word of a setting's name: how to read a value with a unit."""
NAMED_BY: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list[str]: "a list of texts",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    sources: Mapping[str, str]
    """The source (file, environment or flag) of each key that is not at its default."""

    def to_toml(self) -> str:
        """The effective configuration as TOML."""
        lines = []
        for table in ADDRESSED:
            lines += [f"[{table}]" + self._source(table)]
            by_name: dict[str, list[str]] = getattr(self.settings, table)
            lines += [*(f"{_to_toml(name)} = {_to_toml(where)}" for name, where in by_name.items()), ""]
        for table in TABLES:
            lines += [f"[{table}]"]
            for key, declaration in declared().items():
                if key.startswith(table + "."):
                    value = getattr(getattr(self.settings, table), declaration.name)
                    lines.append(f"{declaration.name} = {_to_toml(value)}{self._source(key)}")
            lines.append("")
        return "\n".join(lines)

    def _source(self, key: str) -> str:
        return f"  # {self.sources[key]}" if key in self.sources else ""


def _to_toml(value: Any) -> str:
    """Writes values as JSON, which is valid TOML for these types, except for DEL (0x7F), and without passwords."""
    return hide_credentials(json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f"))


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[tuple[str, Any]] = (),
) -> Loaded:
    """`flags` are (key, value): the key of a setting, or `listen.NAME`, or `connect.NAME`."""
    gathered = Gathered()
    if file is not None:
        gathered.add_file(file)
    gathered.add_environment(environment or {})
    for key, value in flags:
        gathered.add(key, value, "flag")
    return gathered.finish()


class Gathered:
    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        self._addresses: dict[str, dict[str, dict[str, list[str]]]] = {table: {} for table in ADDRESSED}
        """Addresses by table, source and role."""

    def add_file(self, file: Path) -> None:
        try:
            tables = tomllib.loads(file.read_text())
        except OSError as error:
            raise UsageError(f"cannot read the configuration {file}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            hint = 'a listener with a dot in its name can be written in quotes: "simplest.peer" = "tcp://..."'
            raise UsageError(f"{file} is no TOML: {error}", hint if "verwrite" in str(error) else "") from error
        for table, entries in tables.items():
            known = (*ADDRESSED, *TABLES)
            if table not in known:
                raise UsageError(f"{file}: unknown table [{table}]", nearest(table, known))
            if not isinstance(entries, dict):
                raise UsageError(f"{file}: {table} = {entries!r}: expected a table", f"[{table}] begins one")
            for key, value in _flatten(entries, table in ADDRESSED):
                self.add(f"{table}.{key}", value, str(file), typed=True)

    def add_environment(self, environment: Mapping[str, str]) -> None:
        names = {f"{PREFIX}{key.upper().replace('.', '_')}": key for key in _all_keys()}
        tables = tuple(f"{PREFIX}{table.upper()}_" for table in (*ADDRESSED, *TABLES))
        for name, text in environment.items():
            if name in names:
                self.add(names[name], text, name)
            elif name == "POLYCAST_DATA":
                self.add("log.data", text, name)
            elif name.startswith(tables):
                raise UsageError(f"unknown setting {name} in the environment", nearest(name, names))

    def add(self, key: str, value: Any, source: str, typed: bool = False) -> None:
        """`typed`: the source has types (TOML), so a string is not parsed as a number."""
        table, _, name = key.partition(".")
        if table in ADDRESSED:
            self._add_addresses(table, name, value, source)
            return
        declaration = declared().get(key)
        if declaration is None:
            raise UsageError(f"{source}: unknown setting {key}", nearest(key, declared()))
        self._values[key] = convert(key, value, declaration, types()[key], source, typed)
        self._sources[key] = source

    def _add_addresses(self, table: str, name: str, value: Any, source: str) -> None:
        _check_role(table, name, source)
        addresses = value if isinstance(value, list) else [value]
        for address in addresses:
            if not isinstance(address, str):
                raise UsageError(f"{source}: {table}.{name} = {value!r}: expected an address or a list of them")
            _check_address(table, name, address, source)
        owner = "environment" if source.startswith(PREFIX) else source
        self._addresses[table].setdefault(owner, {}).setdefault(name, []).extend(addresses)

    def finish(self) -> Loaded:
        tables: dict[str, Any] = {
            table: cls(**{k.split(".", 1)[1]: v for k, v in self._values.items() if k.startswith(table + ".")})
            for table, cls in TABLES.items()
        }
        for table, by_source in self._addresses.items():
            if by_source:
                self._sources[table], tables[table] = list(by_source.items())[-1]
        for peer in tables["simplest"].peers:
            _check_peer(peer)
        for network in tables["simplest"].discover_networks:
            _check_network(network, self._sources["simplest.discover_networks"])
        if tables["simplest"].announce:
            parse_announce(tables["simplest"].announce)
        dialects = {name: tables.pop(name) for name in DIALECT_TABLES}
        settings = Settings(**tables, dialects=dialects)
        if not settings.log.enabled:
            _check_needs_no_log(settings)
        self._check_retention(settings.log)
        if settings.cluster.enabled:
            _check_cluster(settings)
        elif settings.cluster.node:
            source = self._sources["cluster.node"]
            text = f"{source}: cluster.node = {settings.cluster.node!r}, and no servers are named"
            hint = "--cluster nats://HOST:PORT, or cluster.servers; a single broker has no cluster.node"
            raise UsageError(text, hint)
        self._check_access(settings)
        return Loaded(settings, self._sources)

    def _check_retention(self, log: LogSettings) -> None:
        if 0 < log.retain_bytes < log.segment_bytes:
            key = "log.retain_bytes" if "log.retain_bytes" in self._sources else "log.segment_bytes"
            raise UsageError(
                f"{self._sources[key]}: log.retain_bytes is {log.retain_bytes:,} and log.segment_bytes is "
                f"{log.segment_bytes:,}: retention removes whole segments, and one segment exceeds the limit",
                f"set log.retain_bytes to {log.segment_bytes:,} or more, or lower log.segment_bytes",
            )

    def _check_access(self, settings: Settings) -> None:
        parsers = {"rules": parse_rule, "hosts": parse_host, "origins": parse_origin}
        name = "networks"
        try:
            parse_networks(settings.access.networks)
            for name, parse in parsers.items():
                for text in getattr(settings.access, name):
                    parse(text)
        except UsageError as error:
            source = self._sources[f"access.{name}"]
            raise UsageError(f"{source}: access.{name}: {error}", error.hint) from error
        listening = [text for texts in settings.listen.values() for text in texts]
        secure = [text for text in listening if parse_address(text).scheme == "tls"]
        if secure and not settings.tls.certificate:
            raise UsageError(f"{secure[0]} needs a certificate", "tls.certificate and tls.key name its files")
        if settings.simplest.discover and settings.simplest.discover_tls and not settings.tls.ca:
            hint = "tls.ca names the file with the authorities that sign the certificates of the other brokers"
            source = self._sources["simplest.discover_tls"]
            raise UsageError(f"{source}: simplest.discover_tls needs tls.ca", hint)
        self._check_clients(settings.tls)

    def _check_clients(self, tls: TlsSettings) -> None:
        if tls.client_certificates == REQUIRED and not tls.client_ca:
            source = self._sources["tls.client_certificates"]
            text = f"{source}: tls.client_certificates = 'required' needs tls.client_ca, to verify them"
            raise UsageError(text, "tls.client_ca names a file with the authorities that signed them")


def _check_needs_no_log(settings: Settings) -> None:
    tables = (settings.listen, settings.connect)
    addresses = [text for table in tables for texts in table.values() for text in texts]
    options = [f"{key}={value}" for text in addresses for key, value in parse_address(text).options.items()]
    options += [f"limits.policy={settings.limits.policy}"]
    for option in options:
        if option.endswith("policy=spill") or option.startswith("replay="):
            raise UsageError(f"{option} needs the log, and log.enabled is false", "leave --no-log out")


def _check_cluster(settings: Settings) -> None:
    if not settings.cluster.node:
        raise UsageError("a node of a cluster needs a name", "--node NAME, or cluster.node")
    if not settings.log.enabled:
        raise UsageError("a node of a cluster needs the log, and log.enabled is false", "leave --no-log out")
    for number, server in enumerate(settings.cluster.servers, 1):
        try:
            parse_server(server)
        except ValueError as error:
            hint = "in a user or a password, %2F stands for /, %40 for @, %3A for :"
            raise UsageError(f"cluster.servers: address {number}: {error}", hint) from error
    if settings.cluster.manage:
        _check_managed(settings)


def _check_managed(settings: Settings) -> None:
    for route in settings.cluster.routes:
        try:
            parse_host_port(route)
        except ValueError as error:
            raise UsageError(f"cluster.routes: {route!r}: {error}") from error
    if settings.cluster.tls and not settings.tls.certificate:
        raise UsageError(
            "cluster.tls with cluster.manage needs a certificate", "tls.certificate and tls.key name its files"
        )


def _all_keys() -> list[str]:
    return [*declared(), *(f"{table}.{name}" for table in ADDRESSED for name in _roles(table))]


def _roles(table: str) -> list[str]:
    return [name for name, role in ROLES.items() if table == "listen" or role.dials]


def _flatten(entries: Mapping[str, Any], dotted: bool) -> Iterable[tuple[str, Any]]:
    """`fanout.client = ...` in TOML is a table in a table; listeners have such names."""
    for key, value in entries.items():
        if dotted and isinstance(value, dict):
            yield from ((f"{key}.{rest}", inner) for rest, inner in _flatten(value, dotted))
        else:
            yield key, value


def _check_role(table: str, name: str, source: str) -> None:
    roles = _roles(table)
    if name in roles:
        return
    if name in ROLES:
        links = {role.dialect for role in ROLES.values() if role.link}
        other = "; --peer HOST:PORT links brokers" if ROLES[name].dialect in links else ""
        raise UsageError(f"{source}: {name} does not connect, it listens", f"{' and '.join(roles)} do{other}")
    raise UsageError(f"{source}: unknown listener {name}", nearest(name, roles))


def _check_address(table: str, name: str, text: str, source: str) -> None:
    key = f"{source}: {table}.{name}"
    try:
        address = parse_address(text)
    except UsageError as error:
        raise UsageError(f"{key} = {error}", error.hint) from error
    if table == "listen" and address.scheme in WEB:
        raise UsageError(
            f"{key} = {text!r}: WebSockets come to the http listener", "--listen http=tcp://HOST:PORT"
        )
    if table == "connect":
        _check_reachable(key, text, address)
    options = (*OPTIONS, *ROLES[name].options)
    options += (MODE,) * (table == "listen" and address.scheme == "ipc")
    for option, value in address.options.items():
        if option not in options:
            raise UsageError(f"{key}: unknown option {option} in {text!r}", nearest(option, options))
        if option == "policy" and value not in POLICIES:
            raise UsageError(f"{key}: policy={value}: expected {' or '.join(POLICIES)}")
        if option == "replay" and value not in REPLAYS:
            raise UsageError(f"{key}: replay={value}: expected {' or '.join(REPLAYS)}")
        if option == MODE and not re.fullmatch("0?[0-7]{3}", value):
            raise UsageError(f"{key}: mode={value}: expected three octal digits, as in mode=660")


def _check_reachable(key: str, text: str, address: Address) -> None:
    if address.scheme != "ipc" and not address.port:
        raise UsageError(f"{key} = {text!r}: port 0 is not reachable", f"PORT from 1 to {PORT_LIMIT}")
    if address.scheme in WEB and not re.fullmatch(r"[!-~]+", address.host + address.path):
        raise UsageError(f"{key} = {text!r} has characters that no URL has", "write spaces as %20")


def parse_announce(text: str) -> tuple[str, str, Address | None]:
    """ORG, NAME, and the address if one is given, which must be one that others can use as it is."""
    match = re.fullmatch(r"([^/=\s]+)/([^=\s]+)(?:=(.+))?", text)
    if match is None:
        raise UsageError(f"simplest.announce = {text!r}: expected ORG/NAME or ORG/NAME=HOST:PORT")
    if match[3] is None:
        return match[1], match[2], None
    address = parse_address(match[3], "tcp")
    try:
        usable = not ip_address(address.host).is_unspecified and address.port > 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"simplest.announce = {text!r}: {match[3]!r} is not an IP address and a port")
    return match[1], match[2], address


def _check_peer(text: str) -> None:
    try:
        address = parse_address(text, "tcp")
    except UsageError:
        address = Address("tcp")
    if address.scheme not in ("tcp", "tls") or not address.port:
        hint = f"write --peer HOST:PORT or --peer tls://HOST:PORT, PORT from 1 to {PORT_LIMIT}"
        raise UsageError(f"simplest.peers: {text!r} is not HOST:PORT", hint)


def _check_network(text: str, source: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        hint = "write a network such as 10.0.0.0/8"
        raise UsageError(f"{source}: simplest.discover_networks: {error}", hint) from error


def convert(key: str, value: Any, declaration: Field[Any], kind: Any, source: str, typed: bool = False) -> Any:
    """A value from TOML, from a text (environment, --set) or from a flag, as the setting's type."""
    if parse := declaration.metadata["parse"]:
        return _parsed(key, value, parse, source)
    unit = UNITS.get(key.rpartition("_")[2])
    if unit and isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
        value, typed = _measured(key, value, unit, source), True
    text = isinstance(value, str) and not typed
    try:
        result = msgspec.convert(_from_text(value, kind) if text else value, kind, strict=not text)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {key} = {value!r}: expected {NAMED_BY[kind]}") from error
    low, choices = declaration.metadata["low"], declaration.metadata["choices"]
    if low is not None and not low <= result <= LARGEST:
        raise UsageError(f"{source}: {key} = {result:,}: expected {low:,} to {LARGEST:,}")
    if choices and result not in choices:
        raise UsageError(f"{source}: {key} = {result!r}: expected {' or '.join(choices)}")
    return result


def _measured(key: str, text: str, unit: Callable[[str], float], source: str) -> float:
    try:
        number = unit(text)
    except ValueError as error:
        raise UsageError(f"{source}: {key} = {text!r}: {error}") from error
    return int(number) if number == int(number) else number


def _parsed(key: str, value: Any, parse: Callable[[str], object], source: str) -> str:
    """Such a setting is a text; a whole number may stand for itself."""
    try:
        if type(value) not in (str, int):
            raise ValueError("expected text")
        parse(str(value))
    except ValueError as error:
        raise UsageError(f"{source}: {key} = {value!r}: {error}") from error
    return str(value)


def _from_text(text: str, kind: type[Any]) -> Any:
    """Spellings of booleans, numbers and lists that msgspec does not convert."""
    if kind is bool:
        return BOOLEANS.get(text.lower(), text)
    if kind in (int, float):
        return text.strip().replace("_", "")
    if kind is str:
        return text
    return [item.strip() for item in text.split(",") if item.strip()]


def nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
