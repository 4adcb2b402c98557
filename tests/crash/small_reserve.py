"""A broker that reserves few offsets at a time, so that it often has to reserve more."""

from __future__ import annotations

from polycast.cli import main
from polycast.log import log
from polycast.log.repair import recovery
from polycast.log.write import writer

if __name__ == "__main__":
    for module in (writer, log, recovery):
        module.RESERVE = 20_000  # type: ignore[attr-defined]
    main()
