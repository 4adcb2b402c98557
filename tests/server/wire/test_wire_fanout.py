"""The dialect `fanout`, as its clients and controllers see it on the wire."""

from __future__ import annotations

import time

import pytest

from kit.frames import pub
from kit.room import GREETING, Room


def test_a_client_is_greeted_at_once(room: Room) -> None:
    room.connect("fanout.client").expect(GREETING)


def test_a_client_is_subscribed_to_all(room: Room) -> None:
    one, two = room.client(), room.client()
    room.send_as_controller(room.controller(), b"all hello everybody\n")
    one.expect(b"all!hello everybody\n")
    two.expect(b"all!hello everybody\n")


def test_a_client_can_leave_all(room: Room) -> None:
    client = room.client(b"unsubscribe all\n")
    room.send_as_controller(room.controller(), b"all hello everybody\n")
    room.send_as_client(client)


def test_a_client_gets_what_it_subscribed_to(room: Room) -> None:
    one, two = room.client(b"subscribe aaa\n"), room.client(b"subscribe bbb\n")
    room.send_as_controller(room.controller(), b"aaa for one\nbbb for two\nccc for nobody\n")
    one.expect(b"aaa!for one\n")
    two.expect(b"bbb!for two\n")
    room.send_as_client(one)
    room.send_as_client(two)


def test_the_time_is_bare_milliseconds(room: Room) -> None:
    client = room.client()
    before = time.time_ns() // 1_000_000
    client.send(b"time\n")
    reply = client.read_until(b"\n")
    after = time.time_ns() // 1_000_000
    assert reply == b"%d\n" % int(reply)
    assert before <= int(reply) <= after


def test_every_time_command_gets_the_time(room: Room) -> None:
    client = room.client()
    client.send(b"time\ntime\r\ntime now please\n")
    for _ in range(3):
        assert client.read_until(b"\n").strip().isdigit()
    room.send_as_client(client)


@pytest.mark.parametrize(
    ("channel", "received", "unmatched"),
    [
        ("foo", ["foo"], ["fo", "fooo", "FOO", "foo.bar", "bar.foo"]),
        ("foo.bar.>", ["foo.bar.a", "foo.bar.a.b", "foo.bar.", "foo.bar..", "foo.bar.>"],
         ["foo.bar", "foo.barx", "foo.bar>", "x.foo.bar.a", "FOO.bar.a"]),
        (">", ["a", "a.b", ">", "*", "é", "all"], ["polycast/x"]),
        (".>", [".a", ".>"], ["a.b", ">"]),
        ("foo>", ["foo>"], ["foo", "foo.a", "fooa"]),
        ("a.>.b", ["a.>.b"], ["a.x.b", "a.b"]),
        (">.a", [">.a"], ["x.a", "a"]),
        (">>", [">>"], [">", "a"]),
        ("*", ["*"], ["a", "a.b"]),
        ("foo.*", ["foo.*"], ["foo.a"]),
        ("polycast/x", ["polycast/x"], ["polycast/y"]),
    ],
)  # fmt: skip
def test_what_a_subscription_matches(room: Room, channel: str, received: list[str], unmatched: list[str]) -> None:
    client = room.client(b"unsubscribe all\n" + f"subscribe {channel}\n".encode())
    lines = [
        f"{name} x\n" for pair in zip(received + unmatched, unmatched + received, strict=True) for name in pair
    ]
    room.send_as_controller(room.controller(), "".join(lines).encode())
    wanted = [line.replace(" ", "!") for line in lines if line.split()[0] in received]
    client.expect("".join(wanted).encode())
    room.send_as_client(client)


def test_a_duplicate_subscription_is_ignored(room: Room) -> None:
    client = room.client(b"subscribe foo\nsubscribe foo\nsubscribe all\n")
    controller = room.controller()
    room.send_as_controller(controller, b"foo 1\n")
    client.expect(b"foo!1\n")
    room.send_as_client(client, b"unsubscribe foo\n")
    room.send_as_controller(controller, b"foo 2\n")
    room.send_as_client(client)


def test_several_matching_subscriptions_give_one_delivery(room: Room) -> None:
    client = room.client(b"subscribe a.b\nsubscribe a.>\nsubscribe >\n")
    room.send_as_controller(room.controller(), b"a.b 1\nall 2\n")
    client.expect(b"a.b!1\nall!2\n")
    room.send_as_client(client)


@pytest.mark.parametrize("other", ["foo.bar", "foo.>", "foo.bar.a", "FOO.BAR.>", ">", "foo.bar."])
def test_unsubscribe_takes_exactly_the_text_subscribed(room: Room, other: str) -> None:
    client = room.client(f"subscribe foo.bar.>\nunsubscribe {other}\n".encode())
    controller = room.controller()
    room.send_as_controller(controller, b"foo.bar.a 1\n")
    client.expect(b"foo.bar.a!1\n")
    room.send_as_client(client, b"unsubscribe foo.bar.>\n")
    room.send_as_controller(controller, b"foo.bar.a 2\n")
    room.send_as_client(client)


def test_unsubscribe_all_leaves_everything_in_force(room: Room) -> None:
    client = room.client(b"subscribe >\nunsubscribe all\n")
    room.send_as_controller(room.controller(), b"all 1\n")
    client.expect(b"all!1\n")


