"""The dialect `simplest`, as its peers see it on the wire."""

from __future__ import annotations

import pytest

from kit.frames import pub
from kit.room import Room
from kit.wire import Peer


def test_the_broker_sends_nothing_first(room: Room) -> None:
    room.expect_quiet(room.simplest())


def test_a_message_reaches_its_subscriber(room: Room) -> None:
    """The example in the specification."""
    subscriber = room.simplest(b"sub //myorg/chat/\n")
    room.simplest(b"pub //myorg/chat/main 5 hello\n")
    subscriber.expect(b"pub //myorg/chat/main 5 hello\n")


def test_a_publisher_does_not_get_its_own_messages(room: Room) -> None:
    one = room.simplest(b"sub chat\n")
    other = room.simplest(b"sub chat\n")
    room.send_commands(one, pub("chat", b"from one"))
    other.expect(pub("chat", b"from one"))
    room.send_commands(other, pub("chat", b"from the other"))
    one.expect(pub("chat", b"from the other"))
    room.expect_quiet(other)


@pytest.mark.parametrize("command", [b"sub \n", b"sub\n", b"sub \r\n", b"sub\r\n"])
def test_a_subscription_without_a_text_matches_everything(room: Room, command: bytes) -> None:
    subscriber = room.simplest(command)
    room.simplest(pub("a", b"1") + pub("//b/c", b"2") + pub("é", b"3"))
    subscriber.expect(pub("a", b"1") + pub("//b/c", b"2") + pub("é", b"3"))


@pytest.mark.parametrize(
    ("text", "topic"),
    [("b", "abc"), ("abc", "abc"), ("c", "abc"), ("a", "abc"), ("é", "caféx"), ("/", "a/b"), (".>", "a.>")],
)
def test_a_subscription_matches_anywhere_in_the_name(room: Room, text: str, topic: str) -> None:
    subscriber = room.simplest(f"sub {text}\n".encode())
    room.simplest(pub(topic, b"x"))
    subscriber.expect(pub(topic, b"x"))


@pytest.mark.parametrize(
    ("text", "topic"), [("abcd", "abc"), ("A", "abc"), ("a b", "ab"), ("a*", "abc"), (" a", "a")]
)
def test_a_subscription_is_taken_literally(room: Room, text: str, topic: str) -> None:
    subscriber = room.simplest(f"sub {text}\n".encode())
    room.simplest(pub(topic, b"x"))
    room.expect_quiet(subscriber)


def test_a_subscription_loses_one_cr_only(room: Room) -> None:
    subscriber = room.simplest(b"sub ab\r\n")
    strict = room.simplest(b"sub ab\r\r\n")
    room.simplest(pub("abc"))
    subscriber.expect(pub("abc"))
    room.expect_quiet(strict)


def test_unsub_ends_exactly_the_subscription_named(room: Room) -> None:
    subscriber = room.simplest(b"sub a\nsub ab\nunsub a\nunsub b\n")
    room.simplest(pub("a", b"1") + pub("ab", b"2"))
    subscriber.expect(pub("ab", b"2"))
    room.send_commands(subscriber, b"unsub ab\r\n")
    room.simplest(pub("ab", b"3"))
    room.expect_quiet(subscriber)


@pytest.mark.parametrize("command", [b"unsub\n", b"unsub \n"])
def test_unsub_without_a_text_ends_the_subscription_to_everything(room: Room, command: bytes) -> None:
    subscriber = room.simplest(b"sub a\nsub\n" + command)
    room.simplest(pub("b") + pub("a"))
    subscriber.expect(pub("a"))


def test_unsub_of_what_was_not_subscribed_is_a_no_op(room: Room) -> None:
    subscriber = room.simplest(b"unsub x\nsub x\nunsub y\n")
    room.simplest(pub("x"))
    subscriber.expect(pub("x"))


def test_several_matching_subscriptions_give_one_delivery(room: Room) -> None:
    subscriber = room.simplest(b"sub a\nsub b\nsub ab\nsub\nsub a\n")
    room.simplest(pub("ab", b"once"))
    subscriber.expect(pub("ab", b"once"))
    room.expect_quiet(subscriber)


def test_a_duplicate_subscription_is_ended_by_one_unsub(room: Room) -> None:
    subscriber = room.simplest(b"sub a\nsub a\nunsub a\n")
    room.simplest(pub("a"))
    room.expect_quiet(subscriber)


# -- syntax of pub ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b"pub n 0 \n", b"pub n 0 \n"),
        (b"pub n 0\n", b"pub n 0 \n"),
        (b"pub n 0\r\n", b"pub n 0 \n"),
        (b"pub n 0 \r\n", b"pub n 0 \n"),
        (b"pub n 5 hello\r\n", b"pub n 5 hello\n"),
        (b"pub n 005 hello\n", b"pub n 5 hello\n"),
        (b"pub n 0000000005 hello\n", b"pub n 5 hello\n"),
        (b"pub n 1 \n\n", b"pub n 1 \n\n"),
        (b"pub n 2 \r\n\r\n", b"pub n 2 \r\n\n"),
        (b"pub n 1  \n", b"pub n 1  \n"),
        (b"pub n 12 pub x 1 y\nzz\n", b"pub n 12 pub x 1 y\nzz\n"),
        (b"pub n 4 \x00\xff\xfe\n\n", b"pub n 4 \x00\xff\xfe\n\n"),
        (b"pub 5 1 x\n", b"pub 5 1 x\n"),
        (b"pub pub 3 sub\n", b"pub pub 3 sub\n"),
    ],
)  # fmt: skip
def test_a_pub_in_any_form_is_sent_on_in_the_plain_one(room: Room, sent: bytes, received: bytes) -> None:
    subscriber = room.simplest(b"sub \n")
    room.simplest(sent + b"pub end 0 \n")
    subscriber.expect(received + b"pub end 0 \n")


