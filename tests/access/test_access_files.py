"""Modes of the data folder and its files: only the owner can read them, unless log.access allows more."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import OK
from kit.program import polycast, polycast_here
from kit.replay import total
from kit.wire import wait_for
from polycast.address import parse_address
from polycast.errors import StartError
from polycast.log.files import permissions
from polycast.log.files.permissions import OURS, UMASKS
from polycast.server.access.tokens import FILE, digest_of, read_tokens
from polycast.server.io import sockets

OTHERS = stat.S_IRWXG | stat.S_IRWXO
SMALL = "--set=log.segment_bytes=65536"
NOBODY = 65534


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The usual umask, whichever account runs the tests."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes_under(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): mode_of(path) for path in [folder, *folder.rglob("*")]}


def run_a_broker(data: Path, *flags: str, sealed: int = 1) -> str:
    """The stderr of a broker that leaves hot and sealed segments, snapshots and a state file."""
    with Broker(SMALL, *flags, data=data, fresh=True) as broker, broker.connect("hermod.pub") as peer:
        for _ in range(4):
            peer.send(hermod.message("t", b"x" * 40_000))
            peer.expect(OK)
        wait_for(lambda: total(broker, "log_segments_sealed_total") >= sealed, "a segment to be sealed")
        broker.stop()
        return broker.log()


# -- the broker ------------------------------------------------------------------------------------------


def test_only_the_owner_can_read_the_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run_a_broker(data)
    found = modes_under(data)
    suffixes = {Path(name).suffix for name in found}
    assert {".arrows", ".parquet", ".topics", ".batches", ".json"} <= suffixes and "log/.lock" in found
    assert {name: oct(mode) for name, mode in found.items() if mode & OTHERS} == {}
    assert (found["."], found["log"], found["log/state.json"]) == (0o700, 0o700, 0o600)


@pytest.mark.parametrize(("access", "folder", "file"), [("group", 0o750, 0o640), ("all", 0o755, 0o644)])
def test_the_group_or_all_accounts_can_read_if_configured(
    access: str, folder: int, file: int, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    run_a_broker(data, f"--set=log.access={access}")
    modes = modes_under(data)
    assert {mode for name, mode in modes.items() if (data / name).is_dir()} == {folder}
    assert {mode for name, mode in modes.items() if (data / name).is_file()} == {file}


def test_a_stricter_umask_is_respected(tmp_path: Path) -> None:
    os.umask(0o077)
    run_a_broker(tmp_path / "data", "--set=log.access=all")
    assert {mode & OTHERS for mode in modes_under(tmp_path / "data").values()} == {0}


def test_the_mode_of_an_older_folder_is_tightened_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run_a_broker(data, "--set=log.access=all")
    text = run_a_broker(data)
    assert (mode_of(data), mode_of(data / "log")) == (0o700, 0o700)
    assert f"{data}: the mode was 0755 and is now 0700 (log.access)" in text
    assert "the mode was" not in run_a_broker(data)


@pytest.mark.parametrize("link", [False, True], ids=["folder", "link"])
def test_a_data_folder_of_another_account_is_refused(
    link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could add tokens, or a link to anywhere."""
    data, there = tmp_path / "data", tmp_path / "there"
    there.mkdir()
    if link:
        data.symlink_to(there)
    else:
        data.mkdir()
    permissions.check_owners(data)
    permissions.check_owners(tmp_path / "nothing")
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(permissions, "ROOT", 4322)
    with pytest.raises(StartError, match=f"{data} belongs to another account"):
        permissions.check_owners(data)


def test_stages_of_another_account_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared folder such as /tmp, anybody can make the folder first, and put links into it."""
    tmp_path.chmod(0o1777)
    (tmp_path / "stages").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(permissions, "ROOT", 4322)
    with pytest.raises(StartError, match=f"{tmp_path}/stages belongs to another account"):
        permissions.check_owners(tmp_path)


def test_a_folder_with_foreign_files_keeps_its_mode_and_the_log_does_not(tmp_path: Path) -> None:
    data = tmp_path / "home"
    (data / "log").mkdir(parents=True)
    (data / "letters").touch()
    data.chmod(0o755)
    text = run_a_broker(data)
    assert (mode_of(data), mode_of(data / "log"), mode_of(data / "letters")) == (0o755, 0o700, 0o644)
    assert f"other accounts can read {data}: its mode is 0755; chmod 700 {data}, or set log.access" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another account")
def test_a_link_of_another_account_is_not_followed(tmp_path: Path) -> None:
    """Where others may write, as in /tmp, a link with the name of one of the broker's folders leads anywhere."""
    data, there, own = tmp_path / "data", tmp_path / "there", tmp_path / "own"
    for folder in (data, there, own):
        folder.mkdir()
        folder.chmod(0o755)
    (data / "lake").symlink_to(there)
    os.lchown(data / "lake", NOBODY, NOBODY)
    (data / "quality").symlink_to(own)
    (data / "index").mkdir(mode=0o755)
    os.chown(data / "index", NOBODY, NOBODY)
    permissions.protect(data, UMASKS["owner"])
    found = (mode_of(there), mode_of(own), mode_of(data / "index"), mode_of(data))
    assert found == (0o755, 0o700, 0o755, 0o700)


