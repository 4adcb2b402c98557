"""The checks of `polycast doctor`. A finding is `fine`, `missing` (optional), `risky` or `wrong`."""

from __future__ import annotations

import logging
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from polycast import __version__
from polycast.address import parse_address
from polycast.bench.targets import PEERS, find_program
from polycast.dialects import scan
from polycast.dialects.registry import DIALECTS
from polycast.dialects.web import frames
from polycast.errors import PolycastError, StartError
from polycast.log.files import columns, disk
from polycast.log.settings import LogSettings, keep_free_bytes
from polycast.routing import runs
from polycast.server import Settings, load
from polycast.server.exposure import find_warnings
from polycast.server.io import sockets
from polycast.server.start_check import check
from polycast.text import size_text

FILES_WANTED = 4096
FSYNCS = 5
SCANS = {
    "scan": scan.COMPILED,
    "frames": frames.COMPILED,
    **{name: dialect.compiled for name, dialect in DIALECTS.items() if dialect.compiled is not None},
    "routing": runs.COMPILED,
    "log": columns.COMPILED and disk.COMPILED,
}
NOT_NEEDED = "not installed; only tests and the benchmark use it"


class Finding(NamedTuple):
    what: str
    state: str
    found: str
    cure: str = ""


def run_checks(config: Path | None, environment: Mapping[str, str], data: str | None) -> Iterator[Finding]:
    yield _python()
    yield _compiled()
    yield _files()
    settings = Settings()
    try:
        settings = load(config, environment, [("log.data", data)] if data else []).settings
        yield Finding("settings", "fine", str(config or "defaults and environment"))
    except PolycastError as error:
        yield Finding("settings", "wrong", str(error), error.hint)
    for name, texts in settings.listen.items():
        yield from (_port(name, text) for text in texts if parse_address(text).scheme != "ipc")
    yield _files_of(settings)
    yield from _exposure(settings)
    yield _folder(settings.log)
    yield _spark()
    yield from _peers()


def _files_of(settings: Settings) -> Finding:
    try:
        check(settings)
    except PolycastError as error:
        return Finding("certificates and tokens", "wrong", str(error), error.hint or "polycast serve --check")
    return Finding("certificates and tokens", "fine", settings.tls.certificate or "no certificate is set")


def _exposure(settings: Settings) -> Iterator[Finding]:
    found = find_warnings(settings)
    for warning in found:
        yield Finding(
            "access", "risky" if warning.level >= logging.WARNING else "fine", warning.text, warning.cure
        )
    if not found:
        yield Finding("access", "fine", "nothing is open to the network without TLS and rules")


def _python() -> Finding:
    found = f"{platform.python_version()}, polycast {__version__}, uvloop {version('uvloop')}"
    return Finding("python", "fine", found)


def _compiled() -> Finding:
    plain = [name for name, compiled in SCANS.items() if not compiled]
    if not plain:
        return Finding("scans", "fine", "compiled")
    cure = "install a C compiler (apt-get install gcc python3-dev), then: make clean install"
    found = f"{' and '.join(plain)} in plain Python: correct, but several times slower"
    return Finding("scans", "missing", found, cure)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_WANTED:
        return Finding("open files", "wrong", f"at most {hard:,}", f"ulimit -Hn {FILES_WANTED} or more")
    return Finding("open files", "fine", f"{soft:,} now, the broker can raise it to {hard:,}")


def _port(name: str, address: str) -> Finding:
    try:
        for opened in sockets.listen(name, parse_address(address)):
            opened.close()
    except StartError as error:
        cure = f"if that is not your broker: {error.hint}"
        return Finding(f"port of {name}", "missing", str(error), cure)
    return Finding(f"port of {name}", "fine", f"{address} is free")


def _folder(settings: LogSettings) -> Finding:
    """Checks the nearest existing parent if the folder does not exist yet."""
    folder = Path(settings.data)
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    probe = existing / f".polycast-doctor-{os.getpid()}"
    try:
        took = _fsync_milliseconds(probe)
        usage = shutil.disk_usage(existing)
    except OSError as error:
        return Finding("data folder", "wrong", f"{folder}: {error.strerror}", "--data DIR takes another folder")
    found = f"{folder}: {size_text(usage.free)} free, fsync takes {took:.2f} ms"
    floor = keep_free_bytes(settings.keep_free, usage.total)
    if usage.free < floor:
        cure = (
            f"log.keep_free is {size_text(floor)}: make room, or the broker removes the oldest segments of its log"
        )
        return Finding("data folder", "risky", found, cure)
    return Finding("data folder", "fine", found)


def _fsync_milliseconds(file: Path) -> float:
    times: list[float] = []
    try:
        with file.open("wb", buffering=0) as out:
            for _ in range(FSYNCS):
                out.write(b"x" * 4096)
                start = time.perf_counter()
                os.fsync(out.fileno())
                times.append((time.perf_counter() - start) * 1000)
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


def _netcat(path: str | None) -> Finding:
    """The README types `nc -N`. Several programs are called nc; that of OpenBSD has the option."""
    cure = "apt-get install netcat-openbsd; polycast pub does without"
    if path is None:
        return Finding("nc", "missing", "not installed; the examples of the README use it", cure)
    shown = subprocess.run([path, "-h"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not ends_input((shown.stdout + shown.stderr).decode(errors="replace")):
        return Finding("nc", "missing", f"{path} has no -N, which the examples of the README use", cure)
    return Finding("nc", "fine", path)


def ends_input(usage: str) -> bool:
    """Whether the option -N closes the connection at the end of stdin. On macOS, -N is a number of probes."""
    return re.search(r"^\s*-N\s+shut", usage, re.MULTILINE | re.IGNORECASE) is not None


def _peers() -> Iterator[Finding]:
    yield _netcat(find_program("nc"))
    for program, cure in {peer.program: peer.cure for peer in PEERS}.items():
        path = find_program(program)
        yield Finding(program, "fine", path) if path else Finding(program, "missing", NOT_NEEDED, cure)
