"""The parts, and the command line of each.

The broker starts first; the others get its addresses as arguments. A restarted broker listens on the same ports as
before, also where the setting says port 0, so that clients can reconnect.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from polycast.address import Address, parse_address
from polycast.client.credentials import without_secrets
from polycast.up.lifecycle import Lifecycle

Listening = Mapping[str, Sequence[Address]]
"""The broker's addresses, by listener."""
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to connect to a listener on all addresses."""
SPARK_LISTENERS = ("hermod.pub", "http")
DEMO_TRAFFIC = ("traffic.window_seconds=10", "traffic.late_seconds=10")
"""Short windows: first results appear soon."""


@dataclass
class Part:
    name: str
    module: str
    arguments: Callable[[Listening], Sequence[str]]
    parent_death_signal: signal.Signals = signal.SIGKILL
    """Sent to the process when the supervisor ends."""
    unavailable: Callable[[Listening], str] = lambda listening: ""
    """Why this part cannot run here; empty: it can."""
    before_broker: bool = False
    """Whether the broker needs this part: it starts first and stops last."""
    connects: bool = True
    """Whether the part is a client of the broker. Only clients inherit tokens."""
    lifecycle: Lifecycle = field(default_factory=Lifecycle)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        return dict(inherited) if self.connects else without_secrets(inherited)


@dataclass(frozen=True)
class UpOptions:
    flags: Sequence[str]
    """Flags of `polycast serve`, without the listeners."""
    listen: Mapping[str, Sequence[str]]
    """Addresses by listener."""
    data: str
    """The data folder; empty: no log."""
    pipelines: Sequence[str] = ()
    """Settings of the pipelines: NAME.KEY=VALUE."""
    spark: bool = True
    demo: bool = False


def to_parts(options: UpOptions, brokers: Sequence[Part] = ()) -> list[Part]:
    """`brokers`: the servers and nodes of a cluster, instead of one broker."""
    parts = list(brokers) or [broker_part(options)]
    if options.spark:
        given = [*(DEMO_TRAFFIC if options.demo else ()), *options.pipelines]
        arguments = partial(spark_arguments, options.data, given)
        unavailable = partial(spark_unavailable, options.data)
        parts.append(Part("spark", "polycast.pipelines.service", arguments, unavailable=unavailable))
    if options.demo:
        parts.append(Part("demo", "polycast.demo", demo_arguments))
    return parts


def broker_part(options: UpOptions) -> Part:
    arguments = partial(broker_arguments, options)
    return Part(
        "broker",
        "polycast",
        arguments,
        parent_death_signal=signal.SIGTERM,
        connects=False,
        lifecycle=Lifecycle(essential=True),
    )


def broker_arguments(options: UpOptions, listening: Listening) -> list[str]:
    flags = [
        f"--listen={name}={text}"
        for name, texts in options.listen.items()
        for text in _with_taken_ports(texts, listening.get(name, ()))
    ]
    return ["serve", *options.flags, *flags]


def _with_taken_ports(texts: Sequence[str], listening: Sequence[Address]) -> list[str]:
    """Replaces port 0 by the port that the broker had before."""
    wanted = [parse_address(text) for text in texts]
    named = {address.port for address in wanted}
    taken = list(dict.fromkeys(address.port for address in listening if address.port not in named))
    free = iter(taken)
    return [
        str(replace(address, port=next(free, 0))) if address.scheme != "ipc" and not address.port else text
        for address, text in zip(wanted, texts, strict=True)
    ]


def spark_unavailable(data: str, listening: Listening) -> str:
    if not data:
        return "the broker has no log, and Spark reads the log"
    missing = [name for name in SPARK_LISTENERS if not listening.get(name)]
    return f"Spark needs the listener {missing[0]}, which is not open" if missing else ""


def spark_arguments(data: str, given: Sequence[str], listening: Listening) -> list[str]:
    hermod, http = (reachable_address(listening[name]) for name in SPARK_LISTENERS)
    settings = [f"--set={setting}" for setting in given]
    return [f"--data={data}", f"--hermod={hermod}", f"--http={http}", *settings]


def demo_arguments(listening: Listening) -> list[str]:
    return [f"{name}={reachable_address(addresses)}" for name, addresses in listening.items()]


def reachable_address(addresses: Sequence[Address]) -> str:
    """The address that a part connects to, preferably without TLS; empty: none."""
    for address in sorted(addresses, key=lambda address: address.scheme == "tls"):
        return str(_with_reachable_host(address))
    return ""


def _with_reachable_host(address: Address) -> Address:
    return replace(address, host=WILDCARD_HOSTS.get(address.host, address.host))


def console_url(listening: Listening) -> str:
    """URL for a browser; empty: no http listener on TCP."""
    for address in listening.get("http", ()):
        if address.scheme != "ipc":
            scheme = "https" if address.scheme == "tls" else "http"
            return f"{replace(_with_reachable_host(address), scheme=scheme, options={})}/"
    return ""
