"""The blocking client that stages rows and commits them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from client.scripted import Scripted, read_exactly
from kit import hermod
from kit.broker import Broker
from kit.replay import read_messages, subscribe, total
from polycast.client import staging
from polycast.client.staging import Stager
from polycast.errors import RefusedError, RemoteError, UsageError


def batch_of(topic: str, *payloads: bytes) -> pa.RecordBatch:
    return pa.record_batch({"topic": [topic] * len(payloads), "payload": pa.array(payloads, pa.binary())})


def stager(broker: Broker, batch_id: str) -> Stager:
    return Stager(f"127.0.0.1:{broker.ports['hermod.pub']}", batch_id)


def durable(broker: Broker, topic: str, count: int) -> list[bytes]:
    with subscribe(broker, topic, since="earliest") as subscriber:
        return [each.payload for each in read_messages(subscriber, count)]


def test_rows_of_several_processes_become_one_batch(broker: Broker) -> None:
    with stager(broker, "several") as one, stager(broker, "several") as two:
        assert one.stage("1", [batch_of("several", b"a", b"b"), batch_of("several", b"c")]) == 3
        assert two.stage("2", iter([batch_of("several", b"d")])) == 1
        assert two.stage("unused", [batch_of("several", b"never")]) == 1
    with stager(broker, "several") as driver:
        assert driver.commit(["2", "1"], rows=4) == 4
        assert driver.commit(["2", "1"]) == 4
        driver.abort()
    assert durable(broker, "several", 4) == [b"d", b"a", b"b", b"c"]


def test_staging_again_under_a_name_begins_anew(broker: Broker) -> None:
    with stager(broker, "anew") as mine:
        mine.stage("1", [batch_of("anew", b"a", b"b")])
        mine.stage("1", [batch_of("anew", b"c")])
        assert mine.stage("2", []) == 0
        with pytest.raises(RefusedError, match="1 rows are staged, and the commit is of 2") as caught:
            mine.commit(["1"], rows=2)
        assert caught.value.code == 422
        assert mine.commit(["1", "2"]) == 1
    assert durable(broker, "anew", 1) == [b"c"]


def test_an_error_in_the_block_drops_no_stage(broker: Broker) -> None:
    with stager(broker, "error") as other:
        other.stage("1", [batch_of("error", b"a")])
        with pytest.raises(KeyError), stager(broker, "error"):
            raise KeyError
        assert other.commit(["1"], rows=1) == 1


def test_a_repeat_with_another_count_is_an_error(broker: Broker) -> None:
    with stager(broker, "counted") as mine:
        mine.stage("1", [batch_of("counted", b"a")])
        assert mine.commit(["1"], rows=1) == 1
        mine.stage("1", [batch_of("counted", *[b"b"] * 500)])
        with pytest.raises(RefusedError, match="with 1 messages, and now it has 500") as caught:
            mine.commit(["1"], rows=500)
        assert caught.value.code == 422
        assert mine.commit(["1"]) == 1


def test_a_reply_with_another_count_is_an_error() -> None:
    """Also where the broker says OK."""

    def script(connection: socket.socket) -> None:
        read_exactly(connection, b'{"batch_type":"End"}')
        connection.sendall(hermod.ok(0))
        read_exactly(connection, b'{"batch_type":"Commit","batch_id":"night","stages":["1"],"count":500}')
        connection.sendall(hermod.ok(1))

    words = "'night' was published with 1 messages, and this one has 500"
    with Scripted(script) as at, Stager(at, "night") as mine, pytest.raises(RefusedError, match=words):
        mine.commit(["1"], rows=500)


def test_an_aborted_stage_cannot_be_committed(broker: Broker) -> None:
    with stager(broker, "aborted") as mine:
        mine.stage("1", [batch_of("aborted", b"a")])
        mine.stage("2", [batch_of("aborted", b"b")])
        mine.abort(["1"])
        with pytest.raises(RefusedError, match="no stage '1' of batch 'aborted'") as caught:
            mine.commit(["1", "2"])
        assert caught.value.code == 404 and "again" in caught.value.hint
        assert mine.commit(["2"]) == 1


def test_many_frames(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of very different size, cut as they need to be."""
    monkeypatch.setattr(staging, "FRAME_BYTES", 10_000)
    payloads = [b"%d" % number * (2000 if number % 97 == 0 else 1) for number in range(3000)]
    before = total(broker, "log_batch_ids")
    with stager(broker, "frames") as mine:
        assert mine.stage("1", [batch_of("frames", *payloads[:10]), batch_of("frames", *payloads[10:])]) == 3000
        assert mine.commit(["1"], rows=3000) == 3000
    assert durable(broker, "frames", 3000) == payloads
    assert total(broker, "log_batch_ids") == before + 1


