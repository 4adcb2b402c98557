"""What `polycast doctor` looks at. A finding is `fine`, `missing` (you can do without) or `wrong`."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import statistics
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from polycast import __version__
from polycast.address import parse_address
from polycast.bench.targets import PEERS, find_program
from polycast.dialects import scan
from polycast.dialects.hermod import scan as hermod_scan
from polycast.dialects.registry import ROLES
from polycast.dialects.ubre import scan as ubre_scan
from polycast.dialects.web import frames
from polycast.errors import StartError
from polycast.log import columns

FILES_WANTED = 4096
FSYNCS = 5
SCANS = {
    "scan": scan.COMPILED,
    "frames": frames.COMPILED,
    "hermod": hermod_scan.COMPILED,
    "ubre": ubre_scan.COMPILED,
    "log": columns.COMPILED,
}
NOT_NEEDED = "not installed; only tests and the benchmark use it"


class Finding(NamedTuple):
    what: str
    state: str
    found: str
    cure: str = ""


def examine(data: str) -> Iterator[Finding]:
    yield _python()
    yield _compiled()
    yield _files()
    for name, role in ROLES.items():
        if role.default:
            yield _port(name, role.default)
    yield _folder(Path(data))
    yield _spark()
    yield from _peers()


def _python() -> Finding:
    found = f"{platform.python_version()}, polycast {__version__}, uvloop {version('uvloop')}"
    return Finding("python", "fine", found)


def _compiled() -> Finding:
    plain = [name for name, compiled in SCANS.items() if not compiled]
    if not plain:
        return Finding("scans", "fine", "compiled")
    cure = "install a C compiler (apt-get install gcc python3-dev), then: make clean install"
    found = f"{' and '.join(plain)} in plain Python: right, but several times slower"
    return Finding("scans", "missing", found, cure)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_WANTED:
        return Finding("open files", "wrong", f"at most {hard:,}", f"ulimit -Hn {FILES_WANTED} or more")
    return Finding("open files", "fine", f"{soft:,} now, the broker can raise it to {hard:,}")


def _port(name: str, default: str) -> Finding:
    address = parse_address(default)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address.host, address.port))
        except OSError as error:
            cure = f"if that is not your broker: --listen {name}=tcp://HOST:PORT, and only those named open"
            return Finding(
                f"port of {name}", "missing", f"{default}: {os.strerror(error.errno or 0).lower()}", cure
            )
    return Finding(f"port of {name}", "fine", f"{default} is free")


def _folder(folder: Path) -> Finding:
    """Where the data folder will be, even if it is not there yet, and how long an fsync takes."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    probe = existing / f".polycast-doctor-{os.getpid()}"
    try:
        took = _fsync_milliseconds(probe)
        free = shutil.disk_usage(existing).free / 2**30
    except OSError as error:
        return Finding("data folder", "wrong", f"{folder}: {error.strerror}", "--data DIR takes another folder")
    return Finding("data folder", "fine", f"{folder}: {free:,.1f} GiB free, fsync takes {took:.2f} ms")


def _fsync_milliseconds(file: Path) -> float:
    times: list[float] = []
    try:
        with file.open("wb", buffering=0) as out:
            for _ in range(FSYNCS):
                out.write(b"x" * 4096)
                begin = time.perf_counter()
                os.fsync(out.fileno())
                times.append((time.perf_counter() - begin) * 1000)
    finally:
        file.unlink(missing_ok=True)
    return statistics.median(times)


def _spark() -> Finding:
    try:
        from polycast.spark.java import find_java, version_of

        java = find_java() / "bin" / "java"
    except StartError as error:
        return Finding("spark", "missing", f"{error}: no pipelines, no SQL", error.hint)
    return Finding("spark", "fine", f"{version('pyspark')} with Java {version_of(java)}, {java}")


def _peers() -> Iterator[Finding]:
    programs = {"nc": "apt-get install netcat-openbsd", **{peer.program: peer.cure for peer in PEERS}}
    for program, cure in programs.items():
        path = find_program(program)
        yield Finding(program, "fine", path) if path else Finding(program, "missing", NOT_NEEDED, cure)
