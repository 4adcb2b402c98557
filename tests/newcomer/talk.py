"""Five dialects in one conversation: what each of them says is heard in all of them.

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
    """What was heard in each dialect. `addresses` are by listener; one that is not there is the default."""
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
    heard: set[str] = set()
    for messages in ear.messages():
        heard |= {message.payload.decode() for message in messages}
        if len(heard) == len(DIALECTS):
            break
    return heard


def complaint(heard: Mapping[str, set[str]]) -> str | None:
    """Who missed something; None if nobody did, which is what `sys.exit` takes for success."""
    deaf = [f"{name} heard {sorted(names)}" for name, names in heard.items() if names != set(DIALECTS)]
    return "\n".join(deaf) or None


if __name__ == "__main__":
    sys.exit(complaint(talk({})))
