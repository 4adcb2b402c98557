"""Stages of `hermod`: what their headers become, before anybody looks into what they bring."""

from __future__ import annotations

import json

import pytest

from dialects.feed import Feeder, feed, merged, one_by_one, rows
from kit import hermod
from polycast.dialects.guard import Guard
from polycast.dialects.hermod import batches
from polycast.dialects.hermod.encoders import to_error
from polycast.dialects.hermod.session import HermodSession
from polycast.dialects.session import SessionContext
from polycast.model import Abort, BatchKey, Closing, Commit, Event, Limits, Refused, Reply, Stage

BATCH = BatchKey("", "x")
FRAMES = (
    hermod.message("a", b"1")
    + hermod.stage("x", "s", b"{bytes}", count=3)
    + hermod.stage("x", "é", b"", checksum="DA39A3EE5E6B4B0D3255BFEF95601890AFD80709")
    + hermod.commit("x", "s", "é", count=7)
    + hermod.abort("x", "s")
    + hermod.abort("x")
    + hermod.message("a", b"2")
)


def feeder_of(*frames: bytes, has_log: bool = True, limits: Limits | None = None, **settings: object) -> Feeder:
    return feed("hermod.pub", limits or Limits(), [b"".join(frames)], settings=settings, has_log=has_log)


def staged_in(feeder: Feeder) -> list[Event]:
    return [event for event in feeder.events if isinstance(event, Stage | Commit | Abort)]


def test_events_of_requests() -> None:
    staged = staged_in(feeder_of(FRAMES))
    first, second, commit, abort, abort_all = staged
    assert isinstance(first, Stage) and isinstance(second, Stage) and isinstance(commit, Commit)
    assert (first.batch, first.name, first.data, first.sha1, first.before) == (BATCH, "s", b"{bytes}", "", 3)
    assert (second.name, second.sha1) == ("é", "da39a3ee5e6b4b0d3255bfef95601890afd80709")
    assert second.before is None
    assert (commit.batch, commit.names, commit.count) == (BATCH, ("s", "é"), 7)
    assert [abort, abort_all] == [Abort(BATCH, names, hermod.OK, to_error) for names in (("s",), None)]


def test_replies_to_requests() -> None:
    stage, _, commit, *_ = staged_in(feeder_of(FRAMES))
    assert isinstance(stage, Stage) and isinstance(commit, Commit)
    assert stage.to_ack(9) == commit.to_ack(9) == hermod.ok(9)
    assert json.loads(stage.to_error(422, "bad")) == {"status": "ERROR", "code": 422, "message": "bad"}
    assert json.loads(commit.to_error(404, "none"))["code"] == 404
    refusal = json.loads(commit.to_failure("the disk is full", 1))
    assert refusal == {"status": "ERROR", "code": 500, "message": "not stored: the disk is full", "count": 0}


def test_whole_equals_byte_by_byte() -> None:
    whole, slow = feeder_of(FRAMES), feed("hermod.pub", Limits(), one_by_one(FRAMES), has_log=True)
    patient = feed("hermod.pub", Limits(), one_by_one(FRAMES), patient=True, has_log=True)
    expected = merged(rows(whole.events, "hermod"))
    assert [row[0] for row in expected].count("stage") == 2
    assert merged(rows(slow.events, "hermod")) == merged(rows(patient.events, "hermod")) == expected


def test_without_a_log_the_payload_is_passed_over() -> None:
    feeder = feeder_of(FRAMES, has_log=False)
    assert not staged_in(feeder) and not feeder.closed
    replies = [json.loads(event.data) for event in feeder.events if isinstance(event, Reply)]
    assert [reply["code"] for reply in replies] == [501] * 5
    assert "--no-log" in replies[0]["message"]
    assert sum(isinstance(event, Refused) for event in feeder.events) == 5
    assert [row for row in rows(feeder.events, "hermod") if row[0] == "message"] != []


def test_where_checksums_are_required_a_frame_without_costs_its_stage() -> None:
    feeder = feeder_of(hermod.stage("x", "s", b"abc") + hermod.message("a", b"1"), require_checksum=True)
    [abort] = staged_in(feeder)
    assert isinstance(abort, Abort) and abort.names == ("s",)
    assert json.loads(abort.ack)["code"] == 422
    assert not feeder.closed


@pytest.mark.parametrize(
    ("frame", "code", "words"),
    [
        (hermod.stage("", "s", b""), 400, "batch_id"),
        (hermod.stage(7, "s", b""), 400, "batch_id"),
        (hermod.stage("x", None, b""), 400, "stage is None"),
        (hermod.stage("x", "", b""), 400, "stage"),
        (hermod.stage("x", "é" * 129, b""), 400, "258 bytes"),
        (hermod.stage("x", "s", b"", count=-1), 400, "count"),
        (hermod.stage("x", "s", b"", checksum=5), 400, "checksum"),
        (hermod.stage("x", "s", b"", payload_size="5"), 400, "payload_size"),
        (b'{"batch_type": "Stage", "batch_id": "x", "stage": "s"}', 400, "checksum is missing"),
        (hermod.commit("x", "s", "s"), 400, "twice"),
        (hermod.commit("x", 5), 400, "one of the stages"),
        (b'{"batch_type": "Commit", "batch_id": "x"}', 400, "stages is missing"),
        (b'{"batch_type": "Abort", "stages": []}', 400, "batch_id"),
        (hermod.count(2) + hermod.stage("x", "s", b""), 409, "Stage inside a batch"),
        (hermod.count(2) + hermod.commit("x", "s"), 409, "Commit inside a batch"),
        (hermod.START + hermod.abort("x"), 409, "Abort inside a batch"),
        (b'{"batch_type": "Stages"}', 400, "Stage, Commit or Abort"),
    ],
)
def test_errors_that_close_the_connection(frame: bytes, code: int, words: str) -> None:
    feeder = feeder_of(frame)
    assert feeder.closed
    reported = json.loads(feeder.closing_bytes())
    assert reported["code"] == code and words in reported["message"]
    assert not staged_in(feeder)


def test_a_frame_may_be_a_little_larger_than_a_payload() -> None:
    """What may be published may be staged. A larger frame is refused at its header."""
    limits = Limits(payload_bytes=1000, topic_bytes=100)
    most = 1000 + 100 + 65_536
    [stage] = staged_in(feeder_of(hermod.stage("x", "s", b"x" * most), limits=limits))
    assert isinstance(stage, Stage)
    feeder = feeder_of(hermod.stage("x", "s", b"", payload_size=most + 1), limits=limits)
    [closing] = feeder.events
    assert isinstance(closing, Closing)
    assert json.loads(feeder.closing_bytes())["code"] == 413


class CountedName(str):
    """A name that counts comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_a_duplicate_stage_name_is_found_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_to_name", lambda value, key: CountedName(value))
    names = [str(number) for number in range(1_000)]
    feeder = feeder_of(hermod.commit("x", *names, names[-1]))
    assert b"'999' is named twice" in feeder.closing_bytes()
    assert CountedName.comparisons < 10 * len(names)


class NoRights(Guard):
    may_publish_anything = False


def test_the_right_to_publish_is_checked_before_stage_names_are_read() -> None:
    feeder = Feeder(HermodSession(SessionContext(has_log=True)))
    feeder.session.guard = NoRights()
    feeder.give(hermod.commit("x", "s", "s") + hermod.abort("x", ""))
    codes = [json.loads(event.data)["code"] for event in feeder.events if isinstance(event, Reply)]
    assert codes == [403, 403] and not feeder.closed
