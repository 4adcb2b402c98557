"""`polycast sub`: forms of the output, the last messages, the end of the log, and idle time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from kit.broker import Broker
from kit.program import POLYCAST, Program, polycast, polycast_here
from polycast.cli.log_bounds import find_last
from polycast.cli.sub import EndOfLogError, StateNotices
from polycast.cli.sub_output import parse_template, to_writer, uses_positions
from polycast.client import Response, State, StateChange, connect, to_body
from polycast.errors import RefusedError, UsageError
from polycast.model import Exact, Message, StartPosition

LISTEN = ("hermod.pub", "hermod.sub", "simplest", "http")
FULL = Message("a.b", b"\xff100%", sequence=3, offset=17, time=1_700_000_000.5)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ten messages on `a.x`, then five on `b.x`: the offsets are 0 to 14."""
    with Broker(data=tmp_path_factory.mktemp("kept"), listen=LISTEN) as broker:
        with connect("hermod", at(broker, "hermod.pub"), publishing=True) as client:
            client.publish(Message("a.x", b"%d" % number) for number in range(10))
            client.publish(Message("b.x", b"%d" % number) for number in range(5))
        yield broker


def at(broker: Broker, listener: str = "hermod.sub") -> str:
    return f"tcp://127.0.0.1:{broker.ports[listener]}"


def read(broker: Broker, *arguments: str) -> list[str]:
    done = polycast("sub", *arguments, "--at", at(broker))
    assert done.code == 0, done.err
    return done.out.decode().splitlines()


# -- forms of the output ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("%t %o %s %p", b"a.b 17 3 \xff100%\n"),
        ("%T", b"2023-11-14T22:13:20.500000+00:00\n"),
        (r"%%p\t%t\n\\n", b"%p\ta.b\n\\n\n"),
        (os.fsdecode(b"\xfe%t"), b"\xfea.b\n"),
        ("", b"\n"),
        ("größer", "größer\n".encode()),
    ],
)
def test_a_template(template: str, written: bytes) -> None:
    assert parse_template(template)(FULL) == written


def test_what_is_unknown_is_a_dash() -> None:
    assert parse_template("%o %s %T")(Message("t", b"")) == b"- - -\n"


@pytest.mark.parametrize("template", ["%", "a%", "%x", "%10p", r"\x", "\\", "%\n"])
def test_an_unknown_directive(template: str) -> None:
    with pytest.raises(UsageError, match="--format: unknown directive") as caught:
        parse_template(template)
    assert "%t topic" in caught.value.hint


def test_the_payload_alone_and_only_one_form() -> None:
    assert to_writer(False, True, None)(FULL) == FULL.payload
    for forms in ((True, True, None), (True, False, "%p"), (False, True, "")):
        with pytest.raises(UsageError, match="exclude each other"):
            to_writer(*forms)


def test_templates_with_positions_choose_a_dialect_that_has_them(logged: Broker) -> None:
    assert uses_positions("%o") and uses_positions("%t %T")
    assert not uses_positions(None) and not uses_positions("%t%%o")
    with Program(*POLYCAST, "sub", "live", "--count=1", "--format=%t %s", "--at", at(logged)) as subscriber:
        assert subscriber.stderr.readline().startswith(b"subscribed")
        published = polycast_here("pub", "live", "x", "--at", at(logged, "hermod.pub"))
        assert published.code == 0
        assert subscriber.read_line() == b"live 0"


# -- the last messages, and the end of the log -----------------------------------------------------------


def test_the_end_of_the_log(logged: Broker) -> None:
    assert read(logged, "a.x", "--exit") == [f"a.x {number}" for number in range(10)]
    assert read(logged, "a.>", "b.x", "--exit", "--format=%o") == list(map(str, range(15)))
    assert read(logged, "none", "--exit") == []
    assert read(logged, "a.x", "none", "--from=@8", "--exit") == ["a.x 8", "a.x 9"]
    assert read(logged, "a.x", "--from=7", "--exit") == ["a.x 7", "a.x 8", "a.x 9"]
    assert read(logged, "a.x", "--from=-1d", "--exit", "--count=2") == ["a.x 0", "a.x 1"]


@pytest.mark.parametrize("begin", ["latest", "@12", "10", "2999-01-01"])
def test_there_may_be_nothing_from_there_on(logged: Broker, begin: str) -> None:
    assert read(logged, "a.x", f"--from={begin}", "--exit") == []


