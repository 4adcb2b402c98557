"""Messages as JSON objects, for HTTP.

    {"offset": 7, "sequence": 2, "time": "2026-11-15T20:00:00.000000Z", "topic": T, "format": F, "payload": P}

A payload of the format json is a value of the object. Any other payload is a string; one that is not UTF-8 is in
base64 under the key `payload_base64`. The format none has the payload null. The object has no line breaks.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from polycast.dialects.json_bodies import INVALID, check_utf8, compact, to_string
from polycast.model import Burst, Format, Slices

MICROS = 1_000_000
OBJECT = b'{"offset":%b,"sequence":%d,"time":"%b","topic":%b,"format":"%b",%b}'


def to_objects(burst: Burst, slices: Slices | None = None, has_log: bool = True) -> Iterator[tuple[int, bytes]]:
    """The offset and the object of each message. Without a log, the object has the offset null."""
    same_time = b"" if burst.times else to_time(burst.micros)
    for run, first, last in burst.runs(slices):
        topic, format_ = to_string(burst.topics[run].decode()), burst.formats[run]
        sequence = burst.sequences[run] - (burst.run_ends[run - 1] if run else 0)
        for i in range(first, last):
            time = same_time or to_time(burst.times[i])
            payload = to_payload(bytes(burst.block[burst.starts[i] : burst.ends[i]]), format_)
            offset = burst.offset + i
            fields = (b"%d" % offset if has_log else b"null", sequence + i, time, topic, format_.encode(), payload)
            yield offset, OBJECT % fields


def to_payload(payload: bytes, format_: Format) -> bytes:
    """The last member of the object."""
    if format_ is Format.NONE:
        return b'"payload":null'
    if format_ is Format.JSON:
        try:
            check_utf8(payload)
            return b'"payload":' + compact(payload)
        except INVALID:
            pass
    try:
        return b'"payload":' + to_string(payload.decode())
    except UnicodeDecodeError:
        return b'"payload_base64":"%b"' % b2a_base64(payload, newline=False)


def to_time(micros: int) -> bytes:
    seconds, rest = divmod(micros, MICROS)
    return b"%b.%06dZ" % (_to_second(seconds), rest)


@lru_cache(256)
def _to_second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
