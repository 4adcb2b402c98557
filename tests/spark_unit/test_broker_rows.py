"""Rows of a range over several requests: one is ahead, and what fails ahead is requested again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from polycast.errors import RemoteError
from polycast.log.files.format import Gap
from polycast.log.read.query import OffsetRange
from polycast.spark.broker_rows import RowsHeader, RowsRequest, RowsResponse, fetch_rows, join_ranges

REQUEST: RowsRequest = {"columns": ["offset"]}
STEP = 10


class Responder:
    """Responds with ten rows to each request."""

    def __init__(self, fails_ahead: Callable[[int], bool] = lambda first: False) -> None:
        self.requested: list[int] = []
        self.ahead: list[int] = []
        self.arrived = threading.Event()
        self._fails_ahead = fails_ahead

    def request_rows(self, request: RowsRequest) -> RowsResponse:
        self.requested.append(request["from"])
        return self._respond(request)

    def try_rows(self, request: RowsRequest) -> RowsResponse | None:
        assert threading.current_thread() is not threading.main_thread()
        self.ahead.append(request["from"])
        self.arrived.set()
        return None if self._fails_ahead(request["from"]) else self._respond(request)

    def _respond(self, request: RowsRequest) -> RowsResponse:
        assert request["row_groups"] and request["columns"] == ["offset"]
        offsets = range(request["from"], min(request["from"] + STEP, request["to"]))
        skipped = [Gap(offsets.start, offsets.start + 1, "damaged")] if offsets.start == STEP else []
        batch = pa.record_batch({"offset": pa.array(offsets, pa.int64())})
        return RowsResponse(RowsHeader(offsets.stop, skipped), [batch])


def read(responder: Responder, after: int, gaps: list[Gap] | None = None) -> list[int]:
    batches = fetch_rows(responder, 0, after, REQUEST, (gaps if gaps is not None else []).append)
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_all_but_the_first_request_are_ahead() -> None:
    responder, gaps = Responder(), list[Gap]()
    assert read(responder, 45, gaps) == list(range(45))
    assert (responder.requested, responder.ahead) == ([0], [10, 20, 30, 40])
    assert gaps == [Gap(10, 11, "damaged")]


def test_one_response_needs_no_request_ahead() -> None:
    responder = Responder()
    assert read(responder, STEP) == list(range(STEP))
    assert (responder.requested, responder.ahead) == ([0], [])


def test_what_fails_ahead_is_requested_again() -> None:
    responder = Responder(lambda first: first in (10, 20))
    assert read(responder, 45) == list(range(45))
    assert (responder.requested, responder.ahead) == ([0, 10, 20], [10, 20, 30, 40])


def test_the_next_request_is_sent_before_rows_are_taken() -> None:
    responder = Responder()
    batches = fetch_rows(responder, 0, 45, REQUEST, lambda gap: None)
    next(batches)
    assert responder.arrived.wait(10) and responder.ahead == [10]
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rows-ahead")]
    assert responder.ahead == [10]


def test_errors_reach_the_reader() -> None:
    def refuse(gap: Gap) -> None:
        raise RemoteError(gap.reason)

    with pytest.raises(RemoteError, match="damaged"):
        list(fetch_rows(Responder(), 0, 45, REQUEST, refuse))


def test_adjacent_ranges_are_one() -> None:
    ranges = [OffsetRange(first, after, 1, None) for first, after in ((0, 5), (5, 9), (10, 11), (11, 20))]
    assert join_ranges(ranges) == [(0, 9), (10, 20)]
