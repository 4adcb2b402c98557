"""A nats-server on this machine, as a process of `polycast up --nodes`: `python -m polycast.cluster.local_server`.

Writes the configuration, starts the server, prints `ready` when the server responds, and ends with the server. The
server accepts connections from this machine only, with a password that only the processes of one `polycast up`
know.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from polycast.cluster.nats_server import ServerPlan, StoreLock, find_program, responds, write_configuration
from polycast.errors import PolycastError

START_SECONDS = 20.0
PASSWORD = "POLYCAST_NATS_PASSWORD"
"""An environment variable, because all accounts of a machine can see arguments."""
FIXED_PORTS = range(15_000, 32_000)
"""Below the ports that kernels choose from: 32,768 and more on Linux, 49,152 and more on macOS."""


def run(plan: ServerPlan) -> int:
    lock = StoreLock(Path(plan.folder))
    file = write_configuration(plan, os.environ[PASSWORD])
    with plan.log_file.open("ab") as out:
        process = subprocess.Popen(
            [find_program(), "-c", str(file)], stdout=out, stderr=out, pass_fds=[lock.descriptor]
        )
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and not responds(plan.listen):
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.05)
    if process.poll() is None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
    elif process.returncode:
        sys.stderr.write(f"polycast: nats-server ended; see {plan.log_file}\n")
    return process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, on the loopback address. The kernel gives none of them to a listener on
    port 0 or to a connection, so they stay free until the servers are started."""
    found: set[int] = set()
    while len(found) < count:
        port = random.choice(FIXED_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            found.add(port)
    return list(found)


if __name__ == "__main__":
    try:
        sys.exit(run(msgspec.json.decode(sys.argv[1], type=ServerPlan)))
    except PolycastError as failure:
        sys.stderr.write(f"polycast: {failure}\nhint: {failure.hint}\n")
        sys.exit(failure.exit_code)
