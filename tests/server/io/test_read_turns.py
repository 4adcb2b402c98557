"""One connection cannot monopolise the broker, however much it sends at once."""

from __future__ import annotations

from pathlib import Path

from kit.broker import Broker
from kit.flow import MIB, Reading, Sending
from kit.frames import pub
from kit.hermod import OK, message
from kit.nanomsg import PUB, SUB, FilePeer
from kit.room import Room
from kit.wire import wait_for

BODY = b"t|" + b"x" * 998
MANY = 40_000


def test_others_are_served_while_one_floods(room: Room) -> None:
    listener = room.simplest(b"sub turn/\n")
    flooding, other = room.connect("hermod.pub"), room.simplest()
    sending = Sending(flooding, message("turn/first", b"") + OK * (4 * MIB // len(OK)) + message("turn/last", b""))
    listener.expect(pub("turn/first"))
    other.send(pub("turn/other"))
    listener.expect(pub("turn/other") + pub("turn/last"))
    sending.finish()


def test_a_subscriber_over_ipc_that_reads_is_not_called_slow(tmp_path: Path) -> None:
    """A Unix socket buffers little: a broker that only reads would call the subscriber slow at once."""
    path = tmp_path / "sub.sock"
    with (
        Broker(f"--listen=nanomsg.pub=ipc://{path}", listen=("nanomsg.sub",)) as broker,
        broker.connect("nanomsg.sub") as publisher,
        FilePeer(path) as subscriber,
    ):
        subscriber.send(SUB)
        subscriber.expect(PUB)
        publisher.send(PUB)
        publisher.expect(SUB)
        reading = Reading(subscriber, MANY * (9 + len(BODY)))
        sending = Sending(publisher, (len(BODY).to_bytes(8, "big") + BODY) * MANY)
        sending.finish()
        assert len(reading.finish()) == MANY * (9 + len(BODY))


def test_a_window_that_stays_full_times_out_under_traffic() -> None:
    with (
        Broker("--set=limits.ack_seconds=0.5", listen=("hermod.pub", "hermod.sub")) as broker,
        broker.connect("hermod.sub") as subscriber,
        broker.connect("hermod.pub") as publisher,
    ):
        subscriber.send(b'{"topics": ["s"], "window": 1}')
        subscriber.expect(OK)

        def closed() -> bool:
            publisher.send(message("s", b"x"))
            publisher.expect(OK)
            return "no ack for" in broker.log()

        wait_for(closed, "the subscriber to be sent away")
