from __future__ import annotations

import json
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from polycast.cli.log.data_folder import DATA, open_log

if TYPE_CHECKING:
    from polycast.log.read.gaps import SegmentRange
    from polycast.log.read.segment_info import SegmentInfo

NAME = "info"
HELP = """List the segments of the log, with offsets, messages, bytes and times, and the gaps with their reasons.

Reads hot segments completely, and only the footers of sealed ones."""
EXAMPLE = "polycast log info --json"


def run(
    data: str = DATA,
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
) -> None:
    info = describe(open_log(data))
    if as_json:
        typer.echo(json.dumps(info, ensure_ascii=False))
    else:
        _show(info)


def describe(folder: Path) -> dict[str, Any]:
    from polycast.log.files.quarantine import LOST, QUARANTINE, read_lost
    from polycast.log.files.state import is_running, log_id, read_state
    from polycast.log.read.gaps import find_holes
    from polycast.log.read.segment_info import read_segment_infos

    found = read_segment_infos(folder)
    lost = read_lost(folder)
    holes = find_holes(map(_to_range, found), lost)
    if holes:  # or segments were sealed or removed meanwhile
        found, lost = read_segment_infos(folder), read_lost(folder)
        holes = find_holes(map(_to_range, found), lost)
    state = read_state(folder)
    gaps = {gap for segment in found for gap in segment.gaps} | {*lost, *holes}
    quarantined = sorted(path for path in (folder / QUARANTINE).glob("*") if not path.name.endswith(LOST))
    return {
        "folder": str(folder),
        "id": log_id(state.seed) if state else None,
        "running": is_running(folder),
        "clean": state.clean if state else None,
        "first": found[0].segment.first if found else None,
        "next": found[-1].next if found else None,
        "messages": sum(segment.rows for segment in found),
        "bytes": sum(segment.size for segment in found),
        "segments": [_to_row(segment) for segment in found],
        "gaps": sorted([msgspec.to_builtins(gap) for gap in gaps], key=itemgetter("first")),
        "quarantined": [{"file": path.name, "bytes": path.stat().st_size} for path in quarantined],
    }


def _to_range(info: SegmentInfo) -> SegmentRange | None:
    """None for damage: where the segment ends is not known."""
    from polycast.log.read.gaps import SegmentRange

    return None if info.damage else SegmentRange(info.segment.first, info.next, info.gaps)


def _to_row(info: SegmentInfo) -> dict[str, Any]:
    return {
        "first": info.segment.first,
        "next": info.next,
        "messages": info.rows,
        "bytes": info.size,
        "kind": "sealed" if info.segment.sealed else "hot",
        "began": _to_time(info.first_time),
        "ended": _to_time(info.last_time),
        "damage": info.damage,
    }


def _to_time(micros: int | None) -> str:
    return "" if micros is None else datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")


def _show(info: dict[str, Any]) -> None:
    from polycast.cli.row_output import show_rows

    show_rows([{name: cell for name, cell in row.items() if name != "damage"} for row in info["segments"]])
    offsets = f"offsets {info['first']:,} to {info['next'] - 1:,}" if info["messages"] else "no offsets"
    typer.echo(f"{info['messages']:,} messages, {offsets}, in {info['bytes']:,} bytes; {_status(info)}")
    for gap in info["gaps"]:
        typer.echo(f"gap: offsets {gap['first']:,} to {gap['next'] - 1:,}: {gap['reason']}")
    for row in info["segments"]:
        if row["damage"]:
            typer.echo(f"damage: {row['damage']}")
    for file in info["quarantined"]:
        typer.echo(f"quarantined: {file['file']}, {file['bytes']:,} bytes")


def _status(info: dict[str, Any]) -> str:
    if info["running"]:
        return "the broker is running"
    return "stopped cleanly" if info["clean"] else "the last stop was not clean"
