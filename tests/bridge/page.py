"""The page about conversions, made of what was heard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.carry import carry
from bridge.tongues import NOTHING, TONGUES, Heard
from kit.broker import Broker

PAGE = Path(__file__).parents[2] / "docs" / "dialects" / "conversions.md"

EXAMPLES: tuple[tuple[str, bytes], ...] = (
    ("greeting", b"hello"),
    ("greeting", "grüße".encode()),
    ("greeting", b""),
    ("greeting", b'{"n":2.50}'),
    ("greeting", b"\xff\xfe"),
    ("greeting", b"two\nlines"),
    ("greeting", b"a|b!c d"),
    ("a b", b"hello"),
    ("a!b", b"hello"),
    ("a\r\nb", b"hello"),
    ("a|b", b"hello"),
    ("a%20b", b"hello"),
    ("", b"hello"),
)

HEAD = """\
# What becomes of a message in another dialect

Written by a test that carried each of these messages through a broker and put down what arrived (`make docs`).
The rules behind it are few:

- Bytes stay bytes. UBRE's JSON has types: there a string is text, any other value is JSON, and bytes that are
  no text come as `{"$base64": ...}`.
- A character that would end a topic early is escaped: space, CR and LF in `simplest`, and `!` as well in
  `fanout`. Escapes are never undone, so there nobody can tell `a b` from `a%20b`. `simplest` has no empty
  name; it shows `%`.
- `nanomsg` has no topic of its own: the first `|` divides. A topic with a `|` in it is divided there by whoever
  reads it.
- A line of `fanout` holds no LF: each becomes the two characters `\\n`. That is the only payload that changes,
  and it is counted (`polycast_messages_lossy_total`).

`=`: as it was said. Otherwise topic and payload, where they are not what was said, and in UBRE's JSON the body.
`␍` and `␊` stand for CR and LF.
"""


def write(broker: Broker) -> str:
    """The whole page. Whatever is heard must be what the rules say."""
    return HEAD + "".join(_section(broker, source) for source in TONGUES)


def _section(broker: Broker, source: str) -> str:
    sayable = [example for example in EXAMPLES if TONGUES[source].say(*example) is not None]
    unsayable = [
        f"{_code(topic)} {_code(payload)}" for topic, payload in EXAMPLES if (topic, payload) not in sayable
    ]
    lines = [f"\n## Said in {source}\n", f"| topic | payload | {' | '.join(TONGUES)} |", f"{'|---' * 8}|"]
    lines += [_row(broker, source, *example) for example in sayable]
    lines += [f"\nCannot be said: {', '.join(sorted(unsayable))}."] if unsayable else []
    return "\n".join(lines) + "\n"


def _row(broker: Broker, source: str, topic: str, payload: bytes) -> str:
    heard, expected = carry(broker, source, topic, payload)
    assert heard == expected
    cells = [_code(topic), _code(payload), *(_cell(heard[name], topic, payload) for name in TONGUES)]
    return f"| {' | '.join(cells)} |"


def _cell(heard: Heard, topic: str, payload: bytes) -> str:
    name, content = heard
    changed = [_code(name)] if name != topic else []
    if isinstance(content, bytes):
        changed += [_code(content)] if content != payload else []
    else:
        changed.append("no body" if content is NOTHING else f"`{_to_json(content)}`".replace("|", "\\|"))
    return " ".join(changed) or "="


def _code(content: str | bytes) -> str:
    """As code in a cell of a table, with signs for what cannot be seen."""
    if isinstance(content, bytes):
        readable = content.decode(errors="replace").encode() == content
        content = content.decode() if readable else repr(content)[2:-1]
    shown = content.replace("\r", "␍").replace("\n", "␊").replace("|", "\\|")
    return f"`{shown}`" if shown else "empty"


def _to_json(content: Any) -> str:
    """As it came: numbers were kept as they were written."""
    if isinstance(content, dict):
        return "{" + ",".join(f"{_to_json(key)}:{_to_json(each)}" for key, each in content.items()) + "}"
    return str(content[1]) if isinstance(content, tuple) else json.dumps(content, ensure_ascii=False)