def test_the_last_messages(logged: Broker) -> None:
    assert read(logged, "a.x", "--last=2", "--exit") == ["a.x 8", "a.x 9"]
    assert read(logged, "a.>", "b.x", "--last=6", "--exit", "--format=%o") == ["9", "10", "11", "12", "13", "14"]
    assert read(logged, "a.>", "a.x", "~x", "--last=1", "--exit", "--format=%t %s") == ["b.x 4"]
    assert len(read(logged, "a.x", "--last=10000", "--exit")) == 10
    assert read(logged, "a.x", "--last=5", "--count=2") == ["a.x 5", "a.x 6"]
    assert polycast("sub", "b.x", "--last=2", "--exit", "--raw", "--at", at(logged)).out == b"34"


def test_after_the_last_messages_come_live_ones(logged: Broker) -> None:
    for topic, last in (("follow.a", []), ("follow.b", [b"1"])):
        if last:
            assert polycast_here("pub", topic, "1", "--at", at(logged, "hermod.pub")).code == 0
        with Program(*POLYCAST, "sub", topic, "--last=1", "--format=%p", "--at", at(logged)) as subscriber:
            assert subscriber.stderr.readline().startswith(b"subscribed")
            assert [subscriber.read_line() for _ in last] == last
            assert polycast_here("pub", topic, "2", "--at", at(logged, "hermod.pub")).code == 0
            assert subscriber.read_line() == b"2"


class Empty:
    """A client of a broker without messages that match, or without a log."""

    address = "tcp://broker:1"

    def __init__(self, response: Response) -> None:
        self._response = response

    def request(self, route: str, body: Any) -> Response:
        return self._response


def test_where_no_message_matches_yet_none_is_left_out() -> None:
    client: Any = Empty(Response(True, to_body([])))
    assert find_last(client, [Exact("a")], 3) == StartPosition()
    gap: Any = Empty(Response(True, to_body([{"missing": {"first": 0, "next": 5}}, {"offset": 7}])))
    assert find_last(gap, [Exact("a")], 3) == StartPosition(offset=7)
    refused: Any = Empty(Response(False, to_body("Forbidden")))
    with pytest.raises(RefusedError) as caught:
        find_last(refused, [Exact("a")], 3)
    assert caught.value.code == 403


def test_missing_messages_at_the_end_are_not_awaited() -> None:
    notices = StateNotices()
    notices.ends = {5, 9}
    notices.show(StateChange(State.GAP, "", None, 4, 6, "missing"))
    assert notices.ends == {9}
    with pytest.raises(EndOfLogError):
        notices.show(StateChange(State.GAP, "", None, 0, 10, "missing"))
    notices.ends = None
    notices.show(StateChange(State.GAP, "", None, 0, 10, "missing"))


def test_a_broker_without_a_log() -> None:
    with Broker(listen=LISTEN) as broker:
        for flag in ("--last=3", "--exit"):
            failed = polycast_here("sub", "a", flag, "--at", at(broker))
            assert failed.code == 1
            hint = f"hint: start the broker without --no-log, or omit {flag.partition('=')[0]}"
            assert failed.err.splitlines()[-1] == hint


# -- idle time, wrong usage ------------------------------------------------------------------------------


def test_idle_time_is_an_error(logged: Broker) -> None:
    idle = polycast("sub", "a.x", "--last=1", "--timeout=0.3", "--at", at(logged))
    assert (idle.code, idle.out) == (1, b"a.x 9\n")
    assert idle.err.splitlines()[-1].endswith("nothing arrived for 0.3 s (--timeout)")
    fine = polycast("sub", "a.x", "--exit", "--timeout=60", "--at", at(logged))
    assert fine.code == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--last=2", "--from=earliest"], "--from and --last exclude each other"),
        (["--exit", "--dialect=fanout"], "--exit needs the dialect hermod"),
        (["--last=2", "--dialect=ubre"], "--last needs the dialect hermod"),
        (["--format=%z"], "unknown directive %z"),
        (["--last=0"], "--last"),
        (["--last=10001"], "--last"),
        (["--timeout=0"], "--timeout"),
        (["--timeout=nan"], "--timeout"),
    ],
)
def test_wrong_usage(flags: list[str], words: str) -> None:
    failed = polycast_here("sub", "a", *flags, "--at", "tcp://127.0.0.1:1")
    assert (failed.code, failed.out) == (2, b"")
    assert words in failed.err


def test_times_have_a_zone_and_microseconds(logged: Broker) -> None:
    [text] = read(logged, "a.x", "--last=1", "--exit", "--format=%T")
    assert datetime.fromisoformat(text).utcoffset() is not None and len(text) == 32