def test_columns_of_other_types_are_cast(broker: Broker) -> None:
    batch = pa.record_batch(
        {
            "payload": pa.array(["1", "2"], pa.large_string()),
            "else": [1, 2],
            "topic": pa.array(["cast", "cast"]).dictionary_encode(),
            "format": pa.array(["text", None], pa.large_string()),
        }
    )
    with stager(broker, "cast") as mine:
        mine.stage("1", [batch])
        mine.commit(["1"])
    assert durable(broker, "cast", 2) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"topic": ["a"]}, "no column payload; the columns are topic"),
        ({"topic": [["a"]], "payload": [b"x"]}, "rows cannot be messages"),
    ],
)
def test_columns_that_are_not_there_or_cannot_be(broker: Broker, columns: dict[str, object], words: str) -> None:
    with stager(broker, "columns") as mine, pytest.raises(UsageError, match=words) as caught:
        mine.stage("1", [pa.record_batch(columns)])
    assert caught.value.hint


def test_refusals_of_the_broker(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames behind the one that was refused do not become a stage of their own."""
    monkeypatch.setattr(staging, "FRAME_BYTES", 1000)

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"topic": pa.array([None], pa.string()), "payload": [b"x"]})
        for _ in range(50):
            yield batch_of("refused", b"x" * 900)

    with stager(broker, "refused") as mine:
        with pytest.raises(RefusedError, match="row 0 has no topic") as caught:
            mine.stage("1", batches())
        assert caught.value.code == 422
        with pytest.raises(RefusedError, match="no stage '1'"):
            mine.commit(["1"])


def test_more_than_may_be_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FRAME_BYTES", 10_000)
    with Broker("--set=hermod.stage_bytes=100000", data=tmp_path) as narrow, stager(narrow, "x") as mine:
        with pytest.raises(RefusedError, match="limit is 100,000") as caught:
            mine.stage("1", [batch_of("t", *[b"x" * 1000] * 1000)])
        assert caught.value.code == 507 and "maxOffsetsPerTrigger" in caught.value.hint
        assert mine.stage("1", [batch_of("t", b"x" * 1000)]) == 1
        assert mine.commit(["1"]) == 1


def test_a_payload_that_the_broker_does_not_take(tmp_path: Path) -> None:
    with Broker("--set=limits.payload_bytes=1000", data=tmp_path) as strict:
        with stager(strict, "x") as mine, pytest.raises(RefusedError, match=r"limits\.payload_bytes") as caught:
            mine.stage("1", [batch_of("t", b"x" * 1001)])
        assert caught.value.code == 422
        with pytest.raises(RefusedError, match=r"limits\.payload_bytes") as caught, stager(strict, "x") as mine:
            mine.stage("1", [batch_of("t", *[b"x" * 1000] * 1000)])
        assert caught.value.code == 413 and "limits.payload_bytes" in caught.value.hint


def test_a_broker_without_a_log() -> None:
    with Broker() as forgetful, stager(forgetful, "x") as mine:
        with pytest.raises(RefusedError, match="needs the log") as caught:
            mine.stage("1", [batch_of("t", b"x")])
        assert caught.value.code == 501 and "--no-log" in caught.value.hint


def test_a_broker_that_is_not_there_or_goes(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as mortal:
        with pytest.raises(RemoteError), stager(mortal, "x") as mine:
            mine.stage("1", [batch_of("t", b"x")])
            mortal.kill()
            mine.commit(["1"])
        with pytest.raises(RemoteError, match="cannot reach"):
            stager(mortal, "x")
