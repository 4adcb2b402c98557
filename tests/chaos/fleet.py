"""Three servers and three nodes, with a proxy on every way between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

from chaos.odd_node import CLOCK, SYNC
from crash.restartable import RestartableBroker
from kit.links import free_port
from kit.nats import Servers
from kit.proxy import Proxy
from kit.ubre import UbrePeer
from kit.wire import wait_for

NAMES = ("a", "b", "c")
SERVERS = 3
LISTENERS = ("hermod.pub", "hermod.sub", "simplest", "ubre", "fanout.controller", "nanomsg.sub", "http")
PATIENCE = 90.0
"""When a cluster without faults is taken to hang. An election takes up to nine seconds."""
NOWHERE = 1
"""A port without a listener: servers learn only this address of each other, so they use the proxy."""
CLUSTER = (
    "cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{routes}], no_advertise: true, "
    f'advertise: "127.0.0.1:{NOWHERE}" }}}}'
)


class MeshedServers(Servers):
    cluster = CLUSTER

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SERVERS)
        pairs = permutations(range(SERVERS), 2)
        self.links = {(near, far): Proxy(self.routes[far], keep=False) for near, far in pairs}

    def dialled(self, index: int) -> list[int]:
        return [proxy.port for (near, _), proxy in self.links.items() if near == index]

    def links_of(self, index: int) -> list[Proxy]:
        return [proxy for pair, proxy in self.links.items() if index in pair]

    def signal(self, index: int, number: int) -> None:
        self.processes[index].send_signal(number)


class Node(RestartableBroker):
    def __init__(self, name: str, folder: Path, servers: Servers, stack: ExitStack) -> None:
        super().__init__(folder / name, folder / f"{name}.txt", LISTENERS)
        self.name = name
        self.folder = folder / name
        self.links = [stack.enter_context(Proxy(port, keep=False)) for port in servers.ports]
        self.fixed = f"tcp://127.0.0.1:{free_port()}"
        """Where Spark publishes: its other ports change at every start."""

    def launch(self, clock: float = 0.0, sync: float = 0.0) -> None:
        urls = ",".join(f"nats://127.0.0.1:{link.port}" for link in self.links)
        env = {CLOCK: str(clock)} if clock else {}
        env |= {SYNC: str(sync)} if sync else {}
        self.start(
            f"--cluster={urls}", f"--node={self.name}", "--set=events.enabled=false", "--set=log.keep_free=0",
            "--set=log.segment_bytes=2000000", f"--listen=hermod.pub={self.fixed}", module="chaos.odd_node", **env,
        )  # fmt: skip

    def signal(self, number: int) -> None:
        assert self._process
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return bool(self._process and self._process.poll() is None)

    def interrupt(self) -> int:
        """Stops it, whatever its exit code is."""
        return self._end(signal.SIGTERM)

    def wait_for_end(self) -> int:
        """It stops by itself."""
        assert self._process
        self._process.wait(PATIENCE)
        return self._end(signal.SIGKILL)


class Fleet:
    """Returns the port of some node to each client that connects."""

    def __init__(self, folder: Path, random: Random, small_disk: bool) -> None:
        self.folder = folder
        self._random = random
        self._small_disk = small_disk
        self._stack = ExitStack()
        self.servers = MeshedServers(folder / "nats")
        self.nodes: dict[str, Node] = {}
        self.disk: SmallDisk | None = None

    def __enter__(self) -> Fleet:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        for proxy in self.servers.links.values():
            self._stack.enter_context(proxy)
        self._stack.enter_context(self.servers)
        if self._small_disk and os.geteuid() == 0:
            self.disk = SmallDisk.mount(self.folder / NAMES[-1], self._stack)
        for name in NAMES:
            self.add(name).launch()
        for node in self.nodes.values():
            node.wait_until_ready()

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.end()
        self._stack.close()

    def add(self, name: str) -> Node:
        self.nodes[name] = Node(name, self.folder, self.servers, self._stack)
        return self.nodes[name]

    def remove(self, name: str) -> None:
        node = self.nodes.pop(name)
        shutil.rmtree(node.folder)

    def port(self, listener: str, given_up: threading.Event) -> int | None:
        """Of any node that is ready; None when the test ends."""
        while True:
            nodes = list(self.nodes.values())
            for node in self._random.sample(nodes, len(nodes)):
                if port := node.ready_port(listener):
                    return port
            if given_up.wait(0.05):
                return None

    # -- what it says of itself --------------------------------------------------------------------------

    def request(self, route: str, at: Node | None = None) -> Any:
        """None: no response."""
        node = at or next(node for node in self.nodes.values() if node.ready_port("ubre"))
        port = node.ready_port("ubre")
        try:
            with UbrePeer(port or 0) as peer:
                peer.send_message(request=route, id=1)
                response = json.loads(peer.read_until(b"\n"))
        except (OSError, AssertionError):
            return None
        return response.get("body") if response.get("success") == 1 else None

    def leader(self) -> int:
        def find() -> str:
            found = self.request("polycast/cluster")
            return str(found["stream"]["leader"] or "") if found else ""

        return int(wait_for(find, "a leader", PATIENCE).removeprefix("s"))

    def catch_up(self) -> list[dict[str, Any]]:
        """Waits until all nodes have applied everything."""

        def same() -> list[dict[str, Any]]:
            found = self.request("polycast/cluster")
            rows: list[dict[str, Any]] = found["nodes"] if found else []
            level = {(row["sequence"], row["offset"], row["chain"]) for row in rows}
            return rows if len(rows) == len(self.nodes) and len(level) == 1 and not rows[0]["lag"] else []

        return wait_for(same, "all nodes at one sequence", PATIENCE)


class SmallDisk:
    """A file system in memory that can be made as small as what it has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def mount(cls, folder: Path, stack: ExitStack) -> SmallDisk | None:
        """None: not allowed here."""
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=2g", "polycast-chaos", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        return cls(folder)

    def fill(self) -> None:
        found = os.statvfs(self._folder)
        self._resize(str((found.f_blocks - found.f_bfree) * found.f_frsize + 16384))

    def empty(self) -> None:
        self._resize("2g")

    def _resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self._folder)], check=True)
