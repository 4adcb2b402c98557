"""The parts of `polycast up --nodes N`: servers of NATS, and nodes with listeners and folders of their own.

Node 1 is the broker that Spark and the demo use. The ports of node K are 100 * (K - 1) higher.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from polycast.address import parse_address
from polycast.cluster.local_server import PASSWORD, free_ports
from polycast.cluster.nats_server import USER, ServerPlan
from polycast.up.lifecycle import Lifecycle
from polycast.up.parts import Part, UpOptions, broker_arguments

PORT_STEP = 100


@dataclass(frozen=True)
class Cluster:
    servers: Sequence[Part]
    urls: str
    nodes: list[UpOptions]


@dataclass
class ServerPart(Part):
    password: str = ""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        return super().environment(inherited) | {PASSWORD: self.password}


def to_cluster(options: UpOptions, count: int) -> Cluster:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2 * count)]
    listen, routes, password = addresses[:count], addresses[count:], secrets.token_hex(16)
    names = [f"n{number + 1}" for number in range(count)]
    servers = []
    for index, name in enumerate(names):
        others = [route for other, route in enumerate(routes) if other != index]
        plan = ServerPlan(
            f"nats-{name}", str(Path(options.data) / f"nats-{name}"), listen[index], routes[index], others
        )
        text = msgspec.json.encode(plan).decode()
        servers.append(
            ServerPart(
                f"nats-{name}", "polycast.cluster.local_server", partial(_arguments, text), connects=False,
                before_broker=True, parent_death_signal=signal.SIGTERM, password=password,
            )
        )  # fmt: skip
    urls = ",".join(f"nats://{USER}:{password}@{address}" for address in listen)
    nodes = [_to_node(options, name, index) for index, name in enumerate(names)]
    return Cluster(servers, urls, nodes)


def _arguments(text: str, listening: object) -> list[str]:
    return [text]


def _to_node(options: UpOptions, name: str, index: int) -> UpOptions:
    listen = {role: [_shift(text, index) for text in texts] for role, texts in options.listen.items()}
    data = str(Path(options.data) / name)
    flags = [flag for flag in options.flags if not flag.startswith("--data=")]
    return replace(options, listen=listen, data=data, flags=[*flags, f"--data={data}", f"--node={name}"])


def _shift(text: str, index: int) -> str:
    address = parse_address(text)
    if address.scheme == "ipc":
        return str(replace(address, path=f"{address.path}.{index + 1}")) if index else text
    return str(replace(address, port=address.port + PORT_STEP * index)) if address.port else text


@dataclass
class NodePart(Part):
    urls: str = ""
    """They have a password: a node gets them in its environment."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        return super().environment(inherited) | {"POLYCAST_CLUSTER_SERVERS": self.urls}


def node_part(options: UpOptions, name: str, urls: str, essential: bool) -> Part:
    arguments = partial(broker_arguments, options) if essential else partial(_other_arguments, options)
    return NodePart(
        name, "polycast", arguments, parent_death_signal=signal.SIGTERM, connects=False,
        lifecycle=Lifecycle(essential=essential), urls=urls,
    )  # fmt: skip


def _other_arguments(options: UpOptions, listening: object) -> list[str]:
    """`listening` has the ports of the broker: another node with port 0 gets ports of its own."""
    return broker_arguments(options, {})


def node_parts(cluster: Cluster) -> Sequence[Part]:
    """The first is the broker."""
    names = [Path(options.data).name for options in cluster.nodes]
    return [
        node_part(options, "broker" if name == names[0] else name, cluster.urls, name == names[0])
        for name, options in zip(names, cluster.nodes, strict=True)
    ]
