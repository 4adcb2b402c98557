"""Data folders that cannot be used: one line on stderr, exit code 1, no file is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.program import Finished, polycast
from kit.replay import publish, read_messages, subscribe

FREE = "--listen=simplest=tcp://127.0.0.1:0"


def start(data: Path) -> Finished:
    return polycast("serve", FREE, "--data", str(data))


def check_refused(failed: Finished, *words: str) -> None:
    assert failed.code == 1, failed.err
    assert failed.out == b""
    error, hint = failed.err.splitlines()
    assert error.startswith("polycast: ") and hint.startswith("hint: ") and "--data DIR " in hint
    for word in words:
        assert word in error


def test_a_second_broker(tmp_path: Path) -> None:
    """The error names the process that holds the folder; the first broker is not affected."""
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, [("t", b"before")])
        check_refused(start(tmp_path), str(tmp_path), f"in use by process {broker.process.pid}")
        publish(peer, [("t", b"after")])
        with subscribe(broker, "t", since="earliest") as subscriber:
            assert [received.payload for received in read_messages(subscriber, 2)] == [b"before", b"after"]
            hermod.expect_no_more(subscriber)


def test_a_broker_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        broker.kill()
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, [("t", b"x")])


@pytest.mark.parametrize("name", ["log", "log/.lock", "log/state.json"])
def test_something_else_where_the_log_should_be(tmp_path: Path, name: str) -> None:
    wrong = tmp_path / name
    wrong.parent.mkdir(exist_ok=True)
    if name == "log":
        wrong.write_text("a file")
    else:
        wrong.mkdir()
    check_refused(start(tmp_path), f"cannot write a log in {tmp_path}/log")
    assert wrong.exists()


def test_a_folder_that_can_only_be_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data=data) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, [("t", b"x")])
    place = tmp_path / "read only"
    place.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "--bind", "-o", "ro", data, place], capture_output=True).returncode:
        pytest.skip("no folder can be made read only: run the tests as root, where mount --bind is allowed")
    try:
        check_refused(start(place), "Read-only file system")
    finally:
        subprocess.run(["umount", place], check=True)
    with Broker(data=data) as broker, subscribe(broker, "t", since="earliest") as subscriber:
        assert read_messages(subscriber, 1)[0].payload == b"x"


def test_a_log_of_a_newer_version(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, [("t", b"x")])
    path = tmp_path / "log" / "state.json"
    newer = json.dumps({**json.loads(path.read_text()), "version": 7, "clean": "maybe"})
    path.write_text(newer)
    before = sorted(path.parent.iterdir())
    check_refused(start(tmp_path), "newer version of Polycast: 7", "reads 2")
    assert path.read_text() == newer
    assert sorted(path.parent.iterdir()) == before
