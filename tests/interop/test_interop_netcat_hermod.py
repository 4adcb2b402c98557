"""hermod by hand: a header, a payload and netcat."""

from __future__ import annotations

import json
import shlex
import subprocess
from hashlib import sha1

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.program import Program, need
from kit.room import Room
from kit.wire import GUARD_SECONDS

pytestmark = pytest.mark.interop

OK = b'{"status": "OK"}\n'
HELLO = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
"""The sha1 of `hello`, as sha1sum gives it."""

PICTURE = f"""{{
"topic": "greetings",
"payload_size": 5,
"checksum": "{HELLO}"
}}
hello"""
"""As the page that describes the protocol draws it, with a line break before the payload."""


@pytest.fixture
def nc() -> str:
    return need("nc", "netcat-openbsd")


def terminal(nc: str, broker: Broker, listener: str) -> Program:
    return Program(nc, "127.0.0.1", str(broker.ports[listener]))


def message(topic: str, payload: bytes) -> bytes:
    size = {"payload_size": len(payload), "checksum": sha1(payload).hexdigest()}
    return json.dumps({"topic": topic, **size}).encode() + payload


def test_one_command_publishes(nc: str, broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub greetings\n")
    header = f'{{"topic": "greetings", "payload_size": 5, "checksum": "{HELLO}"}}'
    command = f"printf %s {shlex.quote(header)} hello | {nc} -N 127.0.0.1 {broker.ports['hermod.pub']}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=GUARD_SECONDS)
    assert (done.returncode, done.stdout) == (0, OK)
    subscriber.expect(pub("greetings", b"hello"))


def test_a_publisher(nc: str, broker: Broker, room: Room) -> None:
    client, subscriber = room.client(b"subscribe greetings\n"), room.simplest(b"sub greetings\n")
    with terminal(nc, broker, "hermod.pub") as publisher:
        publisher.type(PICTURE.encode())
        publisher.expect(OK)
        publisher.type(message("greetings", b"\x00}{\xff"))
        publisher.expect(OK)
        client.expect(b"greetings!hello\ngreetings!\x00}{\xff\n")
        subscriber.expect(pub("greetings", b"hello") + pub("greetings", b"\x00}{\xff"))


def test_batches(nc: str, broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub batch/\n")
    one, two = message("batch/1", b"one"), message("batch/2", b"two")
    with terminal(nc, broker, "hermod.pub") as publisher:
        publisher.type(b'{"batch_type": "Count", "count": 2}' + one + two)
        publisher.expect(b'{"status": "OK", "count": 2}\n')
        publisher.type(b'{"batch_type": "Start"}' + two + one + two + b'{"batch_type": "End"}')
        publisher.expect(b'{"status": "OK", "count": 3}\n')
        ones, twos = pub("batch/1", b"one"), pub("batch/2", b"two")
        subscriber.expect(ones + twos + twos + ones + twos)


def test_a_checksum_that_does_not_fit(nc: str, broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub greetings\n")
    with terminal(nc, broker, "hermod.pub") as publisher:
        publisher.type(message("greetings", b"hello").replace(b"hello", b"hallo"))
        reply = json.loads(publisher.read_line())
        assert (reply["status"], reply["code"]) == ("ERROR", 422)
        publisher.type(PICTURE.encode())
        publisher.expect(OK)
        subscriber.expect(pub("greetings", b"hello"))


def test_a_subscriber(nc: str, broker: Broker, room: Room) -> None:
    with terminal(nc, broker, "hermod.sub") as subscriber:
        subscriber.type(b'{"topics": ["weather", "chat {1}"]}')
        subscriber.expect(OK)
        room.send_as_controller(room.controller(), "weather schön\nelsewhere rain\n".encode())
        room.simplest(pub("weather", b"\x00\n\xff"))
        expect_delivery(subscriber, "weather", 0, "schön".encode())
        expect_delivery(subscriber, "weather", 1, b"\x00\n\xff")
        with terminal(nc, broker, "hermod.pub") as publisher:
            publisher.type(message("chat {1}", b"from hand to hand"))
            publisher.expect(OK)
        expect_delivery(subscriber, "chat {1}", 0, b"from hand to hand")
        subscriber.type(b'{"status": "OK"}{"status": "CLOSE"}')
        subscriber.end_input()
        assert subscriber.finish().out == b""


def expect_delivery(subscriber: Program, topic: str, sequence: int, payload: bytes) -> None:
    """The next thing on stdout is this message: a header, and right behind it the payload."""
    header, used = read_header(subscriber)
    size = {"payload_size": len(payload), "checksum": sha1(payload).hexdigest()}
    assert header == {"topic": topic, "sequence": sequence, **size}
    subscriber.expect(used + payload)


def read_header(subscriber: Program) -> tuple[object, bytes]:
    """The next JSON object on stdout, and its bytes, which are still to be taken."""
    while True:
        text = subscriber.read.decode("latin-1")  # what is no text comes later, and stays as long as it is
        try:
            header, end = json.JSONDecoder().raw_decode(text)
            return header, subscriber.read[:end]
        except json.JSONDecodeError:
            more = subscriber.receive()
            assert more, f"ended before a header came; got {subscriber.read!r}"
            subscriber.read += more
