"""Several addresses, and repeats with pauses until a broker responds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from polycast.broker.requests import BUSY
from polycast.client.resume import LONGEST_PAUSE_SECONDS
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.spark import broker_view
from polycast.spark.broker_view import BrokerView
from polycast.spark.brokers import Brokers
from polycast.spark.options import read_sink_options, read_source_options
from polycast.spark.replayable import ReplayableFrames


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Attempts:
    """Fails at brokers that are down; they are up from a given time on."""

    def __init__(self, clock: Clock, **up_from: float) -> None:
        self.clock = clock
        self.up_from = up_from
        self.tried: list[str] = []

    def __call__(self, at: str) -> str:
        self.tried.append(at)
        if self.clock.now < self.up_from[at.partition("?")[0]]:
            raise RemoteError(f"cannot reach {at.partition('?')[0]}", "is it running?")
        return at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def brokers(clock: Clock, at: str = "a", seconds: float = 300) -> Brokers:
    return Brokers(at, seconds, lambda: clock.now, clock.sleep)


def test_the_first_that_responds_serves_until_it_fails(clock: Clock) -> None:
    several = brokers(clock, "a,b,c")
    attempts = Attempts(clock, a=1000, b=0, c=0)
    assert [several.run(attempts), several.run(attempts)] == ["b", "b"]
    attempts.up_from["b"] = 1000
    assert several.run(attempts) == "c"
    assert attempts.tried == ["a", "b", "b", "b", "c"]
    assert not clock.pauses


def test_tasks_begin_with_different_brokers(clock: Clock) -> None:
    attempts = Attempts(clock, a=0, b=0, c=0)
    found = [Brokers("a,b,c", 1, lambda: clock.now, clock.sleep, number).run(attempts) for number in range(5)]
    assert found == ["a", "b", "c", "a", "b"]


def test_a_node_that_is_behind_is_no_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"a": 5, "b": 10}
    monkeypatch.setattr(BrokerView, "_request_at", lambda self, at, route, body: {"next": ends[at]})
    assert BrokerView("a,b", 300).reach(8) == 10
    with pytest.raises(RemoteError, match="has no offset 11 yet: its log ends at"):
        BrokerView("a,b", 0).reach(11)
    assert BrokerView("a", 300).reach(8) == 5


def test_a_node_that_is_busy_or_stops_is_left_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        def __init__(self, at: str) -> None:
            self.address = at

        def request(self, route: str, body: object) -> SimpleNamespace:
            return SimpleNamespace(success=self.address == "b", value={"next": 7} if self.address == "b" else BUSY)

        def disconnect(self) -> None:
            pass

    monkeypatch.setattr(broker_view, "to_client_session", lambda dialect, at, publishing: at)
    monkeypatch.setattr(broker_view, "ClientConnection", Node)
    assert BrokerView("a,b", 0).next() == 7


def test_pauses_grow_up_to_a_limit(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    assert brokers(clock).run(Attempts(clock, a=60)) == "a"
    assert clock.pauses[0] <= 0.1 and max(clock.pauses) <= LONGEST_PAUSE_SECONDS
    assert 12 <= len(clock.pauses) < 60
    assert caplog.record_tuples[0] == (
        "polycast.spark", logging.WARNING, "cannot reach a; trying again for 300 s (retrySeconds)",
    )  # fmt: skip


def test_the_timeout_names_the_addresses_tried(clock: Clock) -> None:
    with pytest.raises(RemoteError) as raised:
        brokers(clock, "a?token=secret,b", 30).run(Attempts(clock, a=1e9, b=1e9))
    assert str(raised.value) == "cannot reach b; tried a, b for 30 s"
    assert raised.value.hint == "is it running?; retrySeconds sets how long to try"
    assert clock.now == 30


def test_without_patience_there_is_one_attempt(clock: Clock) -> None:
    attempts = Attempts(clock, a=1)
    with pytest.raises(RemoteError, match="tried a for 0 s"):
        brokers(clock, seconds=0).run(attempts)
    assert attempts.tried == ["a"] and not clock.pauses


@pytest.mark.parametrize(
    ("code", "at", "passes"),
    [
        (503, "a", True),
        (500, "a", True),
        (404, "a,b", True),
        (404, "a", False),
        (403, "a,b", False),
        (422, "a", False),
    ],
)
def test_refusals_that_pass(clock: Clock, code: int, at: str, passes: bool) -> None:
    codes: Iterator[int] = iter([code] * 4)

    def attempt(at: str) -> str:
        for found in codes:
            raise RefusedError("no", found, "a hint")
        return "done"

    if passes:
        assert brokers(clock, at).run(attempt) == "done"
    else:
        with pytest.raises(RefusedError) as raised:
            brokers(clock, at).run(attempt)
        assert (str(raised.value), raised.value.hint) == ("no", "a hint")
        assert not clock.pauses


def test_other_errors_are_not_repeated(clock: Clock) -> None:
    def attempt(at: str) -> None:
        raise UsageError("a bad row")

    with pytest.raises(UsageError):
        brokers(clock).run(attempt)


def test_the_options() -> None:
    assert read_sink_options({"at": "a, b"}).at == "a,b"
    assert read_source_options({"at": "a", "retryseconds": "0.5"}, streaming=True).retry_seconds == 0.5
    for options in (
        {"at": "a,,b"},
        *({"at": "a", "retrySeconds": text} for text in ("-1", "nan", "inf", "5 min")),
    ):
        with pytest.raises(UsageError):
            read_sink_options(options)


def test_frames_are_read_again_from_memory_and_from_a_file() -> None:
    sizes = [10, 20, 5, 30, 1]
    frames = [(number, memoryview(bytes([number]) * size)) for number, size in enumerate(sizes)]
    replayable = ReplayableFrames(iter(frames), memory_bytes=16)
    assert replayable.has_rows()
    for stop in (1, 3, 0, 5, 5):
        seen = [(rows, bytes(frame)) for _, (rows, frame) in zip(range(stop), replayable, strict=False)]
        assert seen == [(rows, bytes(frame)) for rows, frame in frames[:stop]]
    replayable.close()
    assert not ReplayableFrames([(0, memoryview(b"schema"))]).has_rows()
