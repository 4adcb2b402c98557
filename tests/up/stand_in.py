"""A stub of a part. Its argument selects its behaviour.

steady     prints that it runs, and ends on SIGTERM
stubborn   the same, but ignores SIGTERM; prints the id of a process that it started
brief      prints that it runs, and fails
not-here   reports that it cannot run on this machine
"""

from __future__ import annotations

import signal
import subprocess
import sys

NOT_HERE = 69


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(kind: str) -> int:
    if kind == "not-here":
        sys.stderr.write("polycast: there is no such thing here\nhint: install it\n")
        return NOT_HERE
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        print_line(f"started {child.pid}")
    elif kind == "steady":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    print_line("running")
    if kind == "brief":
        return 1
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