def test_a_length_counts_bytes_not_characters(room: Room) -> None:
    subscriber = room.simplest(b"sub n\n")
    data = "größer".encode()
    assert len(data) == 8
    room.simplest(b"pub n 8 " + data + b"\n")
    subscriber.expect(b"pub n 8 " + data + b"\n")


def test_a_name_of_the_longest_size_passes(room: Room) -> None:
    name = "n" * 1024
    subscriber = room.simplest(b"sub nnn\n")
    room.simplest(pub(name, b"x"))
    subscriber.expect(pub(name, b"x"))


# -- ignored input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\r", b"hello", b"SUB x", b"PUB n 1 x", b"publish n 1 x", b"pubn 1 x", b"subscribe x", b"sub\tx",
        b" sub x", b"unsubscribe x", b"time", b"GET / HTTP/1.1", b"\x00\xff\xfe", b"sub \xff", b"unsub \xff",
        b"sub " + b"x" * 1025, b"l" * 65_536, b"l" * 65_536 + b"\r",
    ],
)  # fmt: skip
def test_other_lines_are_passed_over_without_a_word(room: Room, line: bytes) -> None:
    peer = room.simplest(b"sub x\n")
    witness = room.simplest(b"sub x\n")
    room.send_commands(peer, line + b"\n" + pub("x", b"still here"))
    witness.expect(pub("x", b"still here"))
    room.simplest(pub("x", b"me too"))
    peer.expect(pub("x", b"me too"))
    witness.expect(pub("x", b"me too"))


@pytest.mark.parametrize("name", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_a_name_that_is_not_utf8_is_refused_alone(room: Room, name: bytes) -> None:
    subscriber = room.simplest(b"sub \n")
    bad = b"pub " + name + b" 1 x\n"
    peer = room.simplest(pub("a", b"1") + bad + pub("b", b"2") + bad)
    subscriber.expect(pub("a", b"1") + pub("b", b"2"))
    room.send_commands(peer, pub("c", b"3"))
    subscriber.expect(pub("c", b"3"))


# -- input that closes the connection --------------------------------------------------------------------

MALFORMED = [
    b"pub\n", b"pub \n", b"pub n\n", b"pub n \n", b"pub n x\n", b"pub n -1 x\n", b"pub n +1 x\n",
    b"pub n 0x1 x\n", b"pub n 1.0 x\n", b"pub n 1e0 x\n", b"pub  n 1 x\n", b"pub n  1 x\n", b"pub n 1x\n",
    b"pub n 1\tx\n", b"pub n 00000000001 x\n", b"pub n 99999999999 ", b"pub n 1\n", b"pub n 1\r\n",
    b"pub n 1 xy\n", b"pub n 3 x\n\nz\n", b"pub n 1 x\rpub n 1 x\n", b"pub n\r 1 x\n", b"pub \r\n", b"pub\r\n",
    "pub n \N{ARABIC-INDIC DIGIT ONE} x\n".encode(), b"pub " + b"n" * 1025 + b" 1 x\n", b"l" * 65_537,
    b"sub " + b"l" * 65_533,
]  # fmt: skip


@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: repr(bad[:24]))
def test_a_malformed_pub_costs_its_own_connection_and_no_other(room: Room, bad: bytes) -> None:
    witness = room.simplest(b"sub \n")
    peer = room.simplest(b"sub \n")
    peer.send(pub("before", b"1") + bad)
    assert peer.expect_closed() == b""
    witness.expect(pub("before", b"1"))
    room.simplest(pub("after", b"2"))
    witness.expect(pub("after", b"2"))


def test_input_after_a_malformed_pub_is_ignored(room: Room) -> None:
    witness = room.simplest(b"sub \n")
    peer = room.connect("simplest")
    peer.send(b"pub n 1 xy\n" + pub("n", b"smuggled"))
    peer.expect_closed()
    room.expect_quiet(witness)


@pytest.mark.parametrize("rest", [b"pub n 5 hel", b"pub n 5", b"pub n 5 hello", b"pub", b"sub x", b"p"])
def test_an_incomplete_last_command_is_discarded(room: Room, rest: bytes) -> None:
    witness = room.simplest(b"sub \n")
    peer = room.connect("simplest")
    peer.send(pub("whole", b"1") + rest)
    _end(peer)
    witness.expect(pub("whole", b"1"))
    room.expect_quiet(witness)


def _end(peer: Peer) -> None:
    peer.shut()
    assert peer.expect_closed() == b""


# -- reserved topics -------------------------------------------------------------------------------------


def test_reserved_topics_need_a_subscription_by_name(room: Room) -> None:
    subscribers = [room.simplest(b"sub polycast/\n"), room.simplest(b"sub polycast/events\n")]
    others = [room.simplest(b"sub \n"), room.simplest(b"sub cast/events\n"), room.simplest(b"sub polycast\n")]
    room.simplest(pub("polycast/events/x", b"1"))
    for subscriber in subscribers:
        subscriber.read_until(pub("polycast/events/x", b"1"))
    for subscriber in others:
        room.expect_quiet(subscriber)


def test_a_name_that_only_resembles_a_reserved_one_is_like_any_other(room: Room) -> None:
    subscriber = room.simplest(b"sub \n")
    for name in ("polycast", "polycasts/x", "x/polycast/y", "/polycast/"):
        room.simplest(pub(name, b"1"))
        subscriber.expect(pub(name, b"1"))
