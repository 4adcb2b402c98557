from __future__ import annotations

import json
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from polycast.cli.log.place import DATA, open_log

if TYPE_CHECKING:
    from polycast.log.read.segment_info import SegmentInfo

NAME = "info"
HELP = """List the segments of the log, with their offsets, messages, bytes and times, and what is missing and why.

Hot segments are read as a whole for that, of sealed ones only the end."""
EXAMPLE = "polycast log info --json"


def run(
    data: str = DATA,
    as_json: bool = typer.Option(False, "--json", help="Everything as one JSON object."),
) -> None:
    about = describe(open_log(data))
    if as_json:
        typer.echo(json.dumps(about, ensure_ascii=False))
    else:
        _show(about)


def describe(folder: Path) -> dict[str, Any]:
    from polycast.log.files.quarantine import LOST, QUARANTINE, read_lost
    from polycast.log.files.state import is_running, read_state
    from polycast.log.read.segment_info import read_segment_infos

    found = read_segment_infos(folder)
    state = read_state(folder)
    gaps = {gap for outline in found for gap in outline.gaps} | set(read_lost(folder))
    aside = sorted(path for path in (folder / QUARANTINE).glob("*") if not path.name.endswith(LOST))
    return {
        "folder": str(folder),
        "running": is_running(folder),
        "clean": state.clean if state else None,
        "first": found[0].segment.first if found else None,
        "next": found[-1].next if found else None,
        "messages": sum(outline.rows for outline in found),
        "bytes": sum(outline.size for outline in found),
        "segments": [_to_row(outline) for outline in found],
        "gaps": sorted([msgspec.to_builtins(gap) for gap in gaps], key=itemgetter("first")),
        "quarantined": [{"file": path.name, "bytes": path.stat().st_size} for path in aside],
    }


def _to_row(outline: SegmentInfo) -> dict[str, Any]:
    return {
        "first": outline.segment.first,
        "next": outline.next,
        "messages": outline.rows,
        "bytes": outline.size,
        "kind": "sealed" if outline.segment.sealed else "hot",
        "began": _to_time(outline.first_time),
        "ended": _to_time(outline.last_time),
        "damage": outline.damage,
    }


def _to_time(micros: int | None) -> str:
    return "" if micros is None else datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")


def _show(about: dict[str, Any]) -> None:
    from polycast.cli.listing import show_rows

    show_rows([{name: cell for name, cell in row.items() if name != "damage"} for row in about["segments"]])
    offsets = f"offsets {about['first']:,} to {about['next'] - 1:,}" if about["messages"] else "no offsets"
    typer.echo(f"{about['messages']:,} messages, {offsets}, in {about['bytes']:,} bytes; {_condition(about)}")
    for gap in about["gaps"]:
        typer.echo(f"gap: offsets {gap['first']:,} to {gap['next'] - 1:,}: {gap['reason']}")
    for row in about["segments"]:
        if row["damage"]:
            typer.echo(f"damage: {row['damage']}")
    for file in about["quarantined"]:
        typer.echo(f"quarantined: {file['file']}, {file['bytes']:,} bytes")


def _condition(about: dict[str, Any]) -> str:
    if about["running"]:
        return "the broker is running"
    return "stopped cleanly" if about["clean"] else "the last stop was not clean"
