"""The command `polycast` for shells in tests: requests the zygote to fork it, with this process's streams.

Run with `python -IS`: it imports almost nothing, so that it starts in a few milliseconds.
"""

import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NUMBER = struct.Struct("!i")


def forward(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def main() -> int:
    ended, reporting = socket.socketpair()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as zygote, reporting:
        zygote.connect(os.environ["ZYGOTE_SOCKET"])
        job = {"arguments": sys.argv[1:], "env": dict(os.environ), "module": "polycast", "folder": os.getcwd()}  # noqa: PTH109
        socket.send_fds(zygote, [json.dumps(job).encode()], [0, 1, 2, reporting.fileno()])
        (pid,) = NUMBER.unpack(ended.recv(NUMBER.size))
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: forward(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    (code,) = NUMBER.unpack(ended.recv(NUMBER.size))
    return int(code) if code >= 0 else 128 - int(code)


if __name__ == "__main__":
    sys.exit(main())
