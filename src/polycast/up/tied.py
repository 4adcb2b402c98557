"""Runs a module such that it ends when the process that started it is gone, however that ended.

    python -m polycast.up.tied PARENT SIGNAL MODULE [ARGUMENT]...

The kernel sends the signal (Linux; elsewhere a parent that is killed leaves its children behind).
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

PR_SET_PDEATHSIG = 1
ORPHANED = 1


def tie(parent: int, number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was quicker
        os._exit(ORPHANED)


def main() -> None:
    parent, number, module, *arguments = sys.argv[1:]
    tie(int(parent), int(number))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
