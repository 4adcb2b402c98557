"""`polycast/log`, `polycast/rows` and `polycast/offsets`: remote access to the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kit.broker import Broker
from kit.replay import numbered, publish, total
from kit.subscribers import LISTEN, send_request
from kit.wire import wait_for
from polycast.client import Client, connect
from polycast.dialects.client_requests import Response, to_body
from polycast.log.files.folder import log_folder
from polycast.log.files.format import SCHEMA
from polycast.log.read.masks import matching
from polycast.log.read.reader import Reader
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import finish
from polycast.log.settings import LogSettings
from polycast.model import parse_pattern
from polycast.server.api import log_rows
from polycast.server.api.rows_query import RowsRequest, to_query

SMALL = "--set=log.segment_bytes=65536"
COUNT = 1203


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def logged(data: Path) -> Iterator[Broker]:
    """A broker whose log has sealed and hot segments."""
    with Broker(SMALL, data=data, listen=LISTEN) as broker, broker.connect("hermod.pub") as publisher:
        for begin in range(0, 1000, 50):
            publish(publisher, numbered("orders.eu", range(begin, begin + 50), 300))
            publish(publisher, numbered("orders.us", range(begin, begin + 10), 300))
        wait_for(lambda: total(broker, "log_segments_sealed_total") > 2, "sealed segments")
        publish(publisher, [("reorders", b"x"), ("time", b"1"), ("polycast/own", b"z")])
        yield broker


@pytest.fixture(scope="module")
def client(logged: Broker) -> Iterator[Client]:
    with connect("hermod", f"tcp://127.0.0.1:{logged.ports['hermod.pub']}", publishing=True) as connected:
        yield connected


@pytest.fixture(scope="module")
def table(data: Path, logged: Broker) -> pa.Table:
    """All rows of the log, read locally."""
    return read_here(data)


def read_here(data: Path) -> pa.Table:
    reader = Reader(log_folder(LogSettings(data=str(data)).data), 0)
    try:
        return pa.Table.from_batches(iter(reader.read, None), SCHEMA)
    finally:
        reader.close()


def to_table(response: Response) -> tuple[pa.Table, dict[str, Any]]:
    assert response.success, response.value
    found = pa.ipc.open_stream(response.body.payload).read_all()
    return found.replace_schema_metadata(), json.loads(found.schema.metadata[b"polycast"])


def get(client: Client, first: int, after: int, **more: Any) -> tuple[pa.Table, dict[str, Any]]:
    """All rows, over as many responses as needed."""
    parts, place = [], first
    while True:
        found, about = to_table(client.request("polycast/rows", to_body({"from": place, "to": after, **more})))
        parts.append(found)
        assert place < about["next"] or about["next"] == after or not found.num_rows
        if about["next"] >= after or about["next"] == place:
            return pa.concat_tables(parts), about
        place = about["next"]


# -- the log ---------------------------------------------------------------------------------------------


def test_the_log(logged: Broker, client: Client, data: Path) -> None:
    found = client.request("polycast/log").value
    assert set(found) == {"first", "next", "segments", "bytes", "node", "folder"}
    assert (found["first"], found["next"], found["folder"]) == (0, COUNT, str(data / "log"))
    assert len(found["node"]) == 16


def test_the_end_of_patterns(tmp_path: Path) -> None:
    """An offset from which on no message matches; messages before `from` do not count."""
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        with broker.connect("hermod.pub") as peer:
            publish(peer, [("a", b"0"), ("b.c", b"1"), ("polycast/x", b"2")])
        ends = {
            ('["a"]', 0): 1, ('["b.>"]', 0): 2, ('["a", "b.>"]', 0): 2, ('[">"]', 0): 2, ('["polycast/>"]', 0): 3,
            ('["none"]', 0): 0, ('["a"]', 1): 0, ('[">"]', 1): 2, ('[">"]', 3): 0, ("[]", 0): 0,
        }  # fmt: skip
        for (patterns, since), end in ends.items():
            body = {"patterns": json.loads(patterns), "from": since}
            assert send_request(broker, "polycast/log", body) == {"next": 3, "end": end}, body
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        assert send_request(broker, "polycast/log", {"patterns": ["b.>"]}) == {"next": 3, "end": 2}
        with connect("hermod", f"tcp://127.0.0.1:{broker.ports['hermod.sub']}") as client:
            for body in ({"patterns": ["x"] * 1001}, {"patterns": "x"}, {"from": -1}, {"pattern": ["x"]}):
                assert not client.request("polycast/log", to_body(body)).success


def test_an_empty_log(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        found = send_request(broker, "polycast/log")
        assert (found["first"], found["next"]) == (0, 0)
        assert send_request(broker, "polycast/offsets", {"time": 0}) == {"offset": 0}
        assert send_request(broker, "polycast/offsets", {"sequences": {"a": 5}}) == {"offset": 0}
        with connect("hermod", f"tcp://127.0.0.1:{broker.ports['hermod.sub']}") as client:
            found, about = to_table(client.request("polycast/rows", to_body({"from": 0, "to": 100})))
            assert found.num_rows == 0 and found.schema.equals(SCHEMA) and about == {"next": 0, "skipped": []}


def test_without_a_log() -> None:
    with Broker(listen=LISTEN) as broker, connect("hermod", f"127.0.0.1:{broker.ports['hermod.sub']}") as client:
        for route, body in (
            ("log", {}),
            ("rows", {"from": 0, "to": 1}),
            ("offsets", {"time": 0}),
        ):
            response = client.request(f"polycast/{route}", to_body(body))
            assert not response.success and response.value.startswith("NoLog"), response


# -- rows ------------------------------------------------------------------------------------------------


def test_all_rows_equal_those_of_a_local_reader(client: Client, table: pa.Table) -> None:
    found, about = get(client, 0, COUNT)
    assert found.schema.equals(SCHEMA) and found.equals(table)
    assert about == {"next": COUNT, "skipped": []}


@pytest.mark.parametrize(("first", "after"), [(0, 1), (59, 61), (100, 100), (1000, COUNT), (COUNT - 1, COUNT)])
def test_a_range(client: Client, table: pa.Table, first: int, after: int) -> None:
    found, about = get(client, first, after)
    assert found.equals(table.slice(first, after - first)) and about["next"] == after


def test_reads_stop_at_the_end_of_the_log(client: Client, table: pa.Table) -> None:
    found, about = get(client, COUNT - 2, 10**12)
    assert found.equals(table.slice(COUNT - 2)) and about["next"] == COUNT
    found, about = get(client, COUNT + 5, 10**12)
    assert found.num_rows == 0 and about["next"] == COUNT + 5


@pytest.mark.parametrize("columns", [["topic"], ["payload", "offset"], ["sequence", "time"], list(SCHEMA.names)])
@pytest.mark.parametrize("patterns", [None, ["orders.us"], ["~orders", "time"], ["polycast/>"], [">"], []])
def test_columns_and_patterns(
    client: Client, table: pa.Table, columns: list[str], patterns: list[str] | None
) -> None:
    more = {} if patterns is None else {"patterns": patterns}
    found, about = get(client, 0, COUNT, columns=columns, **more)
    whole = table.combine_chunks().to_batches()[0]
    wanted = whole if patterns is None else matching(whole, [parse_pattern(text) for text in patterns])
    assert found.equals(pa.Table.from_batches([wanted]).select(columns))
    assert about["next"] == COUNT


@pytest.mark.parametrize("size", [1, 1000, 5000, 100_000])
def test_responses_have_about_the_requested_size(client: Client, table: pa.Table, size: int) -> None:
    found, about = to_table(client.request("polycast/rows", to_body({"from": 10, "to": 300, "bytes": size})))
    assert found.num_rows >= 1 and about["next"] == 10 + found.num_rows
    assert found.num_rows == 1 or found.nbytes <= size
    found, _ = get(client, 10, 50, bytes=size)
    assert found.equals(table.slice(10, 40))
    found, _ = get(client, 0, COUNT, bytes=max(size, 1000), patterns=["orders.us"])
    assert found.equals(table.filter(pc.equal(table["topic"], "orders.us")))


def test_a_long_search_returns_what_was_found_so_far(
    data: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read ends after `SECONDS_AT_MOST`, so that other requests are served."""
    monkeypatch.setattr(log_rows, "SECONDS_AT_MOST", 0.0)
    wanted = to_query(RowsRequest(5, COUNT), 1000)
    found = pa.ipc.open_stream(finish(log_rows.read_rows(SegmentIndex(data / "log"), wanted, COUNT)))
    assert json.loads(found.schema.metadata[b"polycast"]) == {"next": 5, "skipped": []}


