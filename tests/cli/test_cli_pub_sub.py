"""`polycast pub` and `polycast sub` against a real broker."""

from __future__ import annotations

import base64
import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.program import POLYCAST, Finished, Program, polycast, polycast_here
from kit.room import Room
from kit.wire import wait_for
from polycast.cli.pub import to_lines
from polycast.errors import UsageError

BINARY = bytes(range(256))


def at(broker: Broker, listener: str) -> str:
    return f"tcp://127.0.0.1:{broker.ports[listener]}"


def publish(broker: Broker, *arguments: str, stdin: bytes = b"") -> Finished:
    done = polycast("pub", "--at", at(broker, "hermod.pub"), *arguments, stdin=stdin)
    assert (done.code, done.out, done.err) == (0, b"", "")
    return done


def subscribing(broker: Broker, *arguments: str, listener: str = "simplest") -> Program:
    return Program(*POLYCAST, "sub", *arguments, "--at", at(broker, listener))


def wait_until_subscribed(program: Program) -> None:
    """Waits for its line on stderr; the broker has the subscription by then, and reads in order."""
    assert b"subscribed" in program.stderr.readline()


# -- pub -------------------------------------------------------------------------------------------------


def test_pub_sends_one_message(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub greeting\n")
    publish(broker, "greeting", "hello world")
    subscriber.expect(pub("greeting", b"hello world"))


@pytest.mark.parametrize("message", ["", " ", "größer", "a\nb", "--", "pub x 1 y"])
def test_pub_takes_a_message_as_it_is(broker: Broker, room: Room, message: str) -> None:
    subscriber = room.simplest(b"sub m\n")
    assert polycast_here("pub", "--at", at(broker, "hermod.pub"), "m", "--", message).code == 0
    subscriber.expect(pub("m", message.encode()))


def test_pub_takes_an_argument_that_is_not_utf8(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    publish(broker, "m", os.fsdecode(b"\xff\xfe"))
    subscriber.expect(pub("m", b"\xff\xfe"))


def test_pub_takes_lines_of_stdin(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    publish(broker, "m", "-", stdin=b"one\n\ntwo\r\n\xff\nlast without an end")
    subscriber.expect(b"".join(pub("m", data) for data in (b"one", b"", b"two", b"\xff", b"last without an end")))


def test_pub_takes_a_file_as_one_message(broker: Broker, room: Room, tmp_path: Path) -> None:
    subscriber = room.simplest(b"sub m\n")
    (tmp_path / "data").write_bytes(BINARY * 4000)
    publish(broker, "m", "--file", str(tmp_path / "data"))
    subscriber.expect(pub("m", BINARY * 4000))


def test_pub_takes_all_of_stdin_as_one_message(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    publish(broker, "m", "--file", "-", stdin=b"one\ntwo\n" + BINARY)
    subscriber.expect(pub("m", b"one\ntwo\n" + BINARY))


def test_pub_repeats(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    publish(broker, "m", "x", "--count", "1000")
    subscriber.expect(pub("m", b"x") * 1000)
    publish(broker, "m", "-", "--count", "2", stdin=b"a\nb\n")
    subscriber.expect((pub("m", b"a") + pub("m", b"b")) * 2)


def test_pub_sends_each_line_when_it_comes(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    with Program(*POLYCAST, "pub", "m", "-", "--at", at(broker, "hermod.pub")) as publisher:
        publisher.type(b"first\n")
        wait_for(lambda: publisher.waits_for_input(), "the publisher to wait for more")
        room.simplest()
        assert room.received_by(subscriber) == pub("m", b"first")


def test_pub_as_a_controller_of_fanout(broker: Broker, room: Room) -> None:
    client = room.client(b"subscribe chat\n")
    done = polycast(
        "pub", "chat", "-", "--dialect=fanout", "--at", at(broker, "fanout.controller"), stdin=b"a b\nc!\n"
    )
    assert (done.code, done.out, done.err) == (0, b"", "")
    client.expect(b"chat!a b\nchat!c!\n")


def test_the_broker_can_be_named_by_the_environment(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    assert polycast("pub", "m", "x", env={"POLYCAST_AT": at(broker, "hermod.pub")}).code == 0
    subscriber.expect(pub("m", b"x"))


def test_an_address_may_lack_its_scheme(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub m\n")
    assert polycast("pub", "m", "x", "--at", f"127.0.0.1:{broker.ports['hermod.pub']}").code == 0
    subscriber.expect(pub("m", b"x"))


def test_ipc(tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/sock"
    with (
        Broker(f"--listen=simplest={place}", listen=()),
        Program(*POLYCAST, "sub", "m", "--at", place) as subscriber,
    ):
        wait_until_subscribed(subscriber)
        assert polycast("pub", "m", "x", "--dialect=simplest", "--at", place).code == 0
        subscriber.expect(b"m x\n")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["m"], "MESSAGE or --file"),
        (["m", "x", "--file", "f"], "MESSAGE or --file"),
        (["m", "--file", "/no/such"], "/no/such"),
        (["", "x", "--dialect", "simplest"], "topic"),
        (["a b", "x", "--dialect", "simplest"], "'a b'"),
        (["a\nb", "x", "--dialect", "simplest"], "white space"),
        ([os.fsdecode(b"\xff"), "x"], "not UTF-8"),
        (["m", "x", "--dialect", "smoke"], "hint: known are"),
        (["a!b", "x", "--dialect", "fanout"], "'a!b'"),
        (["m", "a\nb", "--dialect", "fanout"], "line break"),
        (["m", "x", "--count", "0"], "--count"),
    ],
)
def test_wrong_usage_of_pub(broker: Broker, arguments: list[str], word: str) -> None:
    listener = "fanout.controller" if "fanout" in arguments else "hermod.pub"
    failed = polycast_here("pub", *arguments, "--at", at(broker, listener))
    assert (failed.code, failed.out) == (2, b"")
    assert word in failed.err


def test_a_long_line_of_stdin_is_joined_once() -> None:
    """Piece by piece it would be copied as often as it has pieces: 100 GB in all."""
    pieces = [b"x" * 64] * 60_000
    assert list(to_lines([*pieces, b"\nend"])) == [[b"".join(pieces)], [b"end"]]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_are_the_same_for_any_block_sizes(size: int) -> None:
    data = b"one\n\ntwo\r\n\r\n\rthree\r\nlast"
    lines = to_lines(data[begin : begin + size] for begin in range(0, len(data), size))
    assert [line for batch in lines for line in batch] == [b"one", b"", b"two", b"", b"\rthree", b"last"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long(end: bytes) -> None:
    assert list(to_lines([b"x" * 60, b"x" * 40 + end], limit=100)) == [[b"x" * 100]]
    with pytest.raises(UsageError, match="longer than 100 bytes") as caught:
        list(to_lines([b"x" * 60, b"x" * 41 + end], limit=100))
    assert "--file" in caught.value.hint


# -- sub -------------------------------------------------------------------------------------------------


def test_sub_prints_topic_and_payload(broker: Broker, room: Room) -> None:
    with subscribing(broker, "chat") as subscriber:
        wait_until_subscribed(subscriber)
        room.simplest(pub("chat", b"hello world") + pub("chat") + pub("chat", BINARY))
        subscriber.expect(b"chat hello world\nchat \nchat " + BINARY + b"\n")


INPUT = ["foo", "foo.bar", "foo.bar.baz", "foo.>", "fool", "other", "~oo", "=foo", "all"]
PATTERNS = {
    "foo": ["foo"],
    "foo.>": ["foo.bar", "foo.bar.baz", "foo.>"],
    "~oo.b": ["foo.bar", "foo.bar.baz"],
    ">": INPUT,
    "=foo.>": ["foo.>"],
    "=~oo": ["~oo"],
}


@pytest.mark.parametrize("listener", ["simplest", "fanout.client", "hermod.sub"])
def test_patterns_of_each_kind(broker: Broker, room: Room, listener: str) -> None:
    dialect = ("--dialect", listener.split(".")[0])
    with ExitStack() as running:
        programs = {
            pattern: running.enter_context(
                subscribing(broker, pattern, *dialect, "--count", str(len(received)), listener=listener)
            )
            for pattern, received in PATTERNS.items()
        }
        for program in programs.values():
            wait_until_subscribed(program)
        wait_until_counted(room)
        room.simplest(b"".join(pub(name, name.encode()) for name in INPUT))
        for pattern, program in programs.items():
            done = program.finish()
            assert done.out.decode() == "".join(f"{name} {name}\n" for name in PATTERNS[pattern]), pattern
            assert done.code == 0


def wait_until_counted(room: Room) -> None:
    """What the program sent before it spoke has been read once the broker has gone round twice."""
    for _ in range(2):
        room.simplest()


def test_several_patterns(broker: Broker, room: Room) -> None:
    with subscribing(broker, "a", "b.>", "~c", "--count", "3") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        room.simplest(pub("a", b"1") + pub("d", b"2") + pub("b.a", b"3") + pub("xcx", b"4"))
        assert subscriber.finish().out == b"a 1\nb.a 3\nxcx 4\n"


def test_sub_stops_after_count_messages_of_many(broker: Broker, room: Room) -> None:
    with subscribing(broker, "m", "--count", "5") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        room.simplest(b"".join(pub("m", b"%d" % number) for number in range(1000)))
        done = subscriber.finish()
    assert done.out == b"m 0\nm 1\nm 2\nm 3\nm 4\n"
    assert done.code == 0


def test_json(broker: Broker, room: Room) -> None:
    with subscribing(broker, ">", "--json", "--count", "4") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        room.simplest(pub("a", b"text\nof two lines") + pub("é", "größer".encode()) + pub("b", BINARY) + pub("c"))
        lines = subscriber.finish().out.decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["topic"] for row in rows] == ["a", "é", "b", "c"]
    assert [row["payload"] for row in rows if row["topic"] != "b"] == ["text\nof two lines", "größer", ""]
    assert base64.b64decode(rows[2]["payload"]["$base64"]) == BINARY
    assert {row["format"] for row in rows} == {"bytes"}
    assert "größer" in lines[1]


def test_fanout_skips_the_welcome_but_not_other_debug_messages(broker: Broker, room: Room) -> None:
    with subscribing(broker, "debug", "--dialect", "fanout", listener="fanout.client") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        room.send_as_controller(room.controller(), b"debug connected...\nall not asked for\ndebug two\n")
        subscriber.expect(b"debug connected...\ndebug two\n")


def test_sub_in_hermod_shows_the_sequence(broker: Broker, room: Room) -> None:
    command = ("counted", "--dialect=hermod", "--json", "--count", "2")
    with subscribing(broker, *command, listener="hermod.sub") as subscriber:
        wait_until_subscribed(subscriber)
        room.simplest(pub("counted", b"a") + pub("counted", b"b"))
        rows = [json.loads(line) for line in subscriber.finish().out.splitlines()]
    assert rows == [
        {"topic": "counted", "format": "bytes", "payload": payload, "sequence": sequence}
        for sequence, payload in enumerate("ab")
    ]


def test_a_dialect_without_patterns_names_those_with(broker: Broker) -> None:
    failed = polycast("sub", "a", "b.>", "--dialect", "ubre", "--at", at(broker, "http"))
    assert (failed.code, failed.out) == (2, b"")
    assert "'b.>'" in failed.err
    assert "hint: simplest, hermod, fanout and nanomsg can" in failed.err


def test_a_large_message(broker: Broker, room: Room) -> None:
    with subscribing(broker, "big", "--count", "1") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        room.simplest(pub("big", BINARY * 8000))
        assert subscriber.finish().out == b"big " + BINARY * 8000 + b"\n"


# -- how they end ----------------------------------------------------------------------------------------


def test_an_interrupt_ends_sub_quietly(broker: Broker, room: Room) -> None:
    with subscribing(broker, "m") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        room.simplest(pub("m", b"x"))
        subscriber.expect(b"m x\n")
        subscriber.interrupt()
        done = subscriber.finish()
    assert (done.code, done.out, done.err) == (0, b"", "")


def test_an_interrupt_ends_pub_without_a_traceback(broker: Broker) -> None:
    with Program(*POLYCAST, "pub", "m", "-", "--at", at(broker, "hermod.pub")) as publisher:
        publisher.type(b"one\n")
        wait_for(lambda: publisher.waits_for_input(), "the publisher to wait for more")
        publisher.interrupt()
        done = publisher.finish()
    assert done.out == b""
    assert "Traceback" not in done.err


def test_a_closed_pipe_is_no_failure(broker: Broker, room: Room) -> None:
    with subscribing(broker, "m") as subscriber:
        wait_until_subscribed(subscriber)
        wait_until_counted(room)
        subscriber.stdout.close()
        room.simplest(pub("m", b"x"))
        assert subscriber.stderr.read() == b""
        assert subscriber.process.wait() == 0


@pytest.mark.parametrize("command", [["pub", "m", "x"], ["sub", "m"]])
@pytest.mark.parametrize("dialect", ["simplest", "hermod", "fanout", "nanomsg", "ubre"])
def test_without_a_broker_there_is_a_hint(command: list[str], dialect: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    failed = polycast_here(*command, "--dialect", dialect, "--at", place)
    assert (failed.code, failed.out) == (1, b"")
    error, hint = failed.err.splitlines()
    assert error.startswith(f"polycast: cannot reach {place}")
    assert hint.startswith("hint: ")
    assert "polycast serve" in hint


@pytest.mark.parametrize("command", [["pub", "m", "x"], ["sub", "m", "--dialect=hermod"]])
def test_a_wrong_port_is_an_error_with_a_hint(broker: Broker, command: list[str]) -> None:
    failed = polycast(*command, "--at", at(broker, "fanout.client"))
    assert (failed.code, failed.out) == (1, b"")
    error, hint = failed.err.splitlines()
    assert at(broker, "fanout.client") in error
    assert hint.startswith("hint: is that the address for ")


def test_sub_exits_with_1_when_the_broker_closes_the_connection() -> None:
    with Broker(listen=("simplest",)) as broker, subscribing(broker, "m", "--no-reconnect") as subscriber:
        wait_until_subscribed(subscriber)
        broker.stop()
        done = subscriber.finish()
    assert (done.code, done.out) == (1, b"")
    assert "closed the connection" in done.err


@pytest.mark.parametrize("address", ["nowhere:", "udp://127.0.0.1:1", "tcp://127.0.0.1:x", "ipc://relative"])
def test_a_wrong_address(address: str) -> None:
    for command in (["pub", "m", "x"], ["sub", "m"]):
        failed = polycast_here(*command, "--at", address)
        assert (failed.code, failed.out) == (2, b"")
        assert "hint: " in failed.err


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["pub", "m", "--file", "/no/such"], "/no/such"),
        (["pub", "a b", "x", "--dialect=simplest"], "'a b'"),
        (["pub", "a b", "-", "--dialect=simplest"], "'a b'"),
        (["pub", "m", "a\nb", "--dialect=fanout"], "line break"),
        (["pub", "n" * 1025, "x", "--dialect=nanomsg"], "too long"),
        (["sub", ""], "cannot be empty"),
        (["sub", "a.>", "--dialect=ubre"], "'a.>'"),
        (["sub", "a\nb", "--dialect=simplest"], "line break"),
        (["sub", "n" * 65537, "--dialect=simplest"], "65,537 bytes"),
        (["sub", "~" + "n" * 1025, "--dialect=fanout"], "1,025 bytes"),
        (["sub", "n" * 1025, "--dialect=nanomsg"], "1,025 bytes"),
        (["sub", os.fsdecode(b"\xff"), "--dialect=nanomsg"], "not UTF-8"),
        (["sub", "polycast/events", "--dialect=nanomsg"], "nanomsg cannot subscribe"),
    ],
)
def test_wrong_usage_is_noticed_before_any_connection(command: list[str], word: str) -> None:
    """Nobody listens there, which would be another error."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    failed = polycast_here(*command, "--at", place)
    assert (failed.code, failed.out) == (2, b"")
    assert word in failed.err


@pytest.mark.parametrize("address", ["mqtt://127.0.0.1:8080", "redis://127.0.0.1/ubre"])
@pytest.mark.parametrize(
    ("dialect", "ways"),
    [("ubre", ["tcp", "tls", "ipc", "ws", "wss", "http"]), ("hermod", ["tcp", "tls", "ipc", "http"])],
)
def test_an_unknown_scheme(address: str, dialect: str, ways: list[str]) -> None:
    failed = polycast_here("sub", "m", "--dialect", dialect, "--at", address)
    assert (failed.code, failed.out) == (2, b"")
    hint = failed.err.splitlines()[1]
    named = hint.removeprefix("hint: ")
    assert [way for way in ("tcp", "tls", "ipc", "ws", "wss", "http") if f"{way}://" in named] == ways


def test_an_empty_pattern_is_wrong_usage(broker: Broker) -> None:
    failed = polycast("sub", "", "--at", at(broker, "simplest"))
    assert (failed.code, failed.out) == (2, b"")
    assert "hint: '>' matches everything" in failed.err


def test_a_refusal_is_an_error(broker: Broker) -> None:
    failed = polycast("pub", "n" * 1025, "x", "--at", at(broker, "hermod.pub"))
    assert (failed.code, failed.out) == (1, b"")
    assert "refused: 413 a topic of 1,025 exceeds the limit of 1,024" in failed.err


def test_refusals_without_acknowledgements_are_in_the_broker_log(broker: Broker) -> None:
    polycast("pub", "n" * 1025, "x", "--dialect=simplest", "--at", at(broker, "simplest"))
    assert "a topic of 1,025 exceeds the limit of 1,024" in broker.wait_for_log("limits.topic_bytes")


@pytest.mark.parametrize("listener", ["simplest", "fanout.controller"])
def test_pub_fails_when_the_broker_closes_the_connection(listener: str) -> None:
    command = ("pub", "n" * 1025, "-", "--dialect", listener.split(".")[0])
    with (
        Broker(listen=(listener,)) as broker,
        Program(*POLYCAST, *command, "--at", at(broker, listener)) as publisher,
    ):
        publisher.type(b"one\n")
        broker.wait_for_log("limits.topic_bytes")
        publisher.end_input()
        done = publisher.finish()
    assert (done.code, done.out) == (1, b"")
    assert "the broker closed the connection, some messages may be lost; its log says why" in done.err


def test_sub_reconnects_and_reports_it(tmp_path: Path) -> None:
    """In hermod without a loss, at the second of two addresses."""
    place = f"ipc://{tmp_path}/socket"
    flags = f"--listen=hermod.sub={place}", "--listen=hermod.pub=tcp://127.0.0.1:0"
    command = "sub", "m", "--dialect=hermod", "--count=2", "--at", f"ipc://{tmp_path}/nothing,{place}"
    with Broker(*flags, listen=(), data=tmp_path) as broker, Program(*POLYCAST, *command) as subscriber:
        wait_until_subscribed(subscriber)
        polycast_here("pub", "m", "one", "--at", at(broker, "hermod.pub"))
        assert subscriber.read_line() == b"m one"
        broker.kill()
        with Broker(*flags, listen=(), data=tmp_path) as again:
            polycast_here("pub", "m", "two", "--at", at(again, "hermod.pub"))
            done = subscriber.finish()
    assert (done.code, done.out) == (0, b"m two\n")
    lost, back = done.err.splitlines()[-2:]
    assert lost.endswith("; connecting again")
    assert back == f"connected again to {place}; nothing is lost"
