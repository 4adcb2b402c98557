"""Messages in every dialect, published before the console opens."""

from __future__ import annotations

import struct

from kit import hermod
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from kit.subscribers import send_request
from kit.wire import wait_for

LISTEN = ("simplest", "fanout.client", "fanout.controller", "hermod.pub", "nanomsg.sub", "ubre", "http")
EVIL = "<script>alert(1)</script>"
MARKUP = '<img src=x onerror="alert(2)"><b>bold</b>'
SP_PUB = b"\x00SP\x00\x00\x20\x00\x00"
SP_SUB = b"\x00SP\x00\x00\x21\x00\x00"


def publish_in_every_dialect(broker: Broker) -> None:
    with Room(broker) as room:
        room.simplest(pub(EVIL, MARKUP.encode()) + b"".join(pub("deep", b"%d" % i) for i in range(120)))
        room.send_as_controller(room.controller(), b"chat hello\nchat hello again\n")
    with broker.connect("hermod.pub") as publisher, broker.connect("nanomsg.sub") as pipe:
        publisher.send(hermod.message("orders", b'{"n": 1, "lines": [{"item": "<i>tea</i>"}]}'))
        publisher.expect(hermod.OK)
        pipe.send(SP_PUB + struct.pack(">Q", 9) + b"temp|\x00\xff\x10!")
        pipe.expect(SP_SUB)
        wait_for(
            lambda: send_request(broker, "polycast/topics", {"topic": "temp"})["topics"],
            "the message from nanomsg",
        )
    send_request(broker, "polycast/publish", {"topic": "notes", "body": {"by": "ubre"}})
