"""Errors at start: one line on stderr, a hint, and the right exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kit.program import Finished, polycast, polycast_here

FREE = "--listen=simplest=tcp://127.0.0.1:0"


def check_error(failed: Finished, code: int, *words: str) -> None:
    """One line and an optional hint on stderr, nothing on stdout."""
    assert failed.code == code, failed.err
    assert failed.out == b""
    error, *rest = [line for line in failed.err.splitlines() if " WARNING " not in line]
    assert error.startswith("polycast: ")
    assert len(rest) <= 1
    assert all(line.startswith("hint: ") for line in rest)
    for word in words:
        assert word in failed.err


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = polycast("serve", "--no-log", f"--listen=simplest=tcp://127.0.0.1:{port}")
    check_error(failed, 1, f"tcp://127.0.0.1:{port}", "address already in use", "hint: ", "--listen simplest=")


def test_a_port_that_is_taken_after_others_were_opened(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = polycast(
            "serve",
            "--no-log",
            f"--listen=simplest=ipc://{path}",
            f"--listen=fanout.client=tcp://127.0.0.1:{port}",
        )
    check_error(failed, 1, "fanout.client", "address already in use")
    assert not path.exists()


def test_the_same_port_twice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    failed = polycast("serve", "--no-log", f"--listen=simplest={address}", f"--listen=fanout.client={address}")
    check_error(failed, 1, "fanout.client", "address already in use")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_ours(host: str) -> None:
    check_error(polycast("serve", "--no-log", f"--listen=simplest=tcp://{host}:0"), 1, host, "hint: ")


def test_a_socket_file_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    check_error(polycast("serve", "--no-log", f"--listen=simplest=ipc://{tmp_path}/none/sock"), 1, "none/sock")


def test_a_socket_file_whose_path_is_too_long(tmp_path: Path) -> None:
    check_error(polycast("serve", "--no-log", f"--listen=simplest=ipc://{tmp_path}/{'x' * 120}"), 1, "xxx")


@pytest.mark.parametrize("folder", ["file/below", "file"])
def test_a_data_folder_that_cannot_be_one(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    failed = polycast("serve", FREE, "--data", str(tmp_path / folder))
    check_error(failed, 1, str(tmp_path / folder), "hint: ", "--data", "--no-log")


def test_a_data_folder_that_cannot_be_written_to() -> None:
    check_error(polycast("serve", FREE, "--data", "/proc/polycast"), 1, "/proc/polycast", "hint: ")


def test_a_data_folder_is_made(tmp_path: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken:
        port = taken.getsockname()[1]
        polycast("serve", f"--listen=simplest=tcp://127.0.0.1:{port}", "--data", str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b" / "log").is_dir()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--listen=simplest"], ["--listen simplest", "NAME=ADDRESS"]),
        (["--listen=simples=tcp://127.0.0.1:0"], ["simples", "hint: did you mean simplest?"]),
        (["--listen=simplest=127.0.0.1:9014"], ["127.0.0.1:9014", "hint: write tcp://HOST:PORT"]),
        (["--listen=simplest=tcp://127.0.0.1"], ["hint: "]),
        (["--listen=simplest=tcp://127.0.0.1:99999"], ["99999", "65535"]),
        (["--listen=simplest=udp://127.0.0.1:1"], ["udp", "hint: "]),
        (["--listen=simplest=ipc://relative"], ["relative", "hint: three slashes"]),
        (["--listen=simplest=tcp://127.0.0.1:0?polcy=drop"], ["polcy", "hint: did you mean policy?"]),
        (["--listen=simplest=tcp://127.0.0.1:0?policy=keep"], ["policy=keep", "disconnect or drop"]),
        (["--set=limits.queue_bytes"], ["--set limits.queue_bytes", "KEY=VALUE"]),
        (["--set=limits.queue=5000"], ["limits.queue", "hint: did you mean limits.queue_bytes?"]),
        (["--set=limits.queue_bytes=lots"], ["limits.queue_bytes", "lots", "a number of bytes"]),
        (["--set=limits.queue_bytes=1"], ["limits.queue_bytes", "expected 4,096 to"]),
        (["--set=limits.policy=keep"], ["limits.policy", "disconnect or drop"]),
        (["--set=limits.idle_seconds=nan"], ["limits.idle_seconds"]),
        (["--set=limits.idle_seconds=inf"], ["limits.idle_seconds"]),
        (["--config=/no/such/file.toml"], ["/no/such/file.toml", "No such file"]),
        (["--peer=somewhere"], ["somewhere", "hint: "]),
        (["--peer=ipc:///tmp/x"], ["ipc:///tmp/x", "HOST:PORT"]),
        (["--peer=127.0.0.1:0"], ["127.0.0.1:0"]),
        (["--announce=org/name=host.example:9014"], ["host.example"]),
        (["--announce=nobody"], ["nobody", "ORG/NAME"]),
        (["--announce=org/name=somewhere"], ["somewhere"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value[0].startswith("--") else "",
)  # fmt: skip
def test_wrong_usage(flags: list[str], words: list[str]) -> None:
    listen = [] if flags[0].startswith("--listen") else [FREE]
    check_error(polycast_here("serve", "--no-log", "--check", *listen, *flags), 2, *words)


@pytest.mark.parametrize("flag", ["--listen=simples=tcp://127.0.0.1:0", "--set=limits.queue_bytes=lots"])
def test_wrong_usage_in_a_process_of_its_own(flag: str) -> None:
    check_error(polycast("serve", "--no-log", flag), 2)


def test_an_announcement_without_an_address() -> None:
    failed = polycast("serve", "--no-log", FREE, "--announce=org/name")
    check_error(failed, 2, "--announce", "hint: add --listen simplest.peer=")


def test_announce_needs_a_host_if_the_listener_is_a_wildcard() -> None:
    failed = polycast("serve", "--no-log", "--listen=simplest.peer=tcp://0.0.0.0:0", "--announce=org/name")
    check_error(failed, 2, "0.0.0.0", "hint: write --announce org/name=HOST:")


def test_an_unknown_flag() -> None:
    failed = polycast_here("serve", "--lisen=simplest=tcp://127.0.0.1:0")
    assert failed.code == 2
    assert failed.out == b""
    assert "No such option: --lisen" in failed.err
    assert "--listen" in failed.err


def test_an_unknown_command() -> None:
    failed = polycast_here("serv")
    assert failed.code == 2
    assert failed.out == b""
    assert "serv" in failed.err
