"""Nodes on one server, with a stream and folders for each test."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats

from cluster.trio import LISTEN, WRITTEN_AT_ONCE, read_table
from kit.broker import Broker
from kit.nats import Servers
from kit.program import Finished, polycast
from kit.replay import publish
from kit.subscribers import send_request
from kit.wire import wait_for


class Place:
    """A stream of its own, and folders for nodes."""

    def __init__(self, server: Servers, folder: Path, stream: str) -> None:
        self.urls = server.urls
        self.folder = folder
        self.stream = stream

    def flags(self, name: str) -> list[str]:
        return [
            f"--cluster={self.urls}",
            f"--node={name}",
            f"--set=cluster.stream={self.stream}",
            "--set=cluster.max_bytes=4MiB",
        ]

    def node(self, name: str, *more: str, data: str = "", options: str = "", module: str = "polycast") -> Broker:
        flags = [*self.flags(name), WRITTEN_AT_ONCE, *more]
        folder = self.folder / (data or name)
        return Broker(*flags, listen=LISTEN, options=options, data=folder, module=module)

    def single(self, name: str) -> Broker:
        return Broker(WRITTEN_AT_ONCE, listen=LISTEN, data=self.folder / name)

    def refusal(self, name: str, *more: str, data: str = "", urls: str = "", code: int = 1) -> str:
        """What a start that must fail says."""
        flags = [
            f"--cluster={urls}" if flag.startswith("--cluster") and urls else flag for flag in self.flags(name)
        ]
        listen = "--listen=simplest=tcp://127.0.0.1:0"
        finished = polycast("serve", *flags, listen, f"--data={self.folder / (data or name)}", *more)
        assert finished.code == code, finished
        assert not finished.out, finished
        return finished.err

    def table(self, name: str) -> Any:
        return read_table(self.folder / name / "log")

    def call(self, subject: str, body: bytes = b"") -> Any:
        async def run() -> Any:
            connection = await nats.connect(self.urls)
            response = await connection.request(subject, body, timeout=5)
            await connection.close()
            return json.loads(response.data)

        return asyncio.run(run())

    def config(self) -> Any:
        """The configuration of the stream."""
        return self.call(f"$JS.API.STREAM.INFO.{self.stream}")["config"]

    def restore(self, name: str, *flags: str) -> Finished:
        file = self.folder / "stream.toml"
        file.write_text(f'[cluster]\nstream = "{self.stream}"\nmax_bytes = "4MiB"\n')
        where = [f"--cluster={self.urls}", f"--node={name}", f"--data={self.folder / name}", f"--config={file}"]
        return polycast("cluster", "restore", "--json", *where, *flags)


def send(node: Broker, topic: str, *payloads: bytes) -> None:
    with node.connect("hermod.pub") as peer:
        publish(peer, [(topic, payload) for payload in payloads])


def wait_level(node: Broker, nodes: int) -> dict[str, Any]:
    def level() -> dict[str, Any]:
        found: dict[str, Any] = send_request(node, "polycast/cluster")
        rows = found["nodes"]
        return found if len(rows) == nodes and len({row["sequence"] for row in rows}) == 1 else {}

    return wait_for(level, f"{nodes} nodes at one sequence")
