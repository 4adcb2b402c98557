"""How a folder and a stream come together, on one server: every case that goes on, and every refusal."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import urllib.request
from random import Random

import msgspec
import pytest

from cluster.machine_rig import Plan
from cluster.place import Place, send, wait_level
from cluster.trio import LISTEN, read_table
from kit import hermod
from kit.broker import Broker
from kit.nats import Servers
from kit.program import polycast
from kit.subscribers import send_request
from kit.wire import GUARD_SECONDS, wait_for
from polycast.cluster.messages import VERSION, Head, MessageKind, write_body, write_message

NEVER = write_body([Plan([b"t"], 2**44, None).propose()])
FUTURE = msgspec.msgpack.encode([["other", 0, ["o", "b"], 1, False, [], ["hermod", [[10**6]]]]])
SHAPED = (
    write_message(Head("other", 1, 1), NEVER),
    write_message(Head("other", 1, 1, 0, 1, MessageKind.COMMIT), FUTURE),
)
"""A time that no node has, and a commit of messages that the stream does not have."""


def test_a_single_broker_becomes_the_first_node_and_a_single_broker_again(place: Place) -> None:
    with place.single("a") as alone:
        send(alone, "t", b"1", b"2")
    with place.node("a") as first:
        send(first, "t", b"3")
        with place.node("b") as second:
            send(second, "t", b"4")
            wait_level(first, 2)
        refused = place.refusal("c", data=_single_log(place, "c"))
        assert "not the beginning of this cluster" in refused
    assert place.table("a").equals(place.table("b"))
    assert place.table("a")["sequence"].to_pylist() == [0, 1, 2, 3]
    with place.single("b") as alone:
        send(alone, "t", b"5")
    assert place.table("b")["payload"].to_pylist() == [b"1", b"2", b"3", b"4", b"5"]
    assert "not the beginning" in place.refusal("b")


def test_a_single_broker_without_messages_becomes_the_first_node(place: Place) -> None:
    with place.single("a"):
        pass
    with place.single("killed") as alone:
        alone.kill()
    with place.node("a") as first, place.node("b") as second:
        send(second, "t", b"1")
        wait_level(first, 2)
    assert place.table("a").equals(place.table("b"))
    with place.node("killed", f"--set=cluster.stream={place.stream}2") as first:
        send(first, "t", b"1")


def _single_log(place: Place, name: str) -> str:
    with place.single(name) as alone:
        send(alone, "t", b"other")
    return name


def test_a_node_copies_what_the_stream_has_forgotten(place: Place) -> None:
    with place.node("a") as first:
        with place.node("b") as away:
            send(away, "t", b"before")
            wait_level(first, 2)
        for number in range(8):
            send(first, "t", Random(number).randbytes(1_000_000))
        assert send_request(first, "polycast/cluster")["stream"]["first"] > 1
        with place.node("b"), place.node("new"):
            send(first, "t", b"after")
            wait_level(first, 3)
    assert place.table("a").equals(place.table("b"))
    assert place.table("a").equals(place.table("new"))
    [aside] = place.folder.glob("b/log.before-*")
    assert read_table(aside)["payload"].to_pylist() == [b"before"]


def test_unfinished_parts_that_the_stream_has_removed_are_dropped(place: Place) -> None:
    """Of a node that died while it sent a large message: no node can need them."""
    with place.node("a") as node:
        assert place.call(f"{place.stream}.log", write_message(Head("died", 1, 1, 0, 2), b"half"))["seq"] == 1
        for number in range(8):
            send(node, "t", Random(number).randbytes(1_000_000))
        first = send_request(node, "polycast/cluster")["stream"]["first"]
        assert first > 1
    with place.node("a") as node:
        assert "no other node has them: dropped" in node.log()
        send(node, "t", b"after")
        with place.node("b"):
            wait_level(node, 2)
    assert place.table("a")["payload"].to_pylist()[-1] == b"after"
    assert place.table("a").equals(place.table("b"))


def test_a_foreign_message_is_skipped_by_all_nodes(place: Place) -> None:
    with place.node("a") as first, place.node("b"):
        send(first, "t", b"1")
        for data in (b"hello", *SHAPED):
            assert place.call(f"{place.stream}.log", data)["seq"]
        send(first, "t", b"2")
        first.wait_for_log("is no proposal")
        found = wait_level(first, 2)
        assert len({row["chain"] for row in found["nodes"]}) == 1
        assert first.log().count("is no proposal") == 1 + len(SHAPED)
    assert place.table("a").equals(place.table("b"))
    assert place.table("a")["payload"].to_pylist() == [b"1", b"2"]


def test_refusals_change_nothing(place: Place) -> None:
    with place.node("a") as node:
        assert "a node with the name a runs already" in place.refusal("a", data="other")
        fewer = place.refusal("b", "--set=cluster.replicas=3")
        assert f"the stream {place.stream} has 1 replicas, and cluster.replicas is 3" in fewer
        assert "--replicas 3 adds some" in fewer
        assert "limits.topics is 9 here" in place.refusal("b", "--set=limits.topics=9")
        send(node, "t", b"1")
    assert not (place.folder / "b" / "log").exists()
    assert "with 3 replicas cannot be created" in place.refusal(
        "c", "--set=cluster.replicas=3", f"--set=cluster.stream={place.stream}3"
    )
    foreign = {"name": f"{place.stream}X", "subjects": [f"{place.stream}X.>"], "storage": "memory"}
    place.call(f"$JS.API.STREAM.CREATE.{place.stream}X", json.dumps(foreign).encode())
    assert "was not created by Polycast" in place.refusal("d", f"--set=cluster.stream={place.stream}X")


def set_format(place: Place, number: int) -> None:
    """The format of messages that the stream names."""
    config = place.config()
    agreed = json.loads(config["metadata"]["polycast.agreed"])
    assert agreed["format"] == str(VERSION)
    config["metadata"]["polycast.agreed"] = json.dumps(agreed | {"format": str(number)})
    place.call(f"$JS.API.STREAM.UPDATE.{place.stream}", json.dumps(config).encode())


@pytest.mark.parametrize("number", [VERSION - 1, 99])
def test_a_node_of_another_format_changes_nothing(place: Place, number: int) -> None:
    with place.node("a") as node:
        send(node, "t", b"1")
    set_format(place, number)
    for name in ("a", "b"):
        refused = place.refusal(name)
        assert f"the stream has messages of format {number}, this node writes {VERSION}" in refused
        assert "all nodes of a cluster run the same version" in refused
        assert ("to upgrade all of them" in refused) == (number < VERSION)
    assert not (place.folder / "b" / "log").exists()
    assert place.table("a")["payload"].to_pylist() == [b"1"]


def test_a_cluster_of_an_older_format_is_upgraded(place: Place) -> None:
    with place.node("a") as first:
        with place.node("b"):
            send(first, "t", b"1")
            wait_level(first, 2)
        send(first, "t", b"2")
    set_format(place, VERSION - 1)
    assert "to upgrade all of them" in place.refusal("a")
    done = place.restore("a", "--yes", "--replace")
    assert done.code == 0, done
    with place.node("a") as first, place.node("b") as second, place.node("new"):
        send(second, "t", b"3")
        wait_level(first, 3)
    assert place.table("a")["payload"].to_pylist() == [b"1", b"2", b"3"]
    assert place.table("a")["sequence"].to_pylist() == [0, 1, 2]
    assert place.table("a").equals(place.table("b"))
    assert place.table("a").equals(place.table("new"))


def test_servers_that_cannot_be_used(place: Place) -> None:
    with Servers(place.folder / "plain", 1, jetstream=False) as plain:
        assert "has no JetStream" in place.refusal("a", urls=plain.urls)
    with Servers(place.folder / "guarded", 1, more='authorization { user: u, password: "p" }') as guarded:
        assert "refuse the credentials" in place.refusal("a", urls=guarded.urls)
        with Broker(
            f"--cluster=nats://u:p@{guarded.urls[7:]}", "--node=a", listen=LISTEN, data=place.folder / "a"
        ) as node:
            send(node, "t", b"1")


def test_a_stream_that_is_gone_stops_all_nodes_and_is_restored_from_the_longest_log(place: Place) -> None:
    with place.node("c") as behind:
        send(behind, "t", b"0")
    with place.node("a") as first, place.node("b") as second:
        send(first, "t", b"1", b"2")
        wait_level(first, 2)
        place.call(f"$JS.API.STREAM.DELETE.{place.stream}")
        for node in (first, second):
            node.wait_for_log(f"the stream {place.stream} is gone")
            assert node.process.wait(20) == 1
            node.exit_code = 1
    before = place.table("a")
    assert "is gone, and this node has applied" in place.refusal("a")
    assert place.table("a").equals(before)
    looked = place.restore("a")
    assert json.loads(looked.out)["offset"] == 3, looked
    done = place.restore("a", "--yes")
    assert json.loads(done.out)["restored"], done
    with place.node("a") as first, place.node("b") as second, place.node("c"):
        send(second, "t", b"3")
        wait_level(first, 3)
    for name in ("a", "b", "c"):
        assert place.table(name)["payload"].to_pylist() == [b"0", b"1", b"2", b"3"]
        assert place.table(name)["sequence"].to_pylist() == [0, 1, 2, 3]


def test_verify_finds_one_changed_byte(place: Place) -> None:
    with place.node("a") as first:
        with place.node("b") as second:
            send(first, "t", *(b"payload %d" % number for number in range(100)))
            wait_level(first, 2)
            with second.connect("hermod.pub") as peer:
                peer.send(hermod.message("t", b"fsynced?"))
                peer.expect(hermod.OK)
            ports = f"--at=tcp://127.0.0.1:{first.ports['http']}"
            same = polycast("cluster", "verify", ports, "--json")
            assert same.code == 0, same
            assert json.loads(same.out)["nodes"] == ["a", "b"]
        [hot] = (place.folder / "b" / "log").glob("*.arrows")
        shutil.copy(hot, hot.with_suffix(".copy"))
        hot.write_bytes(hot.read_bytes().replace(b"payload 42", b"payload 43", 1))
        with place.node("b"):
            wait_level(first, 2)
            found = polycast("cluster", "verify", ports, "--json")
            assert found.code == 1, found
            verdict = json.loads(found.out)
            assert (verdict["different"], verdict["reason"]) == (["b"], "missing")
            assert verdict["differs"] <= 42
            shown = polycast("cluster", "verify", ports)
            assert b"messages are missing or unreadable from offset" in shown.out
            listed = polycast("cluster", "status", ports)
            assert b"leader" in listed.out
            left = polycast("cluster", "leave", ports, "--json")
            assert json.loads(left.out)["node"] == "a"
            assert first.process.wait(20) == 0


def test_nodes_remove_the_same_messages(place: Place) -> None:
    """Their segments end at different offsets, and the limit is exceeded at one of them alone."""
    strict = ("--set=log.segment_bytes=65536", "--set=log.retain_bytes=131072", "--set=log.sync=never")
    with place.node("a", *strict) as first, place.node("b", "--set=log.segment_bytes=100000") as second:
        for _ in range(8):
            send(second, "news", *(bytes(8_192) for _ in range(6)))

        def begin(name: str) -> int:
            folder = place.folder / name / "log"
            return min(int(path.stem) for kind in ("arrows", "parquet") for path in folder.glob(f"*.{kind}"))

        def removed() -> int:
            rows = send_request(second, "polycast/cluster")["nodes"]
            found = {row["first"] for row in rows}
            return found.pop() if len(rows) == 2 and len(found) == 1 else 0

        wait_for(lambda: begin("a") and begin("b"), "segments removed at both nodes")
        highest = max(begin("a"), begin("b"))
        agreed = wait_for(removed, "one first offset at both nodes")
        assert highest <= agreed
        ports = f"--at=tcp://127.0.0.1:{first.ports['http']}"
        same = polycast("cluster", "verify", ports, "--json")
        assert same.code == 0, same
    with place.node("b") as second:
        assert send_request(second, "polycast/cluster")["nodes"][0]["first"] >= agreed


def test_the_log_begins_at_the_same_message_at_all_nodes(place: Place) -> None:
    """Also at a node that still has older messages, because they are in one segment with newer ones."""
    strict = ("--set=log.segment_bytes=65536", "--set=log.retain_bytes=131072", "--set=log.sync=never")
    with place.node("a", *strict) as first:
        with place.node("b") as second:
            for _ in range(8):
                send(second, "news", *(bytes(8_192) for _ in range(6)))
            begins = wait_for(lambda: 0 < earliest(first) == earliest(second), "one first message at both nodes")
        assert begins
    with place.node("b") as second:
        agreed = send_request(second, "polycast/cluster")["nodes"][0]["first"]
        wait_for(lambda: earliest(second) == agreed, "the same first message after a restart")
    assert place.table("b")["offset"].to_pylist()[0] == 0


def earliest(node: Broker) -> int:
    url = f"http://127.0.0.1:{node.ports['http']}/topics/news?from=earliest&limit=1"
    with urllib.request.urlopen(url) as response:
        [message] = json.load(response)["messages"]
    return int(message["offset"])


def test_an_old_server_is_named(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=_be_an_old_server, args=(listener,), daemon=True)
        serving.start()
        failure = place.refusal("a", urls=f"nats://127.0.0.1:{listener.getsockname()[1]}")
        serving.join(GUARD_SECONDS)
    assert "nats-server 2.10 is too old" in failure
    assert "version 2.12 or newer is needed" in failure


def _be_an_old_server(listener: socket.socket) -> None:
    peer, _ = listener.accept()
    with peer:
        info = {
            "server_id": "OLD",
            "version": "2.10.1",
            "max_payload": 1048576,
            "jetstream": True,
            "headers": True,
        }
        peer.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while data := peer.recv(4096):
            if b"PING" in data:
                peer.sendall(b"PONG\r\n")
