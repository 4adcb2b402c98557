from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from random import Random

from polycast.demo.demo_clients import run


def main() -> None:
    addresses = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with suppress(asyncio.CancelledError):
        asyncio.run(_run(addresses))


async def _run(addresses: dict[str, str]) -> None:
    task = asyncio.current_task()
    assert task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await run(addresses, lambda: _print("running"), Random(os.urandom(8)))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
