from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from random import Random

from polycast.demo.actors import play


def main() -> None:
    places = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with suppress(asyncio.CancelledError):
        asyncio.run(_run(places))


async def _run(places: dict[str, str]) -> None:
    task = asyncio.current_task()
    assert task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await play(places, lambda: _say("running"), Random(os.urandom(8)))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
