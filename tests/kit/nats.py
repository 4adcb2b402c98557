"""Servers of NATS with JetStream, on free ports of the loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from kit.wire import GUARD_SECONDS, wait_for
from polycast.cluster.local_server import free_ports

BINARY = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"

CONFIGURATION = """
server_name: {name}
listen: 127.0.0.1:{port}
max_payload: 4MB
ping_interval: "2s"
{jetstream}
{cluster}
{more}
"""
JETSTREAM = 'jetstream {{ store_dir: "{folder}", sync_interval: always, max_mem: 64MB, max_file: 2GB }}'
CLUSTER = """cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{routes}] }}"""


class Servers:
    """`with Servers(folder, 3) as servers: ... servers.urls`"""

    cluster = CLUSTER

    def __init__(self, folder: Path, count: int = 3, jetstream: bool = True, more: str = "") -> None:
        self._folder = folder
        self._jetstream = jetstream
        self._more = more
        places = free_ports(2 * count)
        self.ports, self.routes = places[:count], places[count:]
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def urls(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)

    def start(self, index: int) -> None:
        folder = self._folder / f"s{index}"
        folder.mkdir(parents=True, exist_ok=True)
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in self.dialled(index))
        text = CONFIGURATION.format(
            name=f"s{index}", port=self.ports[index], more=self._more,
            jetstream=JETSTREAM.format(folder=folder / "js") if self._jetstream else "",
            cluster=self.cluster.format(route=self.routes[index], routes=routes) if len(self.ports) > 1 else "",
        )  # fmt: skip
        (folder / "nats.conf").write_text(text)
        with (folder / "log.txt").open("ab") as out:
            process = subprocess.Popen([BINARY, "-c", str(folder / "nats.conf")], stdout=out, stderr=out)
        self.processes[index : index + 1] = [process]

    def dialled(self, index: int) -> list[int]:
        """The ports at which a server reaches the others."""
        return self.routes

    def wait(self) -> None:
        for port in self.ports:
            wait_for(lambda port=port: _responds(port), f"a server on port {port}")  # type: ignore[misc]

    def kill(self, index: int) -> None:
        self.processes[index].kill()
        self.processes[index].wait(GUARD_SECONDS)

    def __enter__(self) -> Servers:
        with ExitStack() as undo:
            undo.callback(self.end)
            for index in range(len(self.ports)):
                self.start(index)
            self.wait()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(GUARD_SECONDS)


def _responds(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as peer:
            return peer.recv(4) == b"INFO"
    except OSError:
        return False
