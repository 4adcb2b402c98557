"""A node whose table differs from that of the majority: it stops, and does not start again.

The verdict is noted beside the log, in `diverged.json`: after a restart, too few other nodes may run to come to it
again. It goes away with the log: when the folder is moved, the node copies the log of another one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from polycast.errors import DivergedError
from polycast.log.files.disk import DISK

NAME = "diverged.json"
HINT = "its files stay; move the data folder away, and the node copies the log of another one"


class DivergenceMark(msgspec.Struct, frozen=True):
    sequence: int
    chain: str
    nodes: list[str]
    """The nodes that differed from this one."""


def mark_divergence(folder: Path, mark: DivergenceMark) -> DivergedError:
    path = folder / NAME
    path.write_bytes(msgspec.json.encode(mark) + b"\n")
    DISK.sync_folder(folder)
    return DivergedError("this node differs from the majority of the nodes, and stops", HINT)


def check_divergence(folder: Path) -> None:
    """Raises DivergedError if this log differed from that of the majority before."""
    try:
        mark = msgspec.json.decode((folder / NAME).read_bytes(), type=DivergenceMark)
    except FileNotFoundError:
        return
    except (OSError, msgspec.MsgspecError) as error:
        raise DivergedError(f"{folder / NAME} cannot be read: {error}", HINT) from error
    text = (
        f"this node differed from the majority of the nodes at message {mark.sequence:,} ({', '.join(mark.nodes)})"
    )
    raise DivergedError(text, HINT)
