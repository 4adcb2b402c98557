"""Which parts there are, and how each is started.

The broker comes first; the others are told where it listens. A port that was free for the taking is taken again
when the broker comes back, so that whoever was connected finds it where it was.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from polycast.address import Address, parse_address
from polycast.client.credentials import without_secrets
from polycast.up.life import Life

Told = Mapping[str, Sequence[Address]]
"""Where the broker says that it listens, by the names of its listeners."""
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Who listens on all addresses is reached on this one."""
SPARK_NEEDS = ("hermod.pub", "http")
DEMO_TRAFFIC = ("traffic.window_seconds=10", "traffic.late_seconds=10")
"""Something is to be seen soon."""


@dataclass
class Part:
    name: str
    module: str
    arguments: Callable[[Told], Sequence[str]]
    tie: signal.Signals = signal.SIGKILL
    """What it gets when this process is gone."""
    why_not: Callable[[Told], str] = lambda told: ""
    """A reason to leave it out, if there is one."""
    connects: bool = True
    """Whether it is a client of the broker: others do not inherit a token."""
    life: Life = field(default_factory=Life)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        return dict(inherited) if self.connects else without_secrets(inherited)


@dataclass(frozen=True)
class Wish:
    """What `polycast up` was asked for."""

    flags: Sequence[str]
    """For `polycast serve`, without the listeners."""
    listen: Mapping[str, Sequence[str]]
    """All listeners, with their addresses."""
    data: str
    """The data folder; empty if the broker keeps no log."""
    pipelines: Sequence[str] = ()
    """Settings of the standing pipelines: NAME.KEY=VALUE."""
    spark: bool = True
    demo: bool = False


def to_parts(wish: Wish) -> list[Part]:
    parts = [broker_part(wish)]
    if wish.spark:
        given = [*(DEMO_TRAFFIC if wish.demo else ()), *wish.pipelines]
        arguments = partial(spark_arguments, wish.data, given)
        why_not = partial(why_no_spark, wish.data)
        parts.append(Part("spark", "polycast.pipelines.service", arguments, why_not=why_not))
    if wish.demo:
        parts.append(Part("demo", "polycast.demo", demo_arguments))
    return parts


def broker_part(wish: Wish) -> Part:
    arguments = partial(broker_arguments, wish)
    return Part("broker", "polycast", arguments, tie=signal.SIGTERM, connects=False, life=Life(essential=True))


def broker_arguments(wish: Wish, told: Told) -> list[str]:
    flags = [
        f"--listen={name}={text}"
        for name, texts in wish.listen.items()
        for text in _settled(texts, told.get(name, ()))
    ]
    return ["serve", *wish.flags, *flags]


def _settled(texts: Sequence[str], told: Sequence[Address]) -> list[str]:
    """With the ports that were taken where any would do."""
    wanted = [parse_address(text) for text in texts]
    named = {address.port for address in wanted}
    taken = list(dict.fromkeys(address.port for address in told if address.port not in named))
    free = iter(taken)
    return [
        str(replace(address, port=next(free, 0))) if address.scheme != "ipc" and not address.port else text
        for address, text in zip(wanted, texts, strict=True)
    ]


def why_no_spark(data: str, told: Told) -> str:
    if not data:
        return "the broker keeps no log, and Spark reads the log"
    missing = [name for name in SPARK_NEEDS if not told.get(name)]
    return f"Spark needs the listener {missing[0]}, which is not open" if missing else ""


def spark_arguments(data: str, given: Sequence[str], told: Told) -> list[str]:
    hermod, http = (to_reach(told[name]) for name in SPARK_NEEDS)
    settings = [f"--set={setting}" for setting in given]
    return [f"--data={data}", f"--hermod={hermod}", f"--http={http}", *settings]


def demo_arguments(told: Told) -> list[str]:
    return [f"{name}={to_reach(addresses)}" for name, addresses in told.items()]


def to_reach(addresses: Sequence[Address]) -> str:
    """The one that a part takes, without TLS where there is a choice; empty if there is none."""
    for address in sorted(addresses, key=lambda address: address.scheme == "tls"):
        return str(_to_here(address))
    return ""


def _to_here(address: Address) -> Address:
    return replace(address, host=ANYWHERE.get(address.host, address.host))


def to_console(told: Told) -> str:
    """Where a browser finds it; empty where there is no such port."""
    for address in told.get("http", ()):
        if address.scheme != "ipc":
            scheme = "https" if address.scheme == "tls" else "http"
            return f"{replace(_to_here(address), scheme=scheme, options={})}/"
    return ""
