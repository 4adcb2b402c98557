"""netcat and socat are the first real implementations of these dialects."""

from __future__ import annotations

import subprocess

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.links import free_port
from kit.program import Program, need
from kit.room import GREETING, Room
from kit.wire import GUARD_SECONDS

pytestmark = pytest.mark.interop


@pytest.fixture(params=["nc", "socat"])
def program(request: pytest.FixtureRequest) -> str:
    return need(request.param, {"nc": "netcat-openbsd"}.get(request.param, request.param))


def dialling(program: str, port: int) -> Program:
    if program.endswith("nc"):
        return Program(program, "127.0.0.1", str(port))
    return Program(program, "-", f"TCP:127.0.0.1:{port}")


def listening(program: str, port: int) -> Program:
    if program.endswith("nc"):
        return Program(program, "-l", "127.0.0.1", str(port))
    return Program(program, "-", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr")


def publish_messages(room: Room, terminal: Program, text: bytes, number: int) -> None:
    """Types, and waits until the broker has read it: a message to the room is the fence."""
    with room.simplest(b"sub interop/fence\n") as fence:
        terminal.type(text + b"pub interop/fence 1 %d\n" % number)
        fence.expect(b"pub interop/fence 1 %d\n" % number)


# -- simplest --------------------------------------------------------------------------------------------


def test_simplest_both_ways(broker: Broker, room: Room, program: str) -> None:
    with dialling(program, broker.ports["simplest"]) as terminal:
        publish_messages(room, terminal, b"sub //myorg/chat/\n", 1)
        subscriber = room.simplest(b"sub //myorg/chat/\n")
        terminal.type(b"pub //myorg/chat/main 5 hello\n")
        subscriber.expect(b"pub //myorg/chat/main 5 hello\n")
        room.simplest(pub("//myorg/chat/main", b"hello back\xff\x00"))
        terminal.expect(b"pub //myorg/chat/main 12 hello back\xff\x00\n")


def test_three_terminals_speak_simplest(broker: Broker, room: Room, program: str) -> None:
    port = broker.ports["simplest"]
    with dialling(program, port) as one, dialling(program, port) as two, dialling(program, port) as three:
        for number, terminal in enumerate((one, two, three)):
            publish_messages(room, terminal, b"sub chat\n", number)
        one.type(b"pub chat/1 8 from one\n")
        for terminal in (two, three):
            terminal.expect(b"pub chat/1 8 from one\n")
        publish_messages(room, two, b"unsub chat\n", 4)
        three.type(b"pub chat/3 10 from three\n")
        one.expect(b"pub chat/3 10 from three\n")
        two.type(b"pub chat/2 8 from two\n")
        for terminal in (one, three):
            terminal.expect(b"pub chat/2 8 from two\n")
        publish_messages(room, two, b"sub end\n", 5)
        one.type(b"pub end 0 \n")
        two.expect(b"pub end 0 \n")


def test_a_terminal_as_the_peer_that_a_broker_dials(program: str) -> None:
    port = free_port()
    with listening(program, port) as terminal, Broker(f"--peer=127.0.0.1:{port}") as broker, Room(broker) as room:
        assert terminal.read_line().startswith(b"sub polycast/node/")
        client = room.simplest(b"sub news\n")
        while terminal.read_line() != b"sub news":
            pass
        terminal.type(b"sub weather\npub news/today 4 none\n")
        client.expect(pub("news/today", b"none"))
        room.simplest(pub("weather/here", b"fine") + pub("news/here", b"not asked for"))
        terminal.expect(pub("weather/here", b"fine"))


def test_a_terminal_at_a_listener_for_peers(broker: Broker, room: Room, program: str) -> None:
    client = room.simplest(b"sub from-afar\n")
    with dialling(program, broker.ports["simplest.peer"]) as terminal:
        while terminal.read_line() != b"sub from-afar":
            pass
        terminal.type(b"pub from-afar 2 hi\n")
        client.expect(pub("from-afar", b"hi"))


def test_a_terminal_that_sends_crlf(broker: Broker, room: Room) -> None:
    nc = need("nc", "netcat-openbsd")
    subscriber = room.simplest(b"sub chat\n")
    with Program(nc, "-C", "127.0.0.1", str(broker.ports["simplest"])) as terminal:
        terminal.type(b"sub chat\npub chat 5 hello\npub chat 0\n")
        subscriber.expect(pub("chat", b"hello") + pub("chat"))
        room.send_commands(subscriber, pub("chat", b"hi"))
        terminal.expect(pub("chat", b"hi"))


def test_one_command_publishes(broker: Broker, room: Room) -> None:
    nc = need("nc", "netcat-openbsd")
    subscriber = room.simplest(b"sub chat\n")
    command = [nc, "-N", "127.0.0.1", str(broker.ports["simplest"])]
    done = subprocess.run(command, input=b"pub chat 5 hello\n", capture_output=True, timeout=GUARD_SECONDS)
    assert (done.returncode, done.stdout) == (0, b"")
    subscriber.expect(pub("chat", b"hello"))


# -- fanout ----------------------------------------------------------------------------------------------


def send_command(terminal: Program, text: bytes) -> None:
    """Types a command, and waits for the reply to the `time` behind it, as a person waits a moment."""
    terminal.type(text + b"time\n")
    assert terminal.read_line().isdigit()


def test_fanout_both_ways(broker: Broker, room: Room, program: str) -> None:
    ports = broker.ports
    with (
        dialling(program, ports["fanout.client"]) as client,
        dialling(program, ports["fanout.controller"]) as controller,
    ):
        client.expect(GREETING)
        send_command(client, b"subscribe foo\n")
        controller.type(b"foo hello, world\n")
        client.expect(b"foo!hello, world\n")
        subscriber = room.simplest(b"sub foo\n")
        controller.type(b"foo for all dialects\n")
        subscriber.expect(pub("foo", b"for all dialects"))
        client.expect(b"foo!for all dialects\n")


def test_the_example_of_the_fanout_readme(broker: Broker) -> None:
    """Word by word. Where a person looks at the terminal before typing on, the test sends `time`."""
    nc = need("nc", "netcat-openbsd")
    client, controller = str(broker.ports["fanout.client"]), str(broker.ports["fanout.controller"])
    with (
        Program(nc, "localhost", controller) as terminal_2,
        Program(nc, "localhost", client) as terminal_3,
        Program(nc, "localhost", client) as terminal_4,
    ):
        terminal_3.expect(GREETING)
        terminal_4.expect(GREETING)

        terminal_2.type(b"all hello everybody\n")
        terminal_3.expect(b"all!hello everybody\n")
        terminal_4.expect(b"all!hello everybody\n")

        send_command(terminal_3, b"subscribe aaa\n")
        send_command(terminal_4, b"subscribe bbb\n")

        terminal_2.type(b"aaa only one client should see this\n")
        terminal_3.expect(b"aaa!only one client should see this\n")
        terminal_2.type(b"bbb only the other client should see this\n")
        terminal_4.expect(b"bbb!only the other client should see this\n")
        terminal_2.type(b"ccc nobody should see this message\n")

        send_command(terminal_3, b"unsubscribe aaa\n")
        terminal_2.type(b"aaa will anyone see this now? nope...\n")

        terminal_2.type(b"all that was all\n")
        terminal_3.expect(b"all!that was all\n")
        terminal_4.expect(b"all!that was all\n")


def test_the_broker_goes_and_the_terminals_with_it(program: str) -> None:
    with Broker() as broker, dialling(program, broker.ports["fanout.client"]) as terminal:
        terminal.expect(GREETING)
        broker.stop()
        terminal.end_input()
        assert terminal.finish().out == b""
