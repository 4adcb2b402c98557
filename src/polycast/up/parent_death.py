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


def main() -> None:
    parent, number, module, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != int(parent):  # the parent ended before prctl
        os._exit(ORPHANED)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
