"""The status display on a terminal: parts, rates, pipelines, last log lines."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from polycast.text import printable, size_text
from polycast.up.lifecycle import PartState
from polycast.up.line_output import to_lines
from polycast.up.parts import Part
from polycast.up.stats_poller import BrokerStats

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_BUFFER = 50
LINES_SHOWN = 10
OTHER_LINES = 14
"""Screen lines that are not log lines, approximately."""
STYLES = {
    PartState.RUNNING: "green",
    PartState.STARTING: "yellow",
    PartState.RESTING: "red",
    PartState.FAILED: "red",
    PartState.OFF: "yellow",
}
UNKNOWN = "–"


class Display:
    """Use as a context manager; `refresh` redraws."""

    def __init__(self, parts: list[Part], console: Console) -> None:
        self._parts = parts
        self._console = console
        self._lines: deque[str] = deque(maxlen=LINE_BUFFER)
        self._stats = BrokerStats()
        self._address = ""
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.refresh()
        self._live.stop()

    def broker_ready(self, console: str) -> None:
        self._address = console

    def state_changed(self, part: Part) -> None:
        if part.lifecycle.state in (PartState.RESTING, PartState.OFF, PartState.FAILED):
            for line in to_lines(part, time.monotonic()):
                self._note(part, line)
        self.refresh()

    def stdout_line(self, part: Part, line: str) -> None:
        if not line.startswith("listening "):
            self._note(part, line)

    def stderr_line(self, part: Part, line: str) -> None:
        self._note(part, line)

    def show(self, broker_stats: BrokerStats) -> None:
        self._stats = broker_stats
        self.refresh()

    def refresh(self) -> None:
        self._live.update(self._to_screen(time.monotonic()), refresh=True)

    def _note(self, part: Part, line: str) -> None:
        self._lines.append(f"{part.name}: {line}")

    # -- the screen --------------------------------------------------------------------------------------

    def _to_screen(self, now: float) -> RenderableType:
        where = Text.assemble(("Polycast", "bold"), "  ", self._address)
        blocks: list[RenderableType] = [where, "", self._to_parts(now), "", self._to_stats()]
        nodes = self._stats.cluster.get("nodes", [])
        if nodes:
            blocks += ["", self._to_nodes(nodes)]
        if self._stats.pipelines:
            blocks += ["", self._to_pipelines()]
        room = self._console.height - OTHER_LINES - len(self._stats.pipelines) - len(nodes)
        shown = list(self._lines)[-max(1, min(LINES_SHOWN, room)) :]
        blocks += ["", *(_plain(line, style="dim", no_wrap=True, overflow="ellipsis") for line in shown)]
        stopped = all(part.lifecycle.state in (PartState.STOPPED, PartState.OFF) for part in self._parts)
        return Group(*blocks, Text("stopped" if stopped else "ctrl-C stops all of it", style="dim"))

    def _to_parts(self, now: float) -> Table:
        table = _grid("part", "state", "for", "restarts", "")
        for part in self._parts:
            lifecycle = part.lifecycle
            why = lifecycle.reason.partition("\n")[0]
            if lifecycle.state is PartState.RESTING:
                why = f"again in {max(0.0, lifecycle.due - now):.0f} s: {why}"
            state = Text(str(lifecycle.state), style=STYLES.get(lifecycle.state, ""))
            since = to_duration(now - lifecycle.since) if lifecycle.since else ""
            table.add_row(part.name, state, since, str(lifecycle.restarts or ""), _plain(why))
        return table

    def _to_stats(self) -> Text:
        known = self._stats
        return Text(
            f"messages/s  in {_number(known.messages_in)}  out {_number(known.messages_out)}     "
            f"connections {_number(known.connections)}     log {size_text(known.log_bytes)}"
        )

    def _to_nodes(self, nodes: list[dict[str, Any]]) -> Table:
        leader = self._stats.cluster["stream"]["leader"] or "none: publishers wait"
        table = _grid("node", "state", "offset", "lag", "leader of the stream")
        for row in nodes:
            first = row is nodes[0]
            numbers = (_number(row[name]) for name in ("offset", "lag"))
            table.add_row(_plain(row["node"]), _plain(row["state"]), *numbers, _plain(leader if first else ""))
        return table

    def _to_pipelines(self) -> Table:
        table = _grid("pipeline", "state", "batch", "rows/s", "lag", "")
        for row in self._stats.pipelines:
            failed = row.get("state") == "failed"
            state = _plain(row.get("state", ""), style="red" if failed else "green")
            numbers = (_number(row.get(name)) for name in ("batch", "rows_per_second", "lag"))
            why = row.get("error", "") if failed else ""
            table.add_row(_plain(row.get("query", "")), state, *numbers, _plain(why))
        return table


def _grid(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        number = head in ("for", "restarts", "batch", "rows/s", "lag")
        table.add_column(head, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    return table


def _plain(text: object, **more: Any) -> Text:
    return Text(printable(str(text)), **more)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def to_duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole // 60 % 60:02} min"
