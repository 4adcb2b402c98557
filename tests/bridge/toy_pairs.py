"""Sends a message from `tabs` to each dialect and from each dialect to `tabs`, and prints what arrived.

The argument is a JSON object: the addresses of a broker, by listener. It runs where the toy is installed.
"""

from __future__ import annotations

import json
import sys
from threading import Event, Thread

from polycast.client import DIALECTS, Client, connect
from polycast.model import Exact, Message

REPEAT_SECONDS = 0.02


def publish_until(received: Event, publisher: Client, message: Message) -> None:
    """Not every dialect confirms that a subscription is in force."""
    while not received.wait(REPEAT_SECONDS):
        publisher.publish([message])


def bridge(source: str, target: str, addresses: dict[str, str]) -> Message:
    message, received = Message(f"from/{source}/to/{target}", b"hello\tworld"), Event()
    with (
        connect(target, addresses[DIALECTS[target].subscribers]) as subscriber,
        connect(source, addresses[DIALECTS[source].publishers], publishing=True) as publisher,
    ):
        subscriber.subscribe([Exact(message.topic)])
        publishing = Thread(target=publish_until, args=(received, publisher, message))
        publishing.start()
        first = next(subscriber.messages())[0]
        received.set()
        publishing.join()
    return first


if __name__ == "__main__":
    others = [name for name in DIALECTS if name != "tabs"]
    pairs = [("tabs", "tabs"), *(("tabs", other) for other in others), *((other, "tabs") for other in others)]
    found = [(*pair, bridge(*pair, json.loads(sys.argv[1]))) for pair in pairs]
    rows = [(source, target, first.topic, first.payload.decode()) for source, target, first in found]
    sys.stdout.write(json.dumps(rows))
