"""Frames of `hermod`, written by hand, and the replies to them."""

from __future__ import annotations

import json
from hashlib import sha1

from kit.wire import Peer

OK = b'{"status": "OK"}\n'
START = b'{"batch_type": "Start"}'
END = b'{"batch_type": "End"}'
CLOSE = b'{"status": "CLOSE"}'

WORDS = (
    *(b"{", b"}", b'"', b"\\", b"{}", b"[", b",", b":", b"\r", b"\n", b'{"a": "\\"}', b'"topic"'),
    *(OK, START, END, CLOSE),
    b'{"status": "ERROR", "code": 1, "message": "}"}',
    b'{"batch_type": "Count", "count": 2}',
    b'{"batch_type": "Count", "count": 0}',
    b'{"batch_type": "Count", "count": 1, "batch_id": "x"}',
    b'{"batch_type": "Count", "count": 9223372036854775808}',
    b'{"batch_type": "Stage", "batch_id": "x", "stage": "s", "payload_size": 2, "checksum": ""}',
    b'{"batch_type": "Commit", "batch_id": "x", "stages": ["s"]}',
    b'{"batch_type": "Abort", "batch_id": "x"}',
    b'{"topic": "a", "payload_size": 2, "checksum": "", "status": "CLOSE"}',
    b'{"topics": ["a"], "window": 1, "batch": 2, "status": "CLOSE"}',
    b'{"status": "OK", "topic": "a", "sequence": 18446744073709551616}',
    b'{"topics": [], "window": 1}',
    b'{"topics": ["a"], "from": "earliest"}',
    b'{"topics": ["a"], "from": {"a": 1}, "patterns": ["a>", "~"]}',
    b'{"patterns": [">"], "from": {"time": 0}}',
    b'{"request": "a", "id": 1}',
    b'{"request": "polycast/topics", "id": 2, "body": {"limit": [1, "}"]}}',
    b'{"topic": "a", "payload_size": 2, "checksum": ""}',
    b'{"topic": "a", "payload_size": 25, "checksum": ""}',
    b'{"checksum":"9842926AF7CA0A8CCA12604F945414F07B01E13D","payload_size":1,"topic":"a"}\n',
    b'{"checksum":"9842926af7ca0a8cca12604f945414f07b01e13e","payload_size":1,"topic":"a"}\r',
)
"""Frames and parts of frames. The last two have the sha1 of a line feed, and nearly that."""


def checksum(payload: bytes) -> str:
    return sha1(payload).hexdigest()


def message(topic: str, payload: bytes, check: str | None = None, gap: bytes = b"") -> bytes:
    """`gap` stands between header and payload, where nothing should be."""
    header = {
        "topic": topic,
        "payload_size": len(payload),
        "checksum": checksum(payload) if check is None else check,
    }
    return _json(header) + gap + payload


def delivery(topic: str, payload: bytes, sequence: int) -> bytes:
    header = {"topic": topic, "sequence": sequence, "payload_size": len(payload), "checksum": checksum(payload)}
    return _json(header) + payload


def topics(*names: str, **more: object) -> bytes:
    return _json({"topics": list(names), **more})


def count(number: int, **more: object) -> bytes:
    return _json({"batch_type": "Count", "count": number, **more})


def stage(batch_id: object, name: object, payload: bytes, **more: object) -> bytes:
    """Without a checksum, unless there is one among the rest."""
    header = {"batch_type": "Stage", "batch_id": batch_id, "stage": name, "payload_size": len(payload)}
    return _json({**header, "checksum": "", **more}) + payload


def commit(batch_id: object, *names: object, **more: object) -> bytes:
    return _json({"batch_type": "Commit", "batch_id": batch_id, "stages": list(names), **more})


def abort(batch_id: object, *names: object) -> bytes:
    """Of all stages, where none is named."""
    return _json({"batch_type": "Abort", "batch_id": batch_id, **({"stages": list(names)} if names else {})})


def ok(number: int) -> bytes:
    return b'{"status": "OK", "count": %d}\n' % number


def acknowledgement(topic: str, sequence: int) -> bytes:
    return _json({"status": "OK", "topic": topic, "sequence": sequence})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def read_error(peer: Peer) -> dict[str, object]:
    """The next reply, which must be an ERROR: its code, its message, and a count if there is one."""
    error: dict[str, object] = json.loads(peer.read_until(b"\n"))
    assert error.pop("status") == "ERROR", f"expected an ERROR, got {error}"
    return error


def expect_error(peer: Peer, code: int, **more: object) -> None:
    error = read_error(peer)
    assert error.pop("message")
    assert error == {"code": code, **more}


def expect_no_more(subscriber: Peer) -> None:
    """Says CLOSE; nothing has come that was not expected."""
    subscriber.send(CLOSE)
    rest = subscriber.expect_closed()
    assert rest == b"", f"expected nothing, got {rest!r}"
