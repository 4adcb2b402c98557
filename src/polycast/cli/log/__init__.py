"""`polycast log`: the log on disk, with the broker running or stopped."""

from __future__ import annotations

from polycast.cli.group import to_group
from polycast.cli.log import backup, cat, info, restore, seal, verify

NAME = "log"
HELP = "The log on disk: list segments, print messages, verify checksums, seal segments, back up and restore."
EXAMPLE = "polycast log info --data polycast-data"

COMMANDS = (info, cat, verify, seal, backup, restore)

app = to_group(COMMANDS)


@app.callback()
def _prepare() -> None:
    from polycast.log.files.arrow import leave_pandas_out

    leave_pandas_out()
