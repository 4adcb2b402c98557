"""The page about conversions, written from what arrived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.carry import carry
from bridge.dialect_cases import CASES, NOTHING, Arrived
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
# Conversions between dialects

A test sends each of these messages through a broker and writes down what arrives (`make docs`). The rules:

- Bytes stay bytes. The JSON of UBRE has types: a string is text, any other value is JSON, and bytes that are
  no text are `{"$base64": ...}`.
- A character that would end a topic early is escaped: space, CR and LF in `simplest`, and also `!` in
  `fanout`. Escapes are never undone, so `a b` and `a%20b` look the same there. `simplest` has no empty
  name; the empty topic is `%`.
- `nanomsg` has no topics: the first `|` separates topic and payload. A reader splits a topic that contains `|`
  there.
- A line of `fanout` cannot contain LF: each becomes the two characters `\\n`. No other payload changes, and the
  metric `polycast_messages_lossy_total` counts it.

`=`: unchanged. Otherwise the changed topic and payload, and in the JSON of UBRE the body. `␍` and `␊`
stand for CR and LF.
"""


def write(broker: Broker) -> str:
    """The whole page. What arrives must be what the rules say."""
    return HEAD + "".join(_section(broker, source) for source in CASES)


def _section(broker: Broker, source: str) -> str:
    encodable = [example for example in EXAMPLES if CASES[source].encode(*example) is not None]
    not_encodable = [
        f"{_code(topic)} {_code(payload)}" for topic, payload in EXAMPLES if (topic, payload) not in encodable
    ]
    lines = [f"\n## Published in {source}\n", f"| topic | payload | {' | '.join(CASES)} |", f"{'|---' * 8}|"]
    lines += [_row(broker, source, *example) for example in encodable]
    lines += [f"\nCannot be written: {', '.join(sorted(not_encodable))}."] if not_encodable else []
    return "\n".join(lines) + "\n"


def _row(broker: Broker, source: str, topic: str, payload: bytes) -> str:
    arrived, expected = carry(broker, source, topic, payload)
    assert arrived == expected
    cells = [_code(topic), _code(payload), *(_cell(arrived[name], topic, payload) for name in CASES)]
    return f"| {' | '.join(cells)} |"


def _cell(arrived: Arrived, topic: str, payload: bytes) -> str:
    name, content = arrived
    changed = [_code(name)] if name != topic else []
    if isinstance(content, bytes):
        changed += [_code(content)] if content != payload else []
    else:
        changed.append("no body" if content is NOTHING else f"`{_to_json(content)}`".replace("|", "\\|"))
    return " ".join(changed) or "="


def _code(content: str | bytes) -> str:
    """As code in a cell of a table, with visible control characters."""
    if isinstance(content, bytes):
        readable = content.decode(errors="replace").encode() == content
        content = content.decode() if readable else repr(content)[2:-1]
    shown = content.replace("\r", "␍").replace("\n", "␊").replace("|", "\\|")
    return f"`{shown}`" if shown else "empty"


def _to_json(content: Any) -> str:
    """Numbers as they were written."""
    if isinstance(content, dict):
        return "{" + ",".join(f"{_to_json(key)}:{_to_json(each)}" for key, each in content.items()) + "}"
    return str(content[1]) if isinstance(content, tuple) else json.dumps(content, ensure_ascii=False)
