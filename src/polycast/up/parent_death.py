"""Runs a module in a process that ends when its parent ends, even by SIGKILL.

    python -m polycast.up.parent_death PARENT SIGNAL MODULE [ARGUMENT]...

The kernel sends the signal. Linux only: elsewhere a killed parent leaves its children running.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

PR_SET_PDEATHSIG = 1
ORPHANED = 1


def bind_to_parent(parent: int, number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(ORPHANED)


def main() -> None:
    parent, number, module, *arguments = sys.argv[1:]
    bind_to_parent(int(parent), int(number))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
