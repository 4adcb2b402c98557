"""Parts of `make newcomer` that install nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from kit.broker import ALL, Broker
from kit.wire import GUARD_SECONDS, wait_for
from newcomer.run import JAVA, listening, make_environment, make_path, processes_of
from newcomer.talk import complaint, talk
from polycast.client import DIALECTS


def test_every_dialect_receives_from_every_other() -> None:
    with Broker(listen=(*ALL, "nanomsg.pub", "nanomsg.sub")) as broker:
        addresses = dict(broker.addresses)
        addresses["http"] = addresses["http"].replace("tcp:", "ws:") + "/ubre"
        received = talk(addresses)
    assert received == {name: set(DIALECTS) for name in DIALECTS}
    assert complaint(received) is None
    assert complaint({**received, "ubre": {"simplest"}}) == "ubre received ['simplest']"


def test_the_machine_has_everything_but_java(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in (*JAVA, "make", "python3"):
        (old / name).write_text("#!/bin/sh\necho old\n")
        (old / name).chmod(0o755)
    make_path(tmp_path / "bin", f"{old}{os.pathsep}{tmp_path / 'none'}", sys.executable)
    assert sorted(entry.name for entry in (tmp_path / "bin").iterdir()) == ["make", "python3"]
    found = shutil.which("python3", path=str(tmp_path / "bin"))
    assert found
    done = subprocess.run([found, "-c", "print('new')"], capture_output=True, text=True, check=True)
    assert done.stdout == "new\n"


def test_the_environment_has_nothing_but_what_pip_needs(tmp_path: Path) -> None:
    config = tmp_path / "old" / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.touch()
    known = {"HOME": str(tmp_path / "old"), "JAVA_HOME": "/java", "PIP_CERT": "/cert", "POLYCAST_DATA": "/data"}
    made = make_environment(tmp_path / "bin", tmp_path / "home", known)
    assert made == {
        "PATH": str(tmp_path / "bin"),
        "HOME": str(tmp_path / "home"),
        "LANG": "C.UTF-8",
        "PIP_CERT": "/cert",
        "PIP_CONFIG_FILE": str(config),
    }
    assert list((tmp_path / "home").iterdir()) == []


def test_leftover_processes_are_found(tmp_path: Path) -> None:
    assert processes_of(tmp_path) == []
    command = [sys.executable, "-c", "input()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={"HOME": str(tmp_path)})
    try:
        wait_for(lambda: [pid for pid, _ in processes_of(tmp_path)] == [process.pid], "the process")
    finally:
        process.communicate(b"\n", GUARD_SECONDS)
    assert processes_of(tmp_path) == []


def test_ports_that_are_taken_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening([port]) == [port]
    assert listening([port]) == []
