"""Three servers and three nodes on the loopback, and what all of them must agree on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kit.broker import Broker
from kit.nats import Servers
from kit.subscribers import send_request
from kit.wire import wait_for

NAMES = ("a", "b", "c")
LISTEN = (
    "simplest", "hermod.pub", "hermod.sub", "http", "ubre",
    "fanout.client", "fanout.controller", "nanomsg.pub", "nanomsg.sub",
)  # fmt: skip
WRITTEN_AT_ONCE = "--set=log.gather_seconds=0"
"""Tests read the files of a node when it has applied a message."""
PATIENCE = 60.0
"""An election takes up to nine seconds."""


class Trio:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = Servers(folder / "nats", 3)
        self.nodes: dict[str, Broker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Trio:
        with ExitStack() as undo:
            undo.callback(self.end)
            self._stack.enter_context(self.servers)
            for name in NAMES:
                self.start(name)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        try:
            for node in self.nodes.values():
                node.begin_to_stop()
            for node in self.nodes.values():
                node.__exit__(None, None, None)
        finally:
            self._stack.close()

    def start(self, name: str, *more: str) -> Broker:
        node = Broker(
            f"--cluster={self.servers.urls}",
            f"--node={name}",
            WRITTEN_AT_ONCE,
            *more,
            listen=LISTEN,
            data=self.folder / name,
            events=True,
        )
        self.nodes[name] = node.__enter__()
        return node

    def stop(self, name: str) -> None:
        self.nodes.pop(name).__exit__(None, None, None)

    def kill(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.kill()
        node.__exit__(None, None, None)

    def status(self, at: str = "a") -> dict[str, Any]:
        found: dict[str, Any] = send_request(self.nodes[at], "polycast/cluster")
        return found

    def catch_up(self) -> list[dict[str, Any]]:
        """Waits until all nodes have applied everything, and returns what they say of themselves."""

        def same() -> list[dict[str, Any]]:
            found = self.status(next(iter(self.nodes)))
            rows = found["nodes"]
            level = {(row["sequence"], row["offset"], row["chain"]) for row in rows}
            done = len(rows) == len(self.nodes) and len(level) == 1 and all(row["lag"] == 0 for row in rows)
            return rows if done else []

        def all_connected() -> bool:
            """A node sends its status to the others once a second."""
            found = [send_request(node, "polycast/stats")["nodes"] for node in self.nodes.values()]
            return all({row["node"] for row in rows} == set(self.nodes) for rows in found)

        wait_for(all_connected, "all nodes to know each other", PATIENCE)
        return wait_for(same, "all nodes at one sequence", PATIENCE)

    def tables(self, rows: int = 0) -> dict[str, pa.Table]:
        """The log of each node, read with pyarrow alone, up to the end of the shortest.

        Waits until every node has so many rows on disk, and while a node replaces a file by its sealed form.
        """

        def whole() -> dict[str, pa.Table]:
            try:
                found = {name: read_table(self.folder / name / "log") for name in self.nodes}
            except FileNotFoundError:
                return {}
            offsets = [table["offset"].to_pylist() for table in found.values()]
            return found if all(each == list(range(max(rows, len(each)))) for each in offsets) else {}

        found = wait_for(whole, f"{rows} rows on disk at all nodes", PATIENCE)
        shortest = min(table.num_rows for table in found.values())
        return {name: table.slice(0, shortest) for name, table in found.items()}


def read_table(folder: Path) -> pa.Table:
    """Read again if a segment was sealed or removed meanwhile: its rows would be there twice, or not at all."""
    while True:
        files = _segments(folder)
        try:
            found = [table for path in files if (table := _read_segment(path)).num_rows]
        except FileNotFoundError:
            continue
        if files == _segments(folder):
            return pa.concat_tables(found or [pa.table({"offset": pa.array([], pa.int64())})]).sort_by("offset")


def _segments(folder: Path) -> list[Path]:
    """In place of a hot segment its sealed one, if there is one."""
    hot, sealed = ({path.stem: path for path in folder.glob(kind)} for kind in ("*.arrows", "*.parquet"))
    return sorted((hot | sealed).values())


def _read_segment(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path).replace_schema_metadata()
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all().replace_schema_metadata()
