"""Streams of server-sent events, and messages as JSON objects."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import NOW
from polycast.dialects.session import SessionContext
from polycast.dialects.web.event_stream import WITH_LOG, WITHOUT_LOG, EventStreamSession
from polycast.model import Burst, Exact, Format, Received, Reply, StartPosition, Subscribe

MICROS = 1_794_772_800_000_001
"""2026-11-15, 20:00 UTC."""
texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8) | st.sampled_from(["\r\n\n", "\x85\u2028"])
payloads = (
    st.binary(max_size=8) | texts.map(str.encode) | st.sampled_from([b"\n\nid: 9\n", b'{"a":\r\n1}', b'"\n"'])
)
messages = st.tuples(texts.map(str.encode), payloads, st.sampled_from(Format))


def numbered(rows: list[tuple[bytes, bytes, Format]]) -> Burst:
    burst = Burst.of("test", rows)
    burst.sequences = [100 * (run + 1) for run in range(len(burst.topics))]
    burst.offset, burst.micros = 7, MICROS
    return burst


def encoded(burst: Burst, has_log: bool = True) -> str:
    [block], size, lossy = (WITH_LOG if has_log else WITHOUT_LOG).encode(burst, [(0, len(burst))])
    assert (len(block), lossy) == (size, 0)
    return bytes(block).decode()


@given(st.lists(messages, min_size=1, max_size=5))
def test_every_message_is_one_event(rows: list[tuple[bytes, bytes, Format]]) -> None:
    *events, rest = encoded(numbered(rows)).split("\n\n")
    assert rest == "" and len(events) == len(rows)
    for number, (event, (topic, payload, format_)) in enumerate(zip(events, rows, strict=True)):
        first, second = event.split("\n")
        found = json.loads(second.removeprefix("data: "))
        assert first == f"id: {7 + number}" and "\r" not in event
        assert (found["offset"], found["topic"], found["format"]) == (7 + number, topic.decode(), format_)
        assert found["time"] == "2026-11-15T20:00:00.000001Z"
        assert found_payload(found) == expected(payload, format_)


def found_payload(found: dict[str, Any]) -> Any:
    assert ("payload" in found) != ("payload_base64" in found)
    return found["payload"] if "payload" in found else base64.b64decode(found["payload_base64"])


def expected(payload: bytes, format_: Format) -> Any:
    """A JSON value, else text, else bytes."""
    try:
        if format_ is Format.NONE:
            return None
        return json.loads(payload.decode(), parse_constant=int) if format_ is Format.JSON else payload.decode()
    except UnicodeDecodeError:
        return payload
    except ValueError:
        return payload.decode()


def test_times_and_sequences_of_each_message() -> None:
    burst = numbered([(b"a", b"1", Format.TEXT), (b"a", b"2", Format.TEXT), (b"b", b"3", Format.TEXT)])
    burst.times = [MICROS, MICROS + 1, MICROS + 2_000_000]
    objects = [json.loads(line[6:]) for line in encoded(burst).splitlines() if line.startswith("data: ")]
    assert [each["sequence"] for each in objects] == [100, 101, 200]
    assert [each["time"][-11:] for each in objects] == [":00.000001Z", ":00.000002Z", ":02.000001Z"]


def test_without_a_log_there_is_no_id() -> None:
    assert encoded(numbered([(b"a", b"1", Format.JSON)]), has_log=False) == (
        'data: {"offset":null,"sequence":100,"time":"2026-11-15T20:00:00.000001Z","topic":"a","format":"json",'
        '"payload":1}\n\n'
    )


def session(start: StartPosition | None = None) -> EventStreamSession:
    return EventStreamSession(SessionContext(has_log=True, log_id="l", log_next=lambda: 7), [Exact("a")], start)


def test_the_first_event_is_where_a_client_resumes() -> None:
    log = b'event: log\ndata: {"log":"l","next":7}\n\n'
    assert session().open() == [Reply(b"id: 6\n" + log), Subscribe(Exact("a"), WITH_LOG, committed=True)]
    at = StartPosition(offset=3)
    assert session(at).open() == [Reply(log), Subscribe(Exact("a"), WITH_LOG, start=at, committed=True)]


def test_input_is_ignored() -> None:
    assert session().receive(b"POST /topics/a HTTP/1.1\r\n\r\n", NOW) == Received([], 27)


def test_gaps() -> None:
    assert session().to_miss(3, 9, "damaged") == (
        b'id: 8\nevent: gap\ndata: {"first":3,"next":9,"reason":"damaged"}\n\n'
    )