def test_only_the_first_word_after_the_command_counts(room: Room) -> None:
    client = room.client(b"subscribe foo bar baz\n")
    controller = room.controller()
    room.send_as_controller(controller, b"foo 1\nbar 2\nbaz 3\n")
    client.expect(b"foo!1\n")
    room.send_as_client(client, b"unsubscribe foo bar\n")
    room.send_as_controller(controller, b"foo 4\n")
    room.send_as_client(client)


def test_lines_may_end_in_crlf(room: Room) -> None:
    client = room.client(b"subscribe foo\r\nsubscribe bar\r\nunsubscribe bar\r\n")
    room.send_as_controller(room.controller(), b"foo hi\r\nbar ho\r\nfoo two\r\r\n")
    client.expect(b"foo!hi\nfoo!two\r\n")
    room.send_as_client(client)


@pytest.mark.parametrize(
    "line",
    [
        b"", b" ", b"\r", b"hello", b"SUBSCRIBE foo", b"subscribe", b"subscribe ", b"unsubscribe", b"Time",
        b"times", b"foo hello", b"subscribe\tfoo", b"subscribe a!b", b"subscribe \xff", b"unsubscribe \xff",
        b"unsubscribe a!b",
        b"subscribe " + b"x" * 1025, b"\x00\xff", b"l" * 65_536, b"GET / HTTP",
    ],
)  # fmt: skip
def test_other_lines_of_a_client_are_ignored(room: Room, line: bytes) -> None:
    client = room.client(line + b"\nsubscribe bar\n")
    room.send_as_controller(room.controller(), b"foo 1\na!b 2\na 3\nbar 4\n")
    client.expect(b"bar!4\n")
    room.send_as_client(client)


def test_a_line_of_a_client_that_is_too_long_costs_its_connection(room: Room) -> None:
    witness = room.client()
    client = room.client()
    client.send(b"l" * 65_537)
    assert client.expect_closed() == b""
    room.send_as_controller(room.controller(), b"all fine\n")
    witness.expect(b"all!fine\n")


# -- controllers -----------------------------------------------------------------------------------------


def test_a_controller_gets_no_replies(room: Room) -> None:
    client = room.client(b"subscribe foo\n")
    controller = room.controller()
    controller.send(b"subscribe foo\ntime\nall hello\nfoo hello\nhello\n")
    client.expect(b"all!hello\nfoo!hello\n")
    controller.shut()
    assert controller.expect_closed() == b""


@pytest.mark.parametrize(
    "message",
    [
        b"", b" ", b"  two  spaces  ", b"bang!bang!", "größer €".encode(), b"\xff\xfe\x00", b"a\rb", b"\t",
        b"foo hello", b"x" * (65_536 - len(b"foo ")),
    ],
)  # fmt: skip
def test_a_message_is_delivered_byte_for_byte(room: Room, message: bytes) -> None:
    client = room.client(b"subscribe foo\n")
    room.send_as_controller(room.controller(), b"foo " + message + b"\n")
    client.expect(b"foo!" + message + b"\n")
    room.send_as_client(client)


@pytest.mark.parametrize(
    "channel", ["error", "debug", "time", "subscribe", "constructor", "é", "\N{GRINNING FACE}"]
)
def test_a_channel_may_have_any_name(room: Room, channel: str) -> None:
    client = room.client(f"subscribe {channel}\n".encode())
    room.send_as_controller(room.controller(), f"{channel} x\n".encode())
    client.expect(f"{channel}!x\n".encode())


@pytest.mark.parametrize(
    "line", [b"", b"\r", b"foo", b"foo\r", b" foo", b" ", b"a!b x", b"!a x", b"\xff x", b"a\xc3 x"]
)
def test_a_line_that_is_no_message_is_ignored(room: Room, line: bytes) -> None:
    client = room.client(b"subscribe >\n")
    room.send_as_controller(room.controller(), b"a 1\n" + line + b"\nb 2\n")
    client.expect(b"a!1\nb!2\n")
    room.send_as_client(client)


@pytest.mark.parametrize("line", [b"foo " + b"x" * 65_533, b"c" * 65_537, b"c" * 1025 + b" x\n"])
def test_a_line_of_a_controller_that_is_too_long_costs_its_connection(room: Room, line: bytes) -> None:
    client = room.client(b"subscribe >\n")
    controller = room.controller()
    controller.send(b"before 1\n" + line)
    assert controller.expect_closed() == b""
    room.send_as_controller(room.controller(), b"after 2\n")
    client.expect(b"before!1\nafter!2\n")


def test_an_incomplete_last_line_is_discarded(room: Room) -> None:
    client = room.client(b"subscribe >\n")
    controller = room.controller()
    controller.send(b"foo whole\nfoo half")
    controller.shut()
    controller.expect_closed()
    room.send_as_controller(room.controller(), b"foo next\n")
    client.expect(b"foo!whole\nfoo!next\n")


def test_a_message_without_subscribers_is_dropped(room: Room) -> None:
    controller = room.controller()
    room.send_as_controller(controller, b"foo early\n")
    client = room.client(b"subscribe foo\n")
    room.send_as_controller(controller, b"foo late\n")
    client.expect(b"foo!late\n")


def test_a_client_cannot_publish(room: Room) -> None:
    listener = room.simplest(b"sub \n")
    room.send_as_client(room.client(), b"foo hello\nall hello\npub foo 1 x\n")
    room.expect_quiet(listener)
    room.simplest(pub("foo", b"x"))
    listener.expect(pub("foo", b"x"))
