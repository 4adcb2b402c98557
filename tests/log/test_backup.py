"""Backup and restore: the same log, or a clear refusal."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from log.log_builder import findings
from log.log_rig import FaultyDisk, LogRig, open_rig, reserve_few
from polycast.errors import BackupError, StartError
from polycast.log.backup import backup as backups
from polycast.log.backup.backup import backup
from polycast.log.backup.manifest import Manifest
from polycast.log.backup.restore import restore
from polycast.log.files import permissions
from polycast.log.files.folder import segments
from polycast.log.files.format import Gap
from polycast.log.read.reader import Reader


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)


@pytest.fixture(params=["folder", "tar"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / ("saved" if request.param == "folder" else "saved.tar")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LogRig]:
    """A running log with several segments, some sealed."""
    with open_rig(tmp_path / "data", segment_bytes=65_536, seal=True, seal_share=1.0) as rig:
        rig.fill(20, size=10_000)
        rig.publish(("orders", b"1"), ("orders", b"2"), batch_id="once")
        yield rig


def read_offsets(folder: Path) -> list[int]:
    reader = Reader(folder, 0, ["offset"])
    try:
        return [offset for batch in iter(reader.read, None) for offset in batch["offset"].to_pylist()]
    finally:
        reader.close()


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def rewrite(path: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Changes the members of a tar file."""
    found = members(path)
    change(found)
    with tarfile.open(path, "w") as tar:
        for name, data in found.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def add_member(path: Path, name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> None:
    with tarfile.open(path, "a") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, size
        tar.addfile(member, io.BytesIO(bytes(size)))


# -- the same log ------------------------------------------------------------------------------------------


def test_a_running_log(rig: LogRig, target: Path, tmp_path: Path) -> None:
    made = backup(rig.folder, target)
    assert (made.first, made.next, made.log) == (0, 22, rig.log.id)
    rig.fill(5)
    assert restore(target, tmp_path / "new") == made
    assert read_offsets(tmp_path / "new" / "log") == list(range(22))
    assert findings(tmp_path / "new" / "log") == []
    with open_rig(tmp_path / "new") as again:
        assert again.log.id == rig.log.id
        assert again.find("once") == rig.find("once")
        assert again.log.next >= rig.log.next, "the original has used offsets since"
        again.publish(("orders", b"3"))
        assert again.topics()["orders"][0] > rig.topics()["orders"][0]
    [gap] = [gap for gap in _gaps(tmp_path / "new" / "log") if gap.first == 22]
    assert gap.reason.startswith("restored from a backup of 20")
    assert not gap.missed


def _gaps(folder: Path) -> list[Gap]:
    from polycast.log.upkeep.inventory import Inventory

    inventory = Inventory(folder)
    inventory.update(10**9)
    return inventory.gaps


def test_a_stopped_log_continues_as_if_nothing_had_happened(tmp_path: Path, target: Path) -> None:
    with open_rig(tmp_path / "data") as rig:
        rig.fill(5)
        rig.publish(("orders", b"1"), batch_id="once")
    backup(rig.folder, target)
    restore(target, tmp_path / "new")
    with open_rig(tmp_path / "new") as again:
        assert (again.log.next, again.topics(), again.find("once")) == (6, rig.topics(), rig.find("once"))
        again.fill(1)
    assert read_offsets(tmp_path / "new" / "log") == list(range(7))
    assert findings(tmp_path / "new" / "log") == []


def test_an_empty_log(tmp_path: Path, target: Path) -> None:
    with open_rig(tmp_path / "data") as rig:
        made = backup(rig.folder, target)
    assert made.first == made.next == 0
    restore(target, tmp_path / "new")
    with open_rig(tmp_path / "new") as again:
        again.fill(1)


def test_a_backup_while_messages_are_written_sealed_and_removed(tmp_path: Path, target: Path) -> None:
    """Every backup is a range without holes, however the files change meanwhile."""
    with open_rig(tmp_path / "data", segment_bytes=65_536, seal=True, seal_share=1.0, retain_bytes=150_000) as rig:
        rig.fill(30, size=10_000)
        for number in range(5):
            place = target.with_name(f"{number}-{target.name}")
            made = backup(rig.folder, place, lambda phase: lambda done: rig.fill(1, size=20_000) if done else None)
            restore(place, tmp_path / f"new-{number}")
            found = read_offsets(tmp_path / f"new-{number}" / "log")
            assert found == list(range(made.first, made.next))
            assert findings(tmp_path / f"new-{number}" / "log") == []


def test_retention_removes_segments_during_a_backup(rig: LogRig, target: Path, tmp_path: Path) -> None:
    oldest = segments(rig.folder)[:2]

    def remove(done: int) -> None:
        for segment in oldest:
            for path in rig.folder.glob(f"{segment.path.stem}*"):
                path.unlink()

    made = backup(rig.folder, target, lambda phase: remove)
    assert made.first == segments(rig.folder)[0].first > 0
    restore(target, tmp_path / "new")
    assert read_offsets(tmp_path / "new" / "log") == list(range(made.first, 22))


# -- targets that are refused --------------------------------------------------------------------------------


REFUSED = ("data", "data/log", "data/log/saved", "data/saved.tar", "link", "link.tar", "missing/a.tar", "full")


@pytest.mark.parametrize("name", REFUSED)
def test_targets_that_are_refused(rig: LogRig, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link.tar").symlink_to(tmp_path / "elsewhere" / "a.tar")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    with pytest.raises(BackupError, match=r"inside the data folder|symbolic link|is not an? [ a-z]*folder"):
        backup(rig.folder, tmp_path / name)
    assert (tmp_path / "full" / "mine").read_text() == "precious"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.zip", "a.TAR.GZ", "a.tar.zst"])
def test_names_of_compressed_archives_are_refused(rig: LogRig, tmp_path: Path, name: str) -> None:
    """A folder of that name would be a surprise."""
    with pytest.raises(BackupError, match=r"a backup is a folder or a \.tar file") as raised:
        backup(rig.folder, tmp_path / name)
    assert "ends with .tar" in raised.value.hint
    assert not (tmp_path / name).exists()


def test_a_data_folder_behind_a_link(rig: LogRig, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(rig.data)
    with pytest.raises(BackupError, match="inside the data folder"):
        backup(rig.folder, tmp_path / "way" / "saved.tar")


FAULTS = (("a", "write"), ("a", "sync"), ("a.tar", "sync"), ("a.tar", "rename"))


@pytest.mark.parametrize(("name", "action"), FAULTS)
def test_a_full_disk_leaves_no_backup(rig: LogRig, tmp_path: Path, name: str, action: str) -> None:
    disk, target = FaultyDisk(), tmp_path / name
    disk.fail(action, f"/{name}", errno.ENOSPC)
    with pytest.raises(BackupError, match="No space left on device"):
        backup(rig.folder, target, disk=disk)
    assert [path.name for path in target.parent.iterdir()] == ["data"]


# -- backups that are refused --------------------------------------------------------------------------------


@pytest.fixture
def saved(rig: LogRig, tmp_path: Path) -> Path:
    backup(rig.folder, tmp_path / "saved.tar")
    return tmp_path / "saved.tar"


def refuse(source: Path, words: str, data: Path | None = None) -> None:
    new = data or source.with_name("new")
    before = sorted(new.rglob("*")) if new.exists() else None
    with pytest.raises(BackupError, match=words):
        restore(source, new)
    assert (sorted(new.rglob("*")) if new.exists() else None) == before


def test_members_that_lead_elsewhere(saved: Path) -> None:
    whole = saved.read_bytes()
    for name, kind, link, words in (
        ("/etc/passwd", tarfile.REGTYPE, "", "is not the name of a file of a log"),
        ("../state.json", tarfile.REGTYPE, "", "is not the name of a file of a log"),
        ("quarantine/../../x", tarfile.REGTYPE, "", "is not the name of a file of a log"),
        ("quarantine/0", tarfile.SYMTYPE, "/etc/passwd", "is not a plain file"),
        ("quarantine/0", tarfile.LNKTYPE, "state.json", "is not a plain file"),
        ("quarantine/0", tarfile.CHRTYPE, "", "is not a plain file"),
        ("quarantine/0", tarfile.FIFOTYPE, "", "is not a plain file"),
        ("quarantine", tarfile.DIRTYPE, "", "is not a plain file"),
        ("quarantine/0", tarfile.GNUTYPE_SPARSE, "", "is not a plain file"),
        ("state.json", tarfile.REGTYPE, "", "is there twice"),
        ("manifest.json", tarfile.REGTYPE, "", "is there twice"),
        ("quarantine/0", tarfile.REGTYPE, "", "in the tar file, and not in its manifest"),
    ):
        saved.write_bytes(whole)
        add_member(saved, name, kind, link)
        refuse(saved, words)


def test_a_backup_that_is_not_whole(saved: Path) -> None:
    whole, size = saved.read_bytes(), saved.stat().st_size
    for length in (0, 100, 513, size // 2, size - 20 * 512):
        saved.write_bytes(whole[:length])
        refuse(saved, "is not a whole backup")
    saved.write_bytes(whole)
    rewrite(saved, lambda found: found.pop("state.json"))
    refuse(saved, "state.json is in the manifest, and not in the tar file")


def test_a_byte_that_is_wrong(saved: Path) -> None:
    def flip(found: dict[str, bytes]) -> None:
        name = min(found)
        found[name] = found[name][:500] + bytes([found[name][500] ^ 1]) + found[name][501:]

    rewrite(saved, flip)
    refuse(saved, "is damaged: its sha256 is")


@pytest.mark.parametrize("key", ["format", "version"])
def test_a_newer_version(saved: Path, key: str) -> None:
    def change(found: dict[str, bytes]) -> None:
        text = msgspec.json.decode(found["manifest.json"])
        found["manifest.json"] = msgspec.json.encode(text | {key: 99})

    rewrite(saved, change)
    refuse(saved, "was written by a newer version of Polycast: 99")


def test_a_backup_larger_than_the_disk(saved: Path) -> None:
    """A sparse tar file may claim any size."""

    def change(found: dict[str, bytes]) -> None:
        text = msgspec.json.decode(found["manifest.json"], type=Manifest)
        files = [file if file.name == "state.json" else replace(file, bytes=2**50) for file in text.files]
        found["manifest.json"] = msgspec.json.encode(replace(text, files=files))

    rewrite(saved, change)
    refuse(saved, "has [0-9,]+ bytes, and 1,125,899,906,842,624 in the manifest")


def test_not_a_backup(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    refuse(tmp_path / "text", "is not a whole backup")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "manifest.json is missing")
    refuse(tmp_path / "nothing", "there is no backup at")
    long_name = tarfile.TarInfo("x")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 1
    (tmp_path / "deep").write_bytes((long_name.tobuf() + bytes(512)) * 2000)
    refuse(tmp_path / "deep", "is not a whole backup: invalid headers")


def test_a_folder_with_links(rig: LogRig, tmp_path: Path) -> None:
    backup(rig.folder, tmp_path / "saved")
    state = tmp_path / "saved" / "state.json"
    shutil.copy(state, tmp_path / "mine")
    state.unlink()
    state.symlink_to(tmp_path / "mine")
    refuse(tmp_path / "saved", "cannot be read: Too many levels of symbolic links")
    state.unlink()
    os.mkfifo(state)
    refuse(tmp_path / "saved", "is not a plain file")


# -- restores that end early -----------------------------------------------------------------------------------


def test_a_folder_of_another_account(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(permissions, "ROOT", 4322)
    with pytest.raises(StartError, match="belongs to another account"):
        restore(saved, tmp_path / "new")
    assert not any((tmp_path / "new").iterdir())


def test_a_folder_that_is_not_empty(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("precious")
    refuse(saved, "is not empty")
    assert (tmp_path / "new" / "mine").read_text() == "precious"


@pytest.mark.parametrize("action", ["write", "sync", "rename"])
def test_a_full_disk_during_a_restore(saved: Path, tmp_path: Path, action: str) -> None:
    disk = FaultyDisk()
    disk.fail(action, "log", errno.ENOSPC, passing=3 if action == "write" else 0)
    with pytest.raises(BackupError, match="No space left on device"):
        restore(saved, tmp_path / "new", disk=disk)
    assert not (tmp_path / "new").exists()


def test_too_little_room(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyDisk, "free_bytes", lambda *_: 1000)
    with pytest.raises(BackupError, match="and 1,000 bytes are free"):
        restore(saved, tmp_path / "new", disk=FaultyDisk())
    assert not (tmp_path / "new").exists()


def test_a_broker_does_not_start_on_half_a_restore(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a killed process leaves it: nothing cleans up."""
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    disk = FaultyDisk()
    disk.fail("sync", ".arrows")
    with pytest.raises(BackupError):
        restore(saved, tmp_path / "new", disk=disk)
    assert not (tmp_path / "new" / "log").exists()
    with pytest.raises(StartError, match=r"log\.restoring is there: the log was not restored completely"):
        LogRig(tmp_path / "new")
    refuse(saved, "from a restore that did not end", tmp_path / "new")


def test_a_backup_with_a_wrong_file_is_found_when_it_is_read_back(
    rig: LogRig, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(source: Path, *_: object) -> None:
        raise BackupError(f"{source}: a file is damaged")

    monkeypatch.setattr(backups, "check_files", spoil)
    with pytest.raises(BackupError, match="is damaged"):
        backup(rig.folder, target)
    assert not target.exists()