def test_missing_rows_are_reported(tmp_path: Path) -> None:
    limit = "--set=log.retain_bytes=200000"
    with Broker(SMALL, limit, data=tmp_path, listen=LISTEN) as broker, broker.connect("hermod.pub") as publisher:
        for _ in range(30):
            publish(publisher, numbered("t", range(50), 1000))
        wait_for(lambda: total(broker, "log_segments_removed_total") > 0, "a segment to be removed")
        with connect("hermod", f"tcp://127.0.0.1:{broker.ports['hermod.sub']}") as client:
            place = client.request("polycast/log").value
            assert 0 < place["first"] < place["next"] == 1500
            found, about = to_table(client.request("polycast/rows", to_body({"from": 0, "to": 1500})))
            gaps = about["skipped"]  # more than one if a segment is removed between two reads
            assert gaps[0]["first"] == 0 and all("retention" in gap["reason"] for gap in gaps)
            missing = sum(gap["next"] - gap["first"] for gap in gaps)
            assert missing > 0 and found.num_rows + missing >= 1500
            found, about = to_table(client.request("polycast/rows", to_body({"from": 3, "to": 9})))
            assert found.num_rows == 0 and about["next"] == 9
            assert [(gap["first"], gap["next"]) for gap in about["skipped"]] == [(3, 9)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "from"),
        ({"from": 0}, "to"),
        ({"from": -1, "to": 5}, "from"),
        ({"from": 0, "to": 5, "columns": []}, "columns"),
        ({"from": 0, "to": 5, "columns": ["topics"]}, "offset, topic, sequence"),
        ({"from": 0, "to": 5, "columns": ["topic"] * 9}, "columns"),
        ({"from": 0, "to": 5, "columns": ["x" * 1_000]}, f"no column {'x' * 40!r}, the"),
        ({"from": 0, "to": 5, "patterns": ["a"] * 10_001}, "patterns"),
        ({"from": 0, "to": 5, "columns": ["topic", "topic"]}, "twice"),
        ({"from": 0, "to": 5, "patterns": [""]}, "empty"),
        ({"from": 0, "to": 5, "bytes": 0}, "bytes"),
        ({"from": 0, "to": 5, "bytes": 10**9}, "8388608"),
        ({"from": 0, "to": 5, "limit": 1}, "limit"),
    ],
)
def test_bad_requests_for_rows(client: Client, body: Any, words: str) -> None:
    response = client.request("polycast/rows", to_body(body))
    assert not response.success and response.value.startswith("BadRequest") and words in response.value, response


