"""Messages between `simplest` and `fanout`."""

from __future__ import annotations

import pytest

from kit.frames import pub
from kit.room import Room


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        ("a!b", "a%21b"),
        ("!", "%21"),
        ("//org/chat", "//org/chat"),
        ("a%20b", "a%20b"),
        ("é!", "é%21"),
        ("a\tb", "a\tb"),
    ],
)
def test_names_of_simplest_in_fanout(room: Room, name: str, channel: str) -> None:
    client = room.client(b"subscribe >\n")
    room.simplest(pub(name, b"x"))
    client.expect(f"{channel}!x\n".encode())


@pytest.mark.parametrize(
    ("channel", "name"), [("a\rb", "a%0Db"), ("\r", "%0D"), ("a%21b", "a%21b"), ("a.b", "a.b")]
)
def test_channels_of_fanout_in_simplest(room: Room, channel: str, name: str) -> None:
    subscriber = room.simplest(b"sub \n")
    room.send_as_controller(room.controller(), f"{channel} x\n".encode())
    subscriber.expect(pub(name, b"x"))


def test_a_channel_with_a_cr_is_escaped_for_fanout_too(room: Room) -> None:
    client = room.client(b"subscribe >\n")
    room.send_as_controller(room.controller(), b"a\rb x\nc y\n")
    client.expect(b"a%0Db!x\nc!y\n")


def test_a_subscription_matches_the_topic_as_published_not_as_escaped(room: Room) -> None:
    by_published, by_escaped = room.client(b"subscribe a%21b\n"), room.client(b"subscribe >\n")
    room.simplest(pub("a!b", b"x"))
    by_escaped.expect(b"a%21b!x\n")
    room.send_as_client(by_published)
    plain, escaped = room.simplest(b"sub a\rb\n"), room.simplest(b"sub a%0Db\n")
    room.send_as_controller(room.controller(), b"a\rb x\n")
    plain.expect(pub("a%0Db", b"x"))
    room.expect_quiet(escaped)


def test_an_escaped_name_is_not_unescaped_on_the_way_in(room: Room) -> None:
    client, subscriber = room.client(b"subscribe >\n"), room.simplest(b"sub \n")
    room.send_as_controller(room.controller(), b"a%0Db x\n")
    subscriber.expect(pub("a%0Db", b"x"))
    client.expect(b"a%0Db!x\n")
    room.simplest(pub("a%21b", b"y"))
    client.expect(b"a%21b!y\n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", b""), (b"x", b"x"), (b"a\nb", rb"a\nb"), (b"\n", rb"\n"), (b"\n\n", rb"\n\n"), (rb"a\nb", rb"a\nb"),
        (b"a\rb", b"a\rb"), (b"a\r\nb", b"a\r\\nb"), (b"!", b"!"), (b"\xff\x00", b"\xff\x00"), (b" a ", b" a "),
        (b"evil\nall!forged", rb"evil\nall!forged"),
    ],
)  # fmt: skip
def test_data_of_simplest_in_fanout(room: Room, data: bytes, message: bytes) -> None:
    client = room.client(b"subscribe c\n")
    room.simplest(pub("c", data))
    client.expect(b"c!" + message + b"\n")
    room.send_as_client(client)


@pytest.mark.parametrize("message", [b"", b"x", b" a b ", b"bang!", b"\xff\x00", b"a\rb", rb"a\nb"])
def test_messages_of_fanout_in_simplest(room: Room, message: bytes) -> None:
    subscriber = room.simplest(b"sub c\n")
    room.send_as_controller(room.controller(), b"c " + message + b"\n")
    subscriber.expect(pub("c", message))


def test_a_publication_reaches_both_dialects_in_its_order(room: Room) -> None:
    client, subscriber = room.client(b"subscribe c.>\n"), room.simplest(b"sub c.\n")
    publisher, controller = room.simplest(), room.controller()
    for number in range(0, 20, 2):
        room.send_commands(publisher, pub(f"c.{number % 3}", b"%d" % number))
        room.send_as_controller(controller, b"c.x %d\n" % (number + 1))
    for number in range(0, 20, 2):
        client.expect(b"c.%d!%d\nc.x!%d\n" % (number % 3, number, number + 1))
        subscriber.expect(pub(f"c.{number % 3}", b"%d" % number) + pub("c.x", b"%d" % (number + 1)))


def test_a_large_payload_passes_between_dialects(room: Room) -> None:
    data = b"0123456789abcdef" * 40_000
    client, subscriber = room.client(b"subscribe big\n"), room.simplest(b"sub big\n")
    room.simplest(pub("big", data))
    client.expect(b"big!" + data + b"\n")
    subscriber.expect(pub("big", data))


def test_reserved_topics_need_their_name_in_fanout_too(room: Room) -> None:
    everything, exact, prefix = (
        room.client(b"subscribe %b\n" % text) for text in (b">", b"polycast/a", b"polycast/a.>")
    )
    room.simplest(pub("polycast/a", b"1") + pub("polycast/a.b", b"2"))
    exact.expect(b"polycast/a!1\n")
    prefix.expect(b"polycast/a.b!2\n")
    for client in (everything, exact, prefix):
        room.send_as_client(client)
