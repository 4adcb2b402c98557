"""`polycast log`: the log on disk, with the broker running or stopped."""

from __future__ import annotations

from polycast.cli.group import to_group
from polycast.cli.log import cat, info, seal, verify

NAME = "log"
HELP = "Inspect the log: list its segments, print messages, verify checksums, seal segments."
EXAMPLE = "polycast log info --data polycast-data"

COMMANDS = (info, cat, verify, seal)

app = to_group(COMMANDS)


@app.callback()
def _prepare() -> None:
    from polycast.log.files.arrow import leave_pandas_out

    leave_pandas_out()
