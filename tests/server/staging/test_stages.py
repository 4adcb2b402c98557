"""Stages and commits: rows that many connections bring become one batch, all of it or nothing, and once only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit import hermod
from kit.broker import Broker
from kit.hermod import OK, expect_error, read_error
from kit.replay import Delivered, publish, read_messages, subscribe, total
from kit.staged import Row, commit, numbered, stage, to_frame, to_stream
from kit.wire import GUARD_SECONDS, Peer, wait_for
from polycast.server.dispatch.publisher import FORWARD_BATCH_LIMIT

LARGE = 3000
"""So many rows of 1,000 bytes are not delivered at once."""


@pytest.fixture(scope="module")
def logging_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("data")) as broker:
        yield broker


def durable(broker: Broker, topic: str) -> list[bytes]:
    """All that the log has of a topic."""
    with broker.connect("hermod.pub") as peer, subscribe(broker, topic, since="earliest") as subscriber:
        publish(peer, [(topic, b"the end")])
        found: list[Delivered] = []
        while not found or found[-1].payload != b"the end":
            found += read_messages(subscriber, 1)
    return [each.payload for each in found if each.payload != b"the end"]


def check_files(folder: Path) -> None:
    """Checksums, offsets and sequences."""
    check_log(*read_with_pyarrow(folder))


def payloads(rows: list[Row]) -> list[bytes]:
    return [payload for _, payload in rows]


# -- what is published -----------------------------------------------------------------------------------


def test_nothing_is_there_before_the_commit_and_all_is_after_it(logging_broker: Broker) -> None:
    with (
        logging_broker.connect("hermod.pub") as one,
        logging_broker.connect("hermod.pub") as two,
        subscribe(logging_broker, "parts") as subscriber,
    ):
        stage(one, "parts", "a", [("parts", b"a1"), ("parts", b"a2")])
        stage(two, "parts", "b", [("parts", b"b1")])
        stage(one, "parts", "a", [("parts", b"a3")], before=2)
        stage(two, "parts", "failed attempt", [("parts", b"never")])
        publish(one, [("parts", b"live")])
        assert read_messages(subscriber, 1) == [Delivered("parts", 0, b"live")]
        commit(two, "parts", "b", "a", rows=4)
        assert [each.payload for each in read_messages(subscriber, 4)] == [b"b1", b"a1", b"a2", b"a3"]
        two.send(hermod.commit("other", "failed attempt"))
        expect_error(two, 404)
        hermod.expect_no_more(subscriber)
    assert durable(logging_broker, "parts") == [b"live", b"b1", b"a1", b"a2", b"a3"]


@pytest.mark.parametrize("size", [0, 1000])
def test_topics_and_formats_and_sequences(tmp_path: Path, size: int) -> None:
    """The same for a small batch as for one that is not delivered at once."""
    rows = [(f"t/{number % 7}", (b"%d" % number).ljust(size, b".")) for number in range(LARGE)]
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, [("t/3", b"before")])
        formats = [(None, "text", "json", "none", "bytes")[number % 5] for number in range(LARGE)]
        peer.send(hermod.stage("x", "s", to_frame(rows, formats)))
        peer.expect(hermod.ok(LARGE))
        commit(peer, "x", "s", rows=LARGE)
        publish(peer, [("t/3", b"after")])
    check_files(tmp_path / "log")
    [file] = (tmp_path / "log").glob("*.arrows")
    table = pa.ipc.open_stream(file.read_bytes()).read_all()
    table = table.filter(pa.compute.starts_with(table["topic"], "t/"))
    found = table.to_pylist()[1:-1]
    assert [(row["topic"], row["payload"]) for row in found] == rows
    assert [row["format"] for row in found] == [format_ or "bytes" for format_ in formats]
    assert {row["dialect"] for row in found} == {"hermod"}
    assert len({row["source"] for row in found}) == 1
    for topic in range(7):
        sequences = [row["sequence"] for row in table.to_pylist() if row["topic"] == f"t/{topic}"]
        assert sequences == list(range(len(sequences)))


@pytest.mark.parametrize("size", [0, 20_000])
def test_the_number_of_topics_in_a_batch_is_limited(tmp_path: Path, size: int) -> None:
    """In a small batch, which is published as a burst, and in a large one, which goes to the log in bulk."""
    with Broker("--set=hermod.batch_topics=100", data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        for count in (101, 100):
            rows = [(f"t/{number}", b"x" * size) for number in range(count)] * 2
            peer.send(hermod.stage("x", "s", to_frame(rows), count=0) + hermod.commit("x", "s"))
            peer.expect(hermod.ok(len(rows)))
            if count > 100:
                error = read_error(peer)
                assert error["code"] == 422
                assert "101 topics, the limit is 100" in str(error["message"])
                assert "hermod.batch_topics" in str(error["message"])
        peer.expect(hermod.ok(200))


def test_the_number_of_rows_of_a_commit_is_limited_on_a_forwarding_broker(tmp_path: Path) -> None:
    with Broker("--forward", data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        for count in (FORWARD_BATCH_LIMIT + 1, FORWARD_BATCH_LIMIT):
            peer.send(hermod.stage("x", "s", to_frame(numbered("t", count)), count=0) + hermod.commit("x", "s"))
            peer.expect(hermod.ok(count))
            if count > FORWARD_BATCH_LIMIT:
                error = read_error(peer)
                assert error["code"] == 422
                assert "10,001 rows, the limit is 10,000" in str(error["message"])
                assert "simplest.forward" in str(error["message"])
        peer.expect(hermod.ok(FORWARD_BATCH_LIMIT))


@pytest.mark.parametrize("size", [10, 1000])
def test_a_repeat_publishes_nothing(logging_broker: Broker, size: int) -> None:
    name = f"again {size}"
    rows = numbered(name, LARGE, size)
    with logging_broker.connect("hermod.pub") as peer:
        stage(peer, name, "s", rows)
        commit(peer, name, "s", rows=LARGE)
        commit(peer, name, "s", rows=LARGE)
        stage(peer, name, "other", [(name, b"other")])
        peer.send(hermod.commit(name, "other") + hermod.message(name, b"single"))
        peer.expect(hermod.ok(LARGE) + OK)
        peer.send(hermod.commit(name, "s", count=1))
        error = read_error(peer)
        assert error["code"] == 422
        assert "with 3,000 messages" in str(error["message"]) and "has 1" in str(error["message"])
    with logging_broker.connect("hermod.pub") as peer:
        commit(peer, name, "never staged", rows=LARGE)
    assert durable(logging_broker, name) == [*payloads(rows), b"single"]


def test_the_id_is_the_same_as_that_of_other_batches(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.count(1, batch_id="shared") + hermod.message("shared", b"x"))
        peer.expect(hermod.ok(1))
        stage(peer, "shared", "s", numbered("shared", 5))
        commit(peer, "shared", "s", rows=1)
    assert durable(logging_broker, "shared") == [b"x"]


@pytest.mark.parametrize("size", [10, 1000])
def test_many_commits_at_the_same_time(logging_broker: Broker, size: int) -> None:
    """One publishes, all get the reply."""
    name = f"race {size}"
    rows = numbered(name, LARGE, size)
    with ExitStack() as stack:
        peers = [stack.enter_context(logging_broker.connect("hermod.pub")) for _ in range(12)]
        stage(peers[0], name, "s", rows)
        for peer in peers:
            peer.send(hermod.commit(name, "s"))
        for peer in peers:
            peer.expect(hermod.ok(LARGE))
    assert durable(logging_broker, name) == payloads(rows)


def test_an_empty_commit(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        stage(peer, "empty", "s", [])
        stage(peer, "empty", "t", [("empty", b"x")])
        before = total(logging_broker, "log_batch_ids")
        peer.send(hermod.commit("empty", "s"))
        peer.expect(hermod.ok(0))
        peer.send(hermod.commit("empty", "t"))
        expect_error(peer, 404)
        peer.send(hermod.commit("empty"))
        peer.expect(hermod.ok(0))
        assert total(logging_broker, "log_batch_ids") == before
        stage(peer, "empty", "t", [("empty", b"x")])
        commit(peer, "empty", "t", rows=1)


def test_an_abort(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        for name in ("a", "b", "c"):
            stage(peer, "abort", name, [("abort", name.encode())])
        peer.send(hermod.abort("abort", "b", "unknown") + hermod.commit("abort", "b"))
        peer.expect(OK)
        expect_error(peer, 404)
        peer.send(hermod.abort("abort") + hermod.commit("abort", "a") + hermod.abort("abort"))
        peer.expect(OK)
        expect_error(peer, 404)
        peer.expect(OK)
    assert durable(logging_broker, "abort") == []


def test_replies_have_the_order_of_the_commands(logging_broker: Broker) -> None:
    rows = numbered("order", LARGE, 1000)
    frames, expected = b"", b""
    for number in range(4):
        name = f"order {number}"
        frames += hermod.message("order", b"before") + hermod.stage(name, "s", to_frame(rows))
        frames += hermod.commit(name, "s") + hermod.message("order", b"after") + hermod.abort(name)
        expected += OK + hermod.ok(LARGE) * 2 + OK * 2
    with logging_broker.connect("hermod.pub") as peer:
        sending = threading.Thread(target=peer.send, args=(frames,), daemon=True)
        sending.start()
        peer.expect(expected)
        sending.join(GUARD_SECONDS)
    assert durable(logging_broker, "order") == [b"before", *payloads(rows), b"after"] * 4


def test_a_publisher_that_shuts_its_side_gets_the_reply(logging_broker: Broker) -> None:
    rows = numbered("shut", LARGE, 1000)
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.stage("shut", "s", to_frame(rows)) + hermod.commit("shut", "s"))
        peer.send(hermod.message("shut", b"last"))
        peer.shut()
        assert peer.expect_closed() == hermod.ok(LARGE) * 2 + OK
    assert durable(logging_broker, "shut") == [*payloads(rows), b"last"]


def test_a_commit_outlives_its_connection(logging_broker: Broker) -> None:
    rows = numbered("gone", LARGE, 1000)
    with logging_broker.connect("hermod.pub") as peer:
        stage(peer, "gone", "s", rows)
        peer.send(hermod.commit("gone", "s"))
    with logging_broker.connect("hermod.pub") as peer:
        commit_when_known(peer, "gone")
    assert durable(logging_broker, "gone") == payloads(rows)


def commit_when_known(peer: Peer, batch_id: str) -> None:
    def known() -> bool:
        peer.send(hermod.commit(batch_id, "s"))
        return peer.read_until(b"\n") == hermod.ok(LARGE)

    wait_for(known, "the batch")


# -- crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_stages_survive_a_restart(tmp_path: Path, how: str) -> None:
    """Names of stages are no paths. What was aborted or replaced is gone; what was never published waits."""
    rows = numbered("t", LARGE, 1000)
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        stage(peer, "x", "../s", rows[:1000])
        stage(peer, "x", "../s", rows[1000:2000], before=1000)
        stage(peer, "x", "/tmp/\0", rows[2000:])
        stage(peer, "x", "empty", [])
        stage(peer, "x", "aborted", [("t", b"never")])
        stage(peer, "done", "s", [("t", b"done")])
        commit(peer, "done", "s", rows=1)
        peer.send(hermod.abort("x", "aborted"))
        peer.expect(OK)
        wait_for(lambda: len(list((tmp_path / "stages").iterdir())) == 3, "the aborted stage to go")
        if how == "killed":
            broker.kill()
    assert {path.name for path in tmp_path.iterdir()} == {"log", "stages"}
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        assert "3,000 rows in 3 stages of an earlier run" in broker.log()
        peer.send(hermod.commit("x", "aborted"))
        expect_error(peer, 404)
        peer.send(hermod.commit("x", "../s", "/tmp/\0", "empty", count=LARGE))
        peer.expect(hermod.ok(LARGE))
        assert durable(broker, "t") == [b"done", *payloads(rows)]
        wait_for(lambda: not list((tmp_path / "stages").iterdir()), "the files to go")


@pytest.mark.parametrize(("size", "how"), [(1000, "stopped"), (10, "killed"), (1000, "killed")])
def test_a_repeat_after_a_restart(tmp_path: Path, size: int, how: str) -> None:
    rows = numbered("t", LARGE, size)
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        stage(peer, "x", "s", rows)
        commit(peer, "x", "s", rows=LARGE)
        if how == "killed":
            broker.kill()
    check_files(tmp_path / "log")
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        commit(peer, "x", "s", rows=LARGE)
        assert durable(broker, "t") == payloads(rows)


@pytest.mark.parametrize("moment", ["at once", "while it is prepared", "when it is written"])
def test_a_broker_that_dies_while_it_commits_has_all_or_nothing(tmp_path: Path, moment: str) -> None:
    rows = numbered("t", 20_000, 500)
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        stage(peer, "x", "s", rows)
        size = total(broker, "log_bytes_total")
        peer.send(hermod.commit("x", "s"))
        if moment == "while it is prepared":
            total(broker, "log_bytes_total")
        elif moment == "when it is written":
            wait_for(lambda: total(broker, "log_bytes_total") > size, "the group")
        broker.kill()
        replies = peer.expect_closed()
    found = [row for row in read_with_pyarrow(tmp_path / "log")[0] if row[1] == "t"]
    assert len(found) in (0, 20_000)
    assert len(found) == 20_000 or not replies
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        commit(peer, "x", "s", rows=20_000)
        assert durable(broker, "t") == payloads(rows)


def test_a_broker_that_stops_meanwhile_replies_503(tmp_path: Path) -> None:
    rows = numbered("t", 20_000, 500)
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        stage(peer, "x", "s", rows)
        peer.send(hermod.commit("x", "s"))
        broker.begin_to_stop()
        replies = peer.expect_closed()
    found = [row for row in read_with_pyarrow(tmp_path / "log")[0] if row[1] == "t"]
    if hermod.ok(20_000) in replies:
        assert len(found) == 20_000
    else:
        assert not found and b'"code": 503' in replies


# -- what is refused -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker("--set=limits.payload_bytes=100000", data=tmp_path_factory.mktemp("strict")) as broker:
        yield broker


def batch_of(**columns: pa.Array) -> bytes:
    return to_stream(pa.record_batch(columns))


TOPIC, PAYLOAD = pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"])
BAD_UTF8 = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")]
)
BAD_EDGES = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\xff\xff\xff\x0f\2\0\0\0\3\0\0\0"), pa.py_buffer(b"abc")]
)
WHOLE = batch_of(topic=TOPIC, payload=PAYLOAD)
STRANGE_NAME = WHOLE.replace(b"topic", b"top\xffc")


def early_compressed() -> bytes:
    """As Arrow 0.17 declared compression."""
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"topic": TOPIC, "payload": PAYLOAD})
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    return bytes(sink.getvalue())


def strange_kind() -> bytes:
    """A first message of a kind that Arrow does not know, and so does not verify; its fields lie far behind it.

    pyarrow 26 dies of it when it is asked for its schema.
    """
    data = WHOLE.replace(b"\x00\x01\x04\x00", b"\x00\x40\x04\x00", 1)
    fields = data.index(b"\x02\x00\x00\x00") + 4
    return data[:fields] + (1 << 20).to_bytes(4, "little") + data[fields + 4 :]


EARLY_COMPRESSED = early_compressed()
STRANGE_KIND = strange_kind()
NO_SCHEMA = WHOLE[8 + int.from_bytes(WHOLE[4:8], "little") :]
"""A record batch comes first."""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (batch_of(topic=pa.array(["a", None, "c"]), payload=PAYLOAD), "row 3 has no topic"),
        (batch_of(topic=TOPIC, payload=pa.array([b"1", b"2", None])), "row 4 has no payload"),
        (batch_of(topic=pa.array(["a", "b", "é" * 600]), payload=PAYLOAD), "1,200 bytes, the limit is 1,024"),
        (batch_of(topic=BAD_UTF8, payload=PAYLOAD), "UTF8"),
        (batch_of(topic=BAD_EDGES, payload=PAYLOAD), "cannot be read"),
        (
            batch_of(topic=TOPIC, payload=PAYLOAD, format=pa.array(["json", None, "xml"])),
            "the format of row 4 is 'xml', known are bytes, text, json, none",
        ),
        (batch_of(topic=TOPIC, payload=pa.array([b"1", b"2", b"x" * 100_001])), "limits.payload_bytes"),
        (batch_of(topic=pa.array([1, 2, 3]), payload=PAYLOAD), "topic is of type int64; cast it to string"),
        (batch_of(topic=TOPIC.dictionary_encode(), payload=PAYLOAD), "cast it to string"),
        (batch_of(topic=TOPIC), "no column payload; the columns are topic"),
        (batch_of(topic=TOPIC, payload=PAYLOAD, key=PAYLOAD), "key is one too many"),
        (to_stream(pa.record_batch({"topic": TOPIC, "payload": PAYLOAD}), options=pa.ipc.IpcWriteOptions(
            compression="zstd")), "without compression"),
        (EARLY_COMPRESSED, "without compression"),
        (NO_SCHEMA, "first message is no schema but record batch"),
        (STRANGE_KIND, "first message is no schema but unknown"),
        (STRANGE_NAME, "no Arrow IPC stream"),
        (b"", "no Arrow IPC stream"),
        (b"no Arrow", "no Arrow IPC stream"),
        (WHOLE[:-200], "no Arrow IPC stream"),
    ],
)  # fmt: skip
def test_bad_rows_cost_their_stage(strict: Broker, data: bytes, words: str) -> None:
    topic = hermod.checksum(data)
    with strict.connect("hermod.pub") as peer:
        stage(peer, topic, "s", [(topic, b"1"), (topic, b"2")])
        stage(peer, topic, "other", [(topic, b"other")])
        peer.send(hermod.stage(topic, "s", data))
        error = read_error(peer)
        assert error["code"] == 422 and words in str(error["message"]), error
        peer.send(hermod.commit(topic, "other", "s"))
        expect_error(peer, 404)
        commit(peer, topic, "other", rows=1)
    assert durable(strict, topic) == [b"other"]


def test_a_checksum_that_does_not_fit(logging_broker: Broker) -> None:
    frame = to_frame([("sum", b"1")])
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.stage("sum", "s", frame, checksum=hermod.checksum(frame)))
        peer.expect(hermod.ok(1))
        peer.send(hermod.stage("sum", "s", frame, checksum="0" * 40))
        error = read_error(peer)
        assert error["code"] == 422 and hermod.checksum(frame) in str(error["message"])
        peer.send(hermod.commit("sum", "s"))
        expect_error(peer, 404)


def test_where_a_frame_belongs(logging_broker: Broker) -> None:
    """`count` 0 begins anew; any other must be what is there."""
    frame = to_frame([("place", b"1"), ("place", b"2")])
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.stage("place", "s", frame, count=0) + hermod.stage("place", "s", frame, count=2))
        peer.expect(hermod.ok(2) + hermod.ok(4))
        peer.send(hermod.stage("place", "s", frame, count=2))
        error = read_error(peer)
        assert error["code"] == 422 and "has 4 rows" in str(error["message"])
        peer.send(hermod.stage("place", "s", frame, count=4))
        expect_error(peer, 422)
        peer.send(hermod.stage("place", "s", frame, count=0) * 2)
        peer.expect(hermod.ok(2) * 2)
        peer.send(hermod.commit("place", "s", count=4))
        error = read_error(peer)
        assert error["code"] == 422 and "2 rows are staged" in str(error["message"])
        peer.send(hermod.commit("place", "s", count=2))
        peer.expect(hermod.ok(2))
    assert durable(logging_broker, "place") == [b"1", b"2"]


def test_only_so_much_is_staged(tmp_path: Path) -> None:
    with (
        Broker("--set=hermod.stage_bytes=100000", data=tmp_path) as broker,
        broker.connect("hermod.pub") as one,
        broker.connect("hermod.pub") as two,
    ):
        half = [("t", b"x" * 40_000)]
        stage(one, "x", "s", half)
        stage(two, "y", "s", half)
        two.send(hermod.stage("y", "s", to_frame(half)))
        error = read_error(two)
        assert error["code"] == 507
        assert "limit is 100,000" in str(error["message"]) and "hermod.stage_bytes" in str(error["message"])
        two.send(hermod.commit("y", "s"))
        expect_error(two, 404)  # it went, and made room
        stage(two, "z", "s", half)
        commit(one, "x", "s", rows=1)
        stage(two, "y", "s", half)
        two.send(hermod.abort("y"))
        two.expect(OK)
        stage(two, "y", "s", half)
        commit(two, "z", "s", rows=1)
        commit(two, "y", "s", rows=1)


def test_an_uncommitted_stage_expires(tmp_path: Path) -> None:
    with (
        Broker("--set=hermod.stage_seconds=0.05", data=tmp_path) as broker,
        broker.connect("hermod.pub") as peer,
    ):
        stage(peer, "x", "s", [("t", b"1"), ("t", b"2")])
        assert "2 rows of batch 'x'" in broker.wait_for_log("hermod.stage_seconds")
        peer.send(hermod.commit("x", "s"))
        error = read_error(peer)
        assert error["code"] == 404 and "hermod.stage_seconds" in str(error["message"])
        assert durable(broker, "t") == []


def test_without_a_log_there_are_none() -> None:
    with Broker() as broker, broker.connect("hermod.pub") as peer:
        peer.send(hermod.stage("x", "s", b"{whatever}") + hermod.commit("x", "s") + hermod.message("t", b"y"))
        expect_error(peer, 501)
        expect_error(peer, 501)
        peer.expect(OK)


def test_what_is_refused_is_counted(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(hermod.stage("x", "s", b"bad") + hermod.commit("x", "s"))
        expect_error(peer, 422)
        expect_error(peer, 404)
        broker.begin_to_stop()
        assert "refused 2 (stage or commit)" in broker.wait_for_log("hermod.pub: accepted")
