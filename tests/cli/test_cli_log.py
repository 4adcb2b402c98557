"""`polycast log`: info, cat, verify and seal, with a broker and without."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.program import POLYCAST, Finished, polycast, polycast_here
from kit.replay import publish
from kit.room import Room
from kit.wire import GUARD_SECONDS, wait_for
from log.log_builder import SEED, LogBuilder, flip, stop, time_of
from polycast.log.files.folder import SEAL_REQUEST, segments
from polycast.log.files.state import FolderLock, log_id
from polycast.log.repair.salvage import salvage
from polycast.log.upkeep.sealing import seal


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def builder(data: Path) -> LogBuilder:
    """Ten messages sealed, then a gap, then six that are hot."""
    folder = data / "log"
    folder.mkdir(parents=True)
    builder = LogBuilder(folder)
    seal(builder.segment(5, 5))
    builder.skip(90)
    builder.segment(5, 1)
    stop(builder)
    return builder


def run(command: str, data: Path, *arguments: str) -> Finished:
    return polycast_here("log", command, "--data", str(data), *arguments)


def iso(offset: int) -> str:
    return datetime.fromtimestamp(time_of(offset) / 1e6, UTC).isoformat()


@pytest.mark.parametrize("command", ["info", "cat", "verify", "seal", "backup", "restore"])
def test_the_help_ends_with_an_example(command: str) -> None:
    shown = polycast_here("log", command, "--help")
    assert (shown.code, shown.err) == (0, "")
    last = " ".join(shown.out.decode().strip().split("\n\n")[-1].split())
    assert last.startswith(f"Example: polycast log {command}")


@pytest.mark.parametrize("command", ["info", "cat", "verify", "seal"])
@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a file"])
def test_with_no_log(tmp_path: Path, command: str, what: str) -> None:
    folder = tmp_path / "data"
    if what == "an empty folder":
        folder.mkdir()
    if what == "a file":
        folder.write_text("")
    failed = polycast_here("log", command, env={"POLYCAST_DATA": str(folder)})
    assert (failed.code, failed.out) == (2, b"")
    assert failed.err == (
        f"polycast: there is no log in {folder}\nhint: --data DIR or POLYCAST_DATA sets the data folder\n"
    )


# -- info ------------------------------------------------------------------------------------------------


def test_info_in_json(builder: LogBuilder, data: Path) -> None:
    shown = run("info", data, "--json")
    assert (shown.code, shown.err) == (0, "")
    about = json.loads(shown.out)
    sealed, hot = (segment.path.read_bytes() for segment in segments(builder.folder))
    sizes = [len(sealed), about["segments"][1]["bytes"]]
    assert 0 < sizes[1] < len(hot) and not any(hot[sizes[1] :]), "zeros behind the last group do not count"
    assert about == {
        "id": log_id(f"{SEED:016x}"), "folder": str(builder.folder),
        "running": False,
        "clean": True,
        "first": 0,
        "next": 106,
        "messages": 16,
        "bytes": sum(sizes),
        "segments": [
            {
                "first": 0, "next": 10, "messages": 10, "bytes": sizes[0], "kind": "sealed",
                "began": "2023-11-14T22:13:20.000+00:00", "ended": "2023-11-14T22:13:29.000+00:00", "damage": "",
            },
            {
                "first": 100, "next": 106, "messages": 6, "bytes": sizes[1], "kind": "hot",
                "began": "2023-11-14T22:15:00.000+00:00", "ended": "2023-11-14T22:15:05.000+00:00", "damage": "",
            },
        ],
        "gaps": [{"first": 10, "next": 100, "reason": "unclean stop"}],
        "quarantined": [],
    }  # fmt: skip


def test_info_as_text(builder: LogBuilder, data: Path) -> None:
    shown = run("info", data)
    lines = shown.out.decode().splitlines()
    assert lines[0].split() == ["first", "next", "messages", "bytes", "kind", "began", "ended"]
    assert lines[1].split()[:3] == ["0", "10", "10"]
    assert lines[2].split()[4] == "hot"
    assert re.fullmatch(r"16 messages, offsets 0 to 105, in [\d,]+ bytes; stopped cleanly", lines[3])
    assert lines[4] == "gap: offsets 10 to 99: unclean stop"


def test_info_about_damage_and_quarantine(builder: LogBuilder, data: Path) -> None:
    hot = segments(builder.folder)[1].path
    flip(hot, builder.positions[0] + 900)
    lines = run("info", data).out.decode().splitlines()
    assert f"damage: {hot}, byte {builder.positions[0]:,}: the group's checksum is wrong" in lines
    salvage(hot)
    lines = run("info", data).out.decode().splitlines()
    assert f"gap: offsets 100 to 104: lost to damage, see quarantine/{hot.name}" in lines
    assert f"quarantined: {hot.name}, 4,096 bytes" in lines


def test_info_about_a_log_that_is_in_use(builder: LogBuilder, data: Path) -> None:
    lock = FolderLock(builder.folder)
    assert "the broker is running" in run("info", data).out.decode()
    lock.release()
    stop(builder, clean=False)
    assert "the last stop was not clean" in run("info", data).out.decode()


def test_info_about_an_empty_log(data: Path) -> None:
    (data / "log").mkdir(parents=True)
    shown = run("info", data)
    assert (shown.code, shown.out) == (0, b"0 messages, no offsets, in 0 bytes; the last stop was not clean\n")


# -- cat -------------------------------------------------------------------------------------------------


def test_cat_in_json(builder: LogBuilder, data: Path) -> None:
    shown = run("cat", data, "--json")
    assert (shown.code, shown.err) == (0, "")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [row["offset"] for row in rows] == [row["offset"] for row in builder.rows]
    assert rows[1] == {
        "offset": 1, "topic": "b.c", "sequence": 0, "time": "2023-11-14T22:13:21+00:00", "dialect": "hermod",
        "format": "bytes", "payload": "1:\x01", "source": "tcp://127.0.0.1:5",
    }  # fmt: skip


def test_cat_in_lines(builder: LogBuilder, data: Path) -> None:
    shown = run("cat", data, "--count", "2")
    assert shown.out == (b"0 2023-11-14T22:13:20.000000Z a 0 0:\n1 2023-11-14T22:13:21.000000Z b.c 0 1:\\x01\n")


def test_cat_escapes_bytes_that_are_not_text(data: Path) -> None:
    folder = data / "log"
    folder.mkdir(parents=True)
    builder = LogBuilder(folder)
    builder.segment(1, payload=b"\xff\x00 \xc3\xa4\n\x1b[2J", topics=("evil\x1b",))
    [line] = run("cat", data).out.decode().splitlines()
    assert line.split(" ", 2)[2] == "evil\\x1b 0 \\xff\\x00 ä\\n\\x1b[2J"
    row = json.loads(run("cat", data, "--json").out)
    assert row["payload"] == {"$base64": "/wAgw6QKG1sySg=="}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--topic", "a"], [0, 2, 4, 6, 8, 100, 102, 104]),
        (["--topic", "b.>", "--topic", "~zzz"], [1, 3, 5, 7, 9, 101, 103, 105]),
        (["--from", "8"], [8, 9, 100, 101, 102, 103, 104, 105]),
        (["--from", "50", "--count", "2"], [100, 101]),
        (["--from", iso(103)], [103, 104, 105]),
        (["--from", "-10m"], []),
        (["--from", "latest"], []),
        (["--from", "earliest", "--topic", "a", "--count", "6"], [0, 2, 4, 6, 8, 100]),
    ],
)
def test_cat_of_some_messages(builder: LogBuilder, data: Path, arguments: list[str], expected: list[int]) -> None:
    shown = run("cat", data, *arguments)
    assert (shown.code, shown.err) == (0, "")
    assert [int(line.split()[0]) for line in shown.out.splitlines()] == expected


def test_cat_reports_unreadable_segments(builder: LogBuilder, data: Path) -> None:
    hot = segments(builder.folder)[1].path
    flip(hot, builder.positions[0] + 900)
    shown = polycast("log", "cat", "--data", str(data))
    assert len(shown.out.splitlines()) == 11
    assert "offsets 10 to 104 cannot be read" in shown.err
    assert str(hot) in shown.err


def test_cat_into_a_pipe_that_is_closed(data: Path) -> None:
    folder = data / "log"
    folder.mkdir(parents=True)
    LogBuilder(folder).segment(5000)
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as pipe:
        done = subprocess.run(
            [*POLYCAST, "log", "cat", "--data", str(data)],
            stdout=pipe, stderr=subprocess.PIPE, timeout=GUARD_SECONDS, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_cat_from_an_invalid_position(builder: LogBuilder, data: Path) -> None:
    failed = run("cat", data, "--from", "yesterday")
    assert failed.code == 2
    assert "'yesterday' is not a position in the log" in failed.err


# -- verify ----------------------------------------------------------------------------------------------


def test_verify_a_log_as_it_should_be(builder: LogBuilder, data: Path) -> None:
    shown = run("verify", data)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == (
        b"note: gap: unclean stop (offsets from 10 to 99)\n16 messages are intact; damage: 0, notes: 1\n"
    )


def test_verify_names_the_damage(builder: LogBuilder, data: Path) -> None:
    hot = segments(builder.folder)[1].path
    flip(hot, builder.positions[0] + 900)
    failed = run("verify", data)
    assert failed.code == 1
    assert failed.out.decode().splitlines() == [
        f"damage: {hot}, byte {builder.positions[0]:,}: the group's checksum is wrong (offsets from 100 to 104)",
        "11 messages are intact; damage: 1, notes: 0",
    ]
    failed = run("verify", data, "--json")
    assert failed.code == 1
    found, totals = map(json.loads, failed.out.splitlines())
    assert (found["first"], found["next"], found["note"]) == (100, 105, False)
    assert totals == {"messages": 11, "damage": 1, "notes": 0}


def test_verify_shows_the_first_and_counts_the_rest(data: Path) -> None:
    folder = data / "log"
    folder.mkdir(parents=True)
    builder = LogBuilder(folder)
    path = builder.segment(*[1] * 80)
    for position in builder.positions[::2]:
        flip(path, position + 900)
    builder.segment(1)
    failed = run("verify", data)
    assert len(failed.out.splitlines()) == 21
    assert b"and 20 more; 41 messages are intact; damage: 40, notes: 0" in failed.out


# -- seal ------------------------------------------------------------------------------------------------


def test_seal_without_a_broker(builder: LogBuilder, data: Path) -> None:
    builder.segment(3)
    stop(builder)
    shown = run("seal", data)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == b"sealed 2 of 2 hot segments\n"
    assert all(segment.sealed for segment in segments(builder.folder))
    assert run("verify", data).code == 0
    assert run("seal", data).out == b"sealed 0 of 0 hot segments\n"


def test_seal_a_damaged_segment(builder: LogBuilder, data: Path) -> None:
    hot = segments(builder.folder)[1].path
    flip(hot, builder.positions[0] + 900)
    failed = run("seal", data)
    assert failed.code == 1
    assert failed.err == (
        f"polycast: {hot}, byte {builder.positions[0]:,}: the group's checksum is wrong\n"
        "hint: polycast serve copies it to the quarantine and salvages its valid groups\n"
    )
    assert hot.exists()


def test_seal_requests_the_broker_and_waits(builder: LogBuilder, data: Path) -> None:
    """The broker is this test."""
    lock = FolderLock(builder.folder)
    request_file = builder.folder / SEAL_REQUEST
    finished: list[Finished] = []
    thread = threading.Thread(target=lambda: finished.append(polycast("log", "seal", "--data", str(data))))
    thread.start()
    wait_for(request_file.exists, "the request")
    seal(segments(builder.folder)[1].path)
    assert thread.is_alive()
    request_file.unlink()
    thread.join(GUARD_SECONDS)
    lock.release()
    [shown] = finished
    assert (shown.code, shown.err, shown.out) == (0, "", b"sealed 1 of 1 hot segments\n")


def test_seal_requests_a_broker_that_stops(builder: LogBuilder, data: Path) -> None:
    lock = FolderLock(builder.folder)
    finished: list[Finished] = []
    thread = threading.Thread(target=lambda: finished.append(polycast("log", "seal", "--data", str(data))))
    thread.start()
    wait_for((builder.folder / SEAL_REQUEST).exists, "the request")
    lock.release()
    thread.join(GUARD_SECONDS)
    [failed] = finished
    assert failed.code == 1
    assert "the broker stopped before all segments were sealed" in failed.err
    assert not (builder.folder / SEAL_REQUEST).exists()


# -- with a broker ---------------------------------------------------------------------------------------


def test_log_commands_work_while_the_broker_runs(data: Path) -> None:
    with Broker(data=data) as broker, Room(broker) as room:
        room.simplest(b"".join(pub("t", b"%d" % i) for i in range(100)))

        def payloads() -> list[str]:
            lines = run("cat", data, "--topic", "t", "--json").out.splitlines()
            return [json.loads(line)["payload"] for line in lines]

        wait_for(lambda: len(payloads()) == 100, "the messages")
        assert payloads() == [str(i) for i in range(100)]
        assert run("verify", data).code == 0
        assert json.loads(run("info", data, "--json").out)["running"]
        shown = run("seal", data)
        assert (shown.code, shown.err) == (0, "")
        [segment] = segments(data / "log")
        table = pq.read_table(segment.path, filters=[("topic", "=", "t")])
        assert table["payload"].to_pylist() == [b"%d" % i for i in range(100)]
        room.simplest(pub("t", b"more"))
        wait_for(lambda: payloads()[100:] == ["more"], "one more message")
    assert run("verify", data).code == 0
    assert run("seal", data).out == b"sealed 1 of 1 hot segments\n"
    with Broker(data=data):
        assert payloads() == [*map(str, range(100)), "more"]
    assert run("verify", data).code == 0


def test_a_log_can_be_read_in_another_place(builder: LogBuilder, data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    assert run("cat", data).out == run("cat", tmp_path / "copy").out


# -- backup and restore ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["saved", "saved.tar"])
def test_a_backup_of_a_running_broker_is_restored(tmp_path: Path, name: str) -> None:
    saved, new = tmp_path / name, tmp_path / "new"
    with Broker(data=tmp_path / "data") as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, [("t", b"1"), ("t", b"2")])
        made = run("backup", tmp_path / "data", str(saved))
    assert (made.code, made.err) == (0, "")
    assert b"offsets 0 to 1, " in made.out
    again = run("restore", new, str(saved))
    assert (again.code, again.err) == (0, "")
    shown = run("cat", new, "--json").out.splitlines()
    assert [json.loads(line)["payload"] for line in shown] == ["1", "2"]
    refused = run("restore", new, str(saved))
    assert refused.code == 1
    assert refused.err.startswith(f"polycast: {new} is not empty\nhint: ")


def test_a_backup_reports_damage(data: Path, builder: LogBuilder, tmp_path: Path) -> None:
    flip(builder.folder / "00000000000000000100.arrows", 1500)
    made = run("backup", data, str(tmp_path / "saved.tar"))
    assert made.code == 1
    assert made.err == "damage: 1, in the backup as well; polycast log verify names it\n"
    assert (tmp_path / "saved.tar").exists()


@pytest.mark.parametrize("command", ["info", "cat", "verify", "seal", "backup"])
def test_a_log_of_a_newer_version(data: Path, builder: LogBuilder, tmp_path: Path, command: str) -> None:
    state = builder.folder / "state.json"
    state.write_text(state.read_text().replace('"version": 2', '"version": 99'))
    refused = run(command, data, *([str(tmp_path / "saved")] if command == "backup" else []))
    assert refused.code == 1
    assert f"{builder.folder} was written by a newer version of Polycast: 99, this one reads 2" in refused.err
