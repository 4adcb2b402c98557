"""Streams that lost data, and how they are restored from a log."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from nats.errors import Error as NatsError

from cluster.place import Place, send, wait_level
from kit.broker import Broker
from kit.nats import Servers
from kit.wire import wait_for


def expect_stop(node: Broker, text: str) -> None:
    node.wait_for_log(text)
    assert node.process.wait(20) == 1
    node.exit_code = 1


def test_replace_refuses_a_log_that_is_shorter_than_the_stream(place: Place) -> None:
    with place.node("a") as first:
        with place.node("b"):
            send(first, "t", b"1")
            wait_level(first, 2)
        send(first, "t", b"2")
        send(first, "t", b"3")
    for flags in ([], ["--replace"]):
        refused = place.restore("b", "--yes", *flags)
        assert refused.code == 1, refused
        assert ("ends at message 3, and this log at message 1 of it" in refused.err) == bool(flags)
    assert place.restore("a", "--yes").code == 1
    done = place.restore("a", "--yes", "--replace")
    assert done.code == 0, done
    with place.node("a") as first, place.node("b"):
        send(first, "t", b"4")
        wait_level(first, 2)
    assert place.table("a")["payload"].to_pylist() == [b"1", b"2", b"3", b"4"]
    assert place.table("a").equals(place.table("b"))


def test_a_folder_without_the_log_of_a_node_is_left_as_it_is(place: Place) -> None:
    refused = place.restore("missing")
    assert refused.code == 1
    assert f"{place.folder / 'missing' / 'log'} is not the log of a node" in refused.err
    assert not (place.folder / "missing").exists()
    with place.single("alone") as alone:
        send(alone, "t", b"1")
    before = {path.name: path.stat().st_mtime_ns for path in (place.folder / "alone" / "log").iterdir()}
    assert place.restore("alone", "--yes").code == 1
    after = {path.name: path.stat().st_mtime_ns for path in (place.folder / "alone" / "log").iterdir()}
    assert after == before


def test_restore_keeps_the_modes_of_files(place: Place) -> None:
    with place.node("a") as node:
        send(node, "t", b"1")
    before = modes(place.folder / "a")
    umask = os.umask(0o022)
    try:
        assert place.restore("a").code == 0
        assert place.restore("a", "--yes", "--replace").code == 0
    finally:
        os.umask(umask)
    after = modes(place.folder / "a")
    assert {name: after[name] for name in before if name in after} == before
    assert set(after.values()) == {0o700, 0o600}


def modes(data: Path) -> dict[str, int]:
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}


def test_a_stream_that_was_made_anew_stops_all_nodes(place: Place) -> None:
    """Its sequences reach those of the stream before; nothing of it is applied."""
    with place.node("a") as first, place.node("b") as second:
        for number in range(3):
            send(first, "t", b"%d" % number)
        wait_level(first, 2)
        config = json.dumps(place.config()).encode()
        place.call(f"$JS.API.STREAM.DELETE.{place.stream}")
        place.call(f"$JS.API.STREAM.CREATE.{place.stream}", config)
        for _ in range(10):
            place.call(f"{place.stream}.log", b"of the new stream")
        for node in (first, second):
            expect_stop(node, "is not the stream that this node has applied")
            assert "is no proposal" not in node.log()
    assert place.table("a")["payload"].to_pylist() == [b"0", b"1", b"2"]
    assert "is not the stream that this node has applied" in place.refusal("a")
    assert "--replace removes it" in place.restore("a", "--yes").err
    done = place.restore("a", "--yes", "--replace")
    assert json.loads(done.out)["restored"], done
    with place.node("a") as first, place.node("b") as second:
        send(second, "t", b"3")
        wait_level(first, 2)
    assert place.table("a")["sequence"].to_pylist() == [0, 1, 2, 3]
    assert place.table("a").equals(place.table("b"))


def test_a_stream_that_lost_its_tail_stops_all_nodes(tmp_path: Path) -> None:
    """The store of the server is replaced by an older copy."""
    servers = Servers(tmp_path / "nats", 1)
    store, copy = tmp_path / "nats" / "s0" / "js", tmp_path / "copy"
    with servers:
        place = Place(servers, tmp_path, "TAIL")
        with place.node("a") as node:
            send(node, "t", b"1")
            servers.kill(0)
            shutil.copytree(store, copy)
            servers.start(0)
            servers.wait()
            send(node, "t", b"2")
            servers.kill(0)
            shutil.rmtree(store)
            shutil.copytree(copy, store)
            servers.start(0)
            servers.wait()
            expect_stop(node, "the stream ends at message 1, and this node has applied 2")
        assert "ends at message 1, and this node has applied 2" in place.refusal("a")
        assert place.table("a")["payload"].to_pylist() == [b"1", b"2"]
        assert place.restore("a", "--yes", "--replace").code == 0
        with place.node("a") as node:
            send(node, "t", b"3")
        assert place.table("a")["payload"].to_pylist() == [b"1", b"2", b"3"]


def test_a_stream_that_lost_its_tail_and_grew_again_stops_all_nodes(tmp_path: Path) -> None:
    """Before a node looks at it, it is as long as it was, with other messages."""
    servers = Servers(tmp_path / "nats", 1)
    store, copy = tmp_path / "nats" / "s0" / "js", tmp_path / "copy"
    with servers:
        place = Place(servers, tmp_path, "GROWN")
        with place.node("a") as first, place.node("b") as second:
            send(first, "t", b"1")
            servers.kill(0)
            shutil.copytree(store, copy)
            servers.start(0)
            servers.wait()
            send(second, "t", b"2")
            wait_level(first, 2)
            servers.kill(0)
            shutil.rmtree(store)
            shutil.copytree(copy, store)
            servers.start(0)
            servers.wait()
            for sequence in (2, 3, 4):
                assert publish_to_stream(place)["seq"] == sequence
            for node in (first, second):
                expect_stop(node, "message 2 of the stream is not the one that this node has applied")
        assert place.table("a")["payload"].to_pylist() == [b"1", b"2"]
        assert place.table("b").equals(place.table("a"))
        assert "message 2 of the stream is not the one" in place.refusal("a")
        assert place.restore("a", "--yes").code == 1
        assert place.restore("a", "--yes", "--replace").code == 0
        with place.node("a") as first, place.node("b"):
            send(first, "t", b"3")
            wait_level(first, 2)
        assert place.table("b")["payload"].to_pylist() == [b"1", b"2", b"3"]


def publish_to_stream(place: Place) -> dict[str, Any]:
    """As soon as the server has its streams."""

    def publish() -> dict[str, Any]:
        with suppress(NatsError):
            found: dict[str, Any] = place.call(f"{place.stream}.log", b"of another program")
            return found
        return {}

    return wait_for(publish, "an acknowledgement of the stream")


def test_a_node_of_a_stream_before_the_last_is_told_to_copy(place: Place) -> None:
    with place.node("old") as behind, place.node("a"):
        send(behind, "t", b"1")
        wait_level(behind, 2)
    for number in (2, 3):
        assert place.restore("a", "--yes", "--replace").code == 0
        with place.node("a") as node:
            send(node, "t", b"%d" % number)
    refused = place.refusal("old")
    assert "move the data folder away" in refused
    shorter = place.restore("old", "--yes", "--replace")
    assert "the stream begins at offset 2, and has 1 messages; this log ends at offset 1" in shorter.err
    with place.node("a") as node:
        shutil.move(place.folder / "old", place.folder / "aside")
        with place.node("old"):
            wait_level(node, 2)
    assert place.table("old").equals(place.table("a"))
