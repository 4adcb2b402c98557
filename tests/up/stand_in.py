"""A part that does nothing: what it is told to be like is its only argument.

steady     says that it runs, and ends when it is asked to
stubborn   the same, but does not end; and it has started a process, whose number it tells
brief      runs for as long as somebody takes to say so, and fails
not-here   says that it cannot run on this machine
"""

from __future__ import annotations

import signal
import subprocess
import sys

NOT_HERE = 69


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(kind: str) -> int:
    if kind == "not-here":
        sys.stderr.write("polycast: there is no such thing here\nhint: install it\n")
        return NOT_HERE
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        say(f"started {child.pid}")
    elif kind == "steady":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    say("running")
    if kind == "brief":
        return 1
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
