"""Subscribers of every dialect, made by hand, and what each of them gets to read of a message."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kit import hermod, nanomsg, ubre
from kit.broker import Broker
from kit.frames import pub
from kit.room import GREETING
from kit.ubre import UbrePeer
from kit.websocket import BINARY, TEXT, WebSocket, frame
from kit.wire import Peer, wait_for

LISTEN = ("simplest", "fanout.client", "hermod.pub", "hermod.sub", "nanomsg.pub", "ubre", "http")
"""What a broker must listen to."""


@dataclass(frozen=True, slots=True)
class SubscriberKind:
    """`open` subscribes to a topic, and waits until the broker knows; `frame` is what one message looks like."""

    listener: str
    open: Callable[[Broker, str, int], Peer]
    frame: Callable[[str, int, bytes], bytes]


def send_request(broker: Broker, route: str, body: object = None) -> Any:
    """The response to a request of ubre; it must be a success."""
    with UbrePeer(broker.ports["ubre"]) as peer:
        message = {"request": route, "id": 1} | ({} if body is None else {"body": body})
        peer.send_message(**message)
        response = json.loads(peer.read_until(b"\n"))
    assert response.get("success") == 1, response
    return response["body"]


def ports_of(peer: Peer) -> tuple[int, int]:
    """Its own, and that of the listener: connections to other listeners may come from the same port."""
    return peer.socket.getsockname()[1], peer.socket.getpeername()[1]


def subscriptions(broker: Broker, ports: tuple[int, int]) -> int:
    """How many the connection with these ports has."""
    port, to = ports
    listeners = {name for name, address in broker.addresses if address.endswith(f":{to}")}
    found = send_request(broker, "polycast/connections")
    rows = [row for row in found["connections"] if row["address"] == f"127.0.0.1:{port}"]
    here = [row for row in rows if row["listener"] in listeners and row.get("node") == found.get("node")]
    return sum(row["subscriptions"] for row in here)


def wait_until_subscribed(broker: Broker, peer: Peer, count: int = 1) -> None:
    ports = ports_of(peer)
    wait_for(lambda: subscriptions(broker, ports) == count, f"{count} subscriptions")


# -- subscribing -----------------------------------------------------------------------------------------


def open_simplest(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = broker.connect("simplest", receive_bytes)
    peer.send(b"sub %b\n" % topic.encode())
    wait_until_subscribed(broker, peer)
    return peer


def open_fanout(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = broker.connect("fanout.client", receive_bytes)
    peer.expect(GREETING)
    peer.send(b"subscribe %b\nunsubscribe all\n" % topic.encode())
    wait_until_subscribed(broker, peer)
    return peer


def open_hermod(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = broker.connect("hermod.sub", receive_bytes)
    peer.send(hermod.topics(topic))
    peer.expect(hermod.OK)
    return peer


def open_nanomsg(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    """It gets everything."""
    peer = broker.connect("nanomsg.pub", receive_bytes)
    peer.send(nanomsg.SUB)
    peer.expect(nanomsg.PUB)
    wait_until_subscribed(broker, peer)
    return peer


def open_nanomsg_socket(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = WebSocket(broker.ports["http"], "/", "pub.sp.nanomsg.org", receive_bytes=receive_bytes)
    wait_until_subscribed(broker, peer)
    return peer


def open_ubre_json(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = UbrePeer(broker.ports["ubre"], receive_bytes)
    peer.send_message(subscribe=topic)
    wait_until_subscribed(broker, peer)
    return peer


def open_ubre_binary(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = broker.connect("ubre", receive_bytes)
    peer.send(ubre.frame("S", topic))
    wait_until_subscribed(broker, peer)
    return peer


def open_ubre_socket(broker: Broker, topic: str, receive_bytes: int) -> Peer:
    peer = WebSocket(broker.ports["http"], "/ubre", receive_bytes=receive_bytes)
    peer.send_text(ubre.text(subscribe=topic))
    wait_until_subscribed(broker, peer)
    return peer


# -- reading ---------------------------------------------------------------------------------------------


def _line(topic: str, payload: bytes) -> bytes:
    return ubre.line(publish=topic, body=payload.decode())


def _barred(topic: str, payload: bytes) -> bytes:
    return topic.encode() + b"|" + payload


SUBSCRIBERS: dict[str, SubscriberKind] = {
    "simplest": SubscriberKind("simplest", open_simplest, lambda topic, _, payload: pub(topic, payload)),
    "fanout": SubscriberKind(
        "fanout.client", open_fanout, lambda topic, _, payload: b"%b!%b\n" % (topic.encode(), payload)
    ),
    "hermod": SubscriberKind(
        "hermod.sub", open_hermod, lambda topic, number, data: hermod.delivery(topic, data, number)
    ),
    "nanomsg": SubscriberKind(
        "nanomsg.pub", open_nanomsg, lambda topic, _, data: nanomsg.message(_barred(topic, data))
    ),
    "nanomsg over WebSocket": SubscriberKind(
        "http", open_nanomsg_socket, lambda topic, _, data: frame(BINARY, _barred(topic, data), mask=b"")
    ),
    "ubre": SubscriberKind("ubre", open_ubre_json, lambda topic, _, payload: _line(topic, payload)),
    "ubre in binary": SubscriberKind(
        "ubre",
        open_ubre_binary,
        lambda topic, _, data: struct.pack("!BHI", ord("P"), len(topic), len(data)) + topic.encode() + data,
    ),
    "ubre over WebSocket": SubscriberKind(
        "http", open_ubre_socket, lambda topic, _, data: frame(TEXT, _line(topic, data)[:-1], mask=b"")
    ),
}
