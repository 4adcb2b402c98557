"""Replays of a broker's log, written and read by hand."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from hashlib import sha1
from typing import Any, NamedTuple

from kit import hermod
from kit.broker import Broker
from kit.http import get, read_response
from kit.metrics import read_metrics
from kit.wire import GUARD_SECONDS, Peer, wait_for

NAME = re.compile(
    rb'\{"topic": "([^"\\]*)", "sequence": (\d+)(?:, "offset": (\d+), "time": (\d+))?, '
    rb'"payload_size": (\d+), "checksum": "(\w{40})"\}'
)
COUNT = re.compile(rb'\{"batch_type": "Count", "count": (\d+)\}')


class Delivered(NamedTuple):
    topic: str
    sequence: int
    payload: bytes
    offset: int | None = None
    micros: int | None = None


def read_messages(peer: Peer, count: int) -> list[Delivered]:
    """So many deliveries of hermod, each with the right checksum. Headers of batches are passed over."""
    found: list[Delivered] = []
    position = 0
    while len(found) < count:
        after = _read_message(peer.read, position)
        if after is None:
            peer.read, position = peer.read[position:], 0
            more = peer.socket.recv(1 << 20)
            assert more, f"closed after {len(found)} of {count} messages; got {peer.read!r}"
            peer.read += more
            continue
        message, position = after
        if message:
            found.append(message)
    peer.read = peer.read[position:]
    return found


def _read_message(stream: bytes, position: int) -> tuple[Delivered | None, int] | None:
    if batch := COUNT.match(stream, position):
        return None, batch.end()
    header = NAME.match(stream, position)
    if header is None:
        assert stream.find(b"}", position) < 0, f"no message: {stream[position : position + 200]!r}"
        return None
    end = header.end() + int(header[5])
    if end > len(stream):
        return None
    payload = stream[header.end() : end]
    assert sha1(payload).hexdigest().encode() == header[6]
    offset, micros = (None if number is None else int(number) for number in header.group(3, 4))
    return Delivered(header[1].decode(), int(header[2]), payload, offset, micros), end


def publish(peer: Peer, messages: Iterable[tuple[str, bytes]]) -> None:
    """Publishes with hermod, and waits until all of it is durable."""
    frames = [hermod.message(topic, payload) for topic, payload in messages]
    sending = threading.Thread(target=peer.send, args=(b"".join(frames),), daemon=True)
    sending.start()
    for _ in frames:
        peer.expect(hermod.OK)
    sending.join(GUARD_SECONDS)


def numbered(topic: str, numbers: Iterable[int], size: int = 0) -> Iterator[tuple[str, bytes]]:
    """Messages whose payload is their number, filled up with dots to some size."""
    return ((topic, (b"%d" % number).ljust(size, b".")) for number in numbers)


def subscribe(
    broker: Broker, *topics: str, since: object = "latest", receive_bytes: int = 0, **more: object
) -> Peer:
    """A subscriber after the reply to its handshake. `since` is its `from`."""
    peer = broker.connect("hermod.sub", receive_bytes)
    peer.send(handshake(*topics, since=since, **more))
    peer.expect(hermod.OK)
    return peer


def subscribe_placed(broker: Broker, *topics: str, **more: object) -> tuple[Peer, dict[str, Any]]:
    """A subscriber that requested offsets, and the reply to its handshake."""
    peer = broker.connect("hermod.sub")
    peer.send(hermod.topics(*topics, offsets=True, **more))
    return peer, json.loads(peer.read_until(b"\n"))


def handshake(*topics: str, since: object, **more: object) -> bytes:
    return hermod.topics(*topics, **{"from": since, **more})


def total(broker: Broker, name: str) -> int:
    """A metric that concerns no listener in particular."""
    return int(metrics(broker)[f"polycast_{name}"][()])


def metrics(broker: Broker) -> dict[str, Any]:
    with broker.connect("http") as peer:
        peer.send(get("/metrics"))
        families = read_metrics(read_response(peer).body.decode())
    return {name: family.samples for name, family in families.items()}


def wait_for_total(broker: Broker, name: str, wanted: int) -> None:
    wait_for(lambda: total(broker, name) == wanted, f"{name} to be {wanted}")


def read_json_lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]