def test_an_empty_shared_folder_keeps_its_mode(tmp_path: Path) -> None:
    data = tmp_path / "tmp"
    data.mkdir()
    data.chmod(0o1777)
    permissions.protect(data, UMASKS["owner"])
    assert stat.S_IMODE(data.stat().st_mode) == 0o1777


def test_the_mode_of_a_socket_file_is_not_given_to_a_file_that_replaced_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, secret = tmp_path / "socket", tmp_path / "secret"
    secret.touch(0o600)

    class Raced(socket.socket):
        def bind(self, address: Any, /) -> None:
            super().bind(address)
            path.unlink()
            path.symlink_to(secret)

    monkeypatch.setattr(socket, "socket", Raced)
    with pytest.raises(StartError, match="cannot listen for simplest"):
        sockets.listen("simplest", parse_address(f"ipc://{path}?mode=666"))
    assert mode_of(secret) == 0o600


def test_all_files_of_a_data_folder_are_known(tmp_path: Path) -> None:
    """Otherwise files of an older version would keep their mode."""
    data = tmp_path / "data"
    run_a_broker(data)
    polycast_here("token", "new", "a", f"--data={data}")
    assert {path.name for path in data.iterdir()} <= OURS


def test_only_the_owner_can_use_a_socket_file_unless_its_mode_allows_more(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    flags = [f"--listen=simplest=ipc://{own}", f"--listen=http=ipc://{shared}?mode=660"]
    with Broker(*flags, listen=(), fresh=True):
        assert (mode_of(own) & OTHERS, mode_of(shared)) == (0, 0o660)
    bad = polycast_here("serve", "--check", f"--listen=http=ipc://{shared}?mode=rw")
    assert bad.code == 2 and "mode=rw: expected three octal digits" in bad.err
    bad = polycast_here("serve", "--check", "--listen=http=tcp://127.0.0.1:0?mode=660")
    assert bad.code == 2 and "unknown option mode" in bad.err


# -- commands --------------------------------------------------------------------------------------------


def test_a_new_token_creates_a_folder_that_only_its_owner_can_read(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    assert polycast("token", "new", "a", f"--data={data}").code == 0
    assert (mode_of(data), mode_of(data / FILE)) == (0o700, 0o600)


def test_commands_write_with_the_modes_of_the_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for access, expected in (("group", 0o640), ("owner", 0o600)):
        run_a_broker(data, "--set=log.seal=false", f"--set=log.access={access}", sealed=0)
        assert polycast("log", "seal", f"--data={data}").code == 0
        assert mode_of(max((data / "log").glob("*.parquet"))) == expected


def test_a_token_is_written_to_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    os.umask(0)
    file = tmp_path / "sensors.token"
    made = polycast_here("token", "new", "sensors", f"--file={file}", f"--data={tmp_path}")
    assert (made.code, made.out) == (0, b"")
    [known] = read_tokens(tmp_path / FILE)
    token = file.read_text().strip()
    assert known.sha256 == digest_of(token) and token not in made.err
    assert mode_of(file) == 0o600


def test_an_existing_file_is_never_overwritten_by_a_token(tmp_path: Path) -> None:
    file, link = tmp_path / "mine", tmp_path / "link"
    file.write_text("mine")
    link.symlink_to(tmp_path / "elsewhere")
    for path in (file, link):
        made = polycast_here("token", "new", "sensors", f"--file={path}", f"--data={tmp_path}")
        assert made.code == 2
        assert f"{path} exists\nhint: choose another file, or remove that one first" in made.err
    assert file.read_text() == "mine" and not (tmp_path / "elsewhere").exists()
    assert read_tokens(tmp_path / FILE) == [], "nobody has seen a token"


def test_a_refused_token_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert polycast_here("token", "new", "anonymous", f"--file={file}", f"--data={tmp_path}").code == 2
    assert not file.exists()
    missing = tmp_path / "no" / "token"
    made = polycast_here("token", "new", "a", f"--file={missing}", f"--data={tmp_path}")
    assert made.code == 1 and "No such file or directory" in made.err
