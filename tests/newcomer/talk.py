"""Five dialects: the messages of each are received in all of them.

python talk.py      with the broker on its default addresses
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack

from polycast.client import DIALECTS, Client, connect
from polycast.model import Message, parse_pattern

TOPIC = "newcomer.talk"


def talk(addresses: Mapping[str, str]) -> dict[str, set[str]]:
    """The messages received in each dialect. `addresses` are by listener; one that is not there is the default."""
    with ExitStack() as opened:
        ears: dict[str, Client] = {}
        for name, dialect in DIALECTS.items():
            ears[name] = opened.enter_context(connect(name, addresses.get(dialect.subscribers, "")))
            ears[name].subscribe([parse_pattern(TOPIC)])
        for name, dialect in DIALECTS.items():
            with connect(name, addresses.get(dialect.publishers, ""), publishing=True) as mouth:
                mouth.publish([Message(TOPIC, name.encode())])
        return {name: listen(ear) for name, ear in ears.items()}


def listen(ear: Client) -> set[str]:
    """Until all have spoken, or nobody does any more."""
    received: set[str] = set()
    for messages in ear.messages():
        received |= {message.payload.decode() for message in messages}
        if len(received) == len(DIALECTS):
            break
    return received


def complaint(received: Mapping[str, set[str]]) -> str | None:
    """Who missed something; None if nobody did, which is what `sys.exit` takes for success."""
    incomplete = [f"{name} received {sorted(names)}" for name, names in received.items() if names != set(DIALECTS)]
    return "\n".join(incomplete) or None


if __name__ == "__main__":
    sys.exit(complaint(talk({})))
