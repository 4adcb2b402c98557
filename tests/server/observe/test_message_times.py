"""Latency metrics: one measurement per burst, counted for each of its messages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import hermod
from kit.broker import Broker
from kit.frames import pub
from kit.hermod import OK
from kit.http import get, read_response
from kit.metrics import Family, read_metrics
from kit.room import Room
from kit.wire import wait_for
from polycast.declare import SECONDS, Histogram
from polycast.server.observe.metrics import read_times, to_text
from polycast.server.stats.counters import Times


def scrape(broker: Broker) -> dict[str, Family]:
    with broker.connect("http") as peer:
        peer.send(get("/metrics"))
        return read_metrics(read_response(peer).body.decode())


def counted(broker: Broker, name: str = "delivery_seconds") -> tuple[float, float]:
    """Count and sum of a histogram."""
    family = scrape(broker)[f"polycast_{name}"]
    return family.counts[()], family.sums[()]


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 1000))))
def test_a_histogram_is_what_counting_one_by_one_gives(measured: list[tuple[float, int]]) -> None:
    found = Histogram()
    for value, times in measured:
        found.add(value, times)
    family = read_metrics(to_text(read_times(Times(found))))["polycast_delivery_seconds"]
    everything = [value for value, times in measured for _ in range(times)]
    for bound in SECONDS:
        assert family.samples[(("le", str(bound)),)] == sum(value <= bound for value in everything)
    assert family.counts[()] == found.count == len(everything)
    assert family.sums[()] == pytest.approx(sum(everything), rel=1e-6, abs=1e-9)  # printed with nine digits


def test_bounds_ascend() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))


def test_a_delivery_is_counted_for_each_message() -> None:
    with Broker(listen=("simplest", "fanout.client", "fanout.controller", "http")) as broker, Room(broker) as room:
        subscribers = [room.simplest(b"sub heard\n") for _ in range(3)]
        publisher = room.simplest()
        before, _ = counted(broker)
        frames = pub("heard", b"x") * 50
        publisher.send(pub("nobody", b"x") * 7 + frames)
        for ear in subscribers:
            ear.expect(frames)
        wait_for(lambda: counted(broker)[0] > before, "the count")
        assert counted(broker)[0] == before + 50, "once for each, however many receive it"


@pytest.mark.parametrize("delivery", ["live", "committed"])
def test_with_a_log(delivery: str, tmp_path: Path) -> None:
    """At most the time measured from outside; with `committed`, at least the fsync time."""
    with Broker(f"--set=log.delivery={delivery}", data=tmp_path) as broker, Room(broker) as room:
        ear = room.simplest(b"sub t\n")
        publisher = room.connect("hermod.pub")
        publisher.send(hermod.message("before", b"1"))
        publisher.expect(OK)
        synced, disk = counted(broker, "log_sync_seconds")
        before, spent = counted(broker)
        began = time.monotonic()
        publisher.send(hermod.message("t", b"1"))
        publisher.expect(OK)
        ear.expect(pub("t", b"1"))
        wait_for(lambda: counted(broker)[0] > before, "the count")
        took = time.monotonic() - began
        messages, spent_now = counted(broker)
        groups, disk_now = counted(broker, "log_sync_seconds")
        assert messages == before + 1
        assert 0 < spent_now - spent < took
        assert groups == synced + 1
        assert 0 < disk_now - disk < took
        if delivery == "committed":
            assert spent_now - spent > disk_now - disk


def test_without_a_log_no_sync_time_is_measured() -> None:
    with Broker(listen=("simplest", "http")) as broker:
        assert counted(broker, "log_sync_seconds") == (0, 0)