def test_no_rows_take_no_bytes(client: Client, table: pa.Table) -> None:
    """An empty slice of many rows would be sent with all of their bytes."""
    response = client.request("polycast/rows", to_body({"from": 0, "to": 10**9, "patterns": []}))
    assert response.success and len(response.value) < 4_000
    found, _ = to_table(response)
    assert found.num_rows == 0


# -- seek ------------------------------------------------------------------------------------------------


def test_places_by_time(client: Client, table: pa.Table) -> None:
    times = table["time"].cast(pa.int64()).to_pylist()
    for offset in (0, 500, COUNT - 1):
        found = client.request("polycast/offsets", to_body({"time": times[offset]})).value["offset"]
        assert found == times.index(times[offset])
    assert client.request("polycast/offsets", to_body({"time": times[-1] + 1})).value == {"offset": COUNT}
    assert client.request("polycast/offsets", to_body({"time": 0})).value == {"offset": 0}


def test_places_by_sequence(client: Client, table: pa.Table) -> None:
    [offset] = table.filter((pc.field("topic") == "orders.us") & (pc.field("sequence") == 150))[
        "offset"
    ].to_pylist()
    requested = {"sequences": {"orders.us": 150}}
    assert client.request("polycast/offsets", to_body(requested)).value == {"offset": offset}
    both = client.request("polycast/offsets", to_body({"sequences": {"orders.us": 150, "orders.eu": 990}})).value
    assert 0 < both["offset"] <= offset
    never = client.request("polycast/offsets", to_body({"sequences": {"orders.us": 10_000}})).value
    assert never == {"offset": COUNT}


@pytest.mark.parametrize(
    "body",
    [{}, {"time": 0, "sequences": {"a": 1}}, {"sequences": {}}, {"sequences": {"a": -1}}, {"time": "now"}],
)
def test_bad_requests_for_places(client: Client, body: Any) -> None:
    response = client.request("polycast/offsets", to_body(body))
    assert not response.success and response.value.startswith("BadRequest"), response
