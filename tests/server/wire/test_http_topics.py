"""Topics over HTTP: publishing, reading, and streams of server-sent events, with no client but a socket."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit import hermod
from kit.broker import Broker
from kit.http import Response, get, read_response, request
from kit.replay import total
from kit.wire import Peer, wait_for

TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("topics")) as started:
        yield started


def fetch(broker: Broker, data: bytes) -> Response:
    with broker.connect("http") as peer:
        peer.send(data)
        return read_response(peer)


def post(broker: Broker, topic: str, body: bytes, *headers: str) -> dict[str, Any]:
    response = fetch(broker, publication(topic, body, *headers))
    assert (response.status, response.headers["content-type"]) == (200, "application/json"), response.body
    found: dict[str, Any] = json.loads(response.body)
    return found


def publication(topic: str, body: bytes, *headers: str) -> bytes:
    return request("POST", f"/topics/{topic}", f"Content-Length: {len(body)}", *headers, body=body)


def read(broker: Broker, path: str) -> dict[str, Any]:
    response = fetch(broker, get(path))
    assert response.status == 200, response.body
    found: dict[str, Any] = json.loads(response.body)
    return found


JSON, TEXT = "Content-Type: application/json", "Content-Type: text/plain; charset=utf-8"


def test_what_is_published_is_read(broker: Broker) -> None:
    bodies = [(b'{"a": [1, 2]}', JSON), ("é\n".encode(), TEXT), (b"plain", ""), (b"\xff\x00", ""), (b"", "")]
    places = [post(broker, "first", body, *filter(None, [kind])) for body, kind in bodies]
    assert [place["sequence"] for place in places] == [0, 1, 2, 3, 4]
    found = read(broker, "/topics/first")
    messages = found["messages"]
    assert [message["offset"] for message in messages] == [place["offset"] for place in places]
    assert [(message["topic"], message["format"]) for message in messages] == [
        ("first", format_) for format_ in ("json", "text", "bytes", "bytes", "bytes")
    ]
    assert [message.get("payload") for message in messages] == [{"a": [1, 2]}, "é\n", "plain", None, ""]
    assert base64.b64decode(messages[3]["payload_base64"]) == b"\xff\x00"
    assert all(TIME.fullmatch(message["time"]) for message in messages)
    assert found["next"] > messages[-1]["offset"] and "gaps" not in found


def test_pages_of_a_topic(broker: Broker) -> None:
    for n in range(5):
        post(broker, "pages", b"%d" % n)
        post(broker, "other", b"")
    seen, path = [], "/topics/pages?limit=2"
    while page := read(broker, path)["messages"]:
        seen += [message["payload"] for message in page]
        path = f"/topics/pages?limit=2&from=@{read(broker, path)['next']}"
    assert seen == ["0", "1", "2", "3", "4"]
    after = read(broker, path)["next"]
    post(broker, "pages", b"new")
    assert [each["payload"] for each in read(broker, f"/topics/pages?from=@{after}")["messages"]] == ["new"]


@pytest.mark.parametrize(
    ("start", "count"), [("earliest", 3), ("latest", 0), ("2", 1), ("-10m", 3), ("2026-01-01T00:00", 3), ("0", 3)]
)
def test_positions(broker: Broker, start: str, count: int) -> None:
    topic = f"positions.{start}"
    for _ in range(3):
        post(broker, topic, b"x")
    assert len(read(broker, f"/topics/{topic}?from={start}")["messages"]) == count


def test_requests_on_one_connection_get_responses_in_order(broker: Broker) -> None:
    """Publications and reads wait for the log, pages do not."""
    parts = [publication("order", b"%d" % n) + get("/healthz") for n in range(100)]
    with broker.connect("http") as peer:
        peer.send(b"".join(parts) + get("/topics/order?limit=100", "Connection: close"))
        for n in range(100):
            assert json.loads(read_response(peer).body)["sequence"] == n
            assert read_response(peer).body == b"ok\n"
        assert len(json.loads(read_response(peer).body)["messages"]) == 100
        assert peer.socket.recv(1) == b""


def test_a_half_closed_connection_gets_all_responses(broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(publication("half", b"a") + get("/topics/half") + publication("half", b"b"))
        peer.shut()
        assert json.loads(read_response(peer).body)["sequence"] == 0
        assert len(json.loads(read_response(peer).body)["messages"]) == 1
        assert json.loads(read_response(peer).body)["sequence"] == 1
        assert peer.socket.recv(1) == b""


def test_a_large_body_in_chunks_and_whole(broker: Broker) -> None:
    payload = bytes(range(256)) * 8192
    chunks = [payload[at : at + 300_000] for at in range(0, len(payload), 300_000)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    chunked = request("POST", "/topics/large", "Transfer-Encoding: chunked", body=framed)
    assert fetch(broker, chunked).status == fetch(broker, publication("large", payload)).status == 200
    for message in read(broker, "/topics/large")["messages"]:
        assert base64.b64decode(message["payload_base64"]) == payload


def test_a_head_request(broker: Broker) -> None:
    post(broker, "head", b"x")
    with broker.connect("http") as peer:
        peer.send(request("HEAD", "/topics/head") + request("HEAD", "/events?pattern=head"))
        topics, events = read_response(peer, body=False), read_response(peer, body=False)
    assert topics.status == events.status == 200 and int(topics.headers["content-length"]) > 100
    assert events.headers["content-type"] == "text/event-stream"


def test_other_dialects_receive_what_is_published(broker: Broker) -> None:
    with broker.connect("hermod.sub") as subscriber:
        subscriber.send(b'{"topics": ["across"]}')
        subscriber.expect(hermod.OK)
        post(broker, "across", b"x")
        subscriber.expect(hermod.delivery("across", b"x", 0))


# -- streams -----------------------------------------------------------------------------------------------


class Stream:
    """A stream of events."""

    def __init__(self, broker: Broker, path: str, *headers: str) -> None:
        self.peer = broker.connect("http")
        self.peer.send(get(path, *headers))
        self.head = self.peer.read_until(b"\r\n\r\n").decode()
        assert self.head.startswith("HTTP/1.1 200 OK\r\n"), self.head

    def __enter__(self) -> Stream:
        self.log = self.read()
        assert self.log["event"] == "log"
        return self

    def __exit__(self, *error: object) -> None:
        self.peer.socket.close()

    def read(self) -> dict[str, Any]:
        """The fields of the next event, with its data parsed; comments are passed over."""
        lines: list[str] = []
        while not lines:
            text = self.peer.read_until(b"\n\n").decode().removesuffix("\n\n")
            lines = [line for line in text.split("\n") if not line.startswith(":")]
        fields: dict[str, Any] = dict(line.split(": ", 1) for line in lines)
        return fields | {"data": json.loads(fields["data"])}

    def payloads(self, count: int) -> list[Any]:
        return [self.read()["data"]["payload"] for _ in range(count)]


def wait_for_live(broker: Broker) -> None:
    wait_for(lambda: total(broker, "replays_open") == 0, "the end of the replays")


def test_a_stream_of_patterns(broker: Broker) -> None:
    with Stream(broker, "/events?pattern=s.%3E&pattern=t") as stream:
        assert "\r\nContent-Type: text/event-stream\r\n" in stream.head
        assert f"\r\nPolycast-Log: {stream.log['data']['log']}\r\n" in stream.head
        places = [post(broker, topic, b'{"n":\r\n1}', JSON) for topic in ("s.1", "u", "t", "s.>")]
        events = [stream.read() for _ in range(3)]
    assert [event["data"]["topic"] for event in events] == ["s.1", "t", "s.>"]
    assert [int(event["id"]) for event in events] == [places[n]["offset"] for n in (0, 2, 3)]
    assert events[0]["data"] == read(broker, "/topics/s.1")["messages"][0]


def test_a_live_stream(broker: Broker) -> None:
    with Stream(broker, "/events?pattern=quick&delivery=live") as stream:
        post(broker, "quick", b"x")
        assert stream.payloads(1) == ["x"]


def test_a_stream_resumes_where_it_ended(broker: Broker) -> None:
    """Wherever it is cut, no event is missing and none comes twice."""
    for n in range(6):
        post(broker, "resumed", b"%d" % n)
    last, seen = "", []
    for _ in range(3):
        headers = [f"Last-Event-ID: {last}"] if last else []
        with Stream(broker, "/events?pattern=resumed&from=earliest", *headers) as stream:
            for event in (stream.read(), stream.read()):
                seen.append(event["data"]["payload"])
                last = event["id"]
    assert seen == ["0", "1", "2", "3", "4", "5"]
    with Stream(broker, "/events?pattern=resumed", f"Last-Event-ID: {last}") as stream:
        wait_for_live(broker)
        post(broker, "resumed", b"live")
        assert stream.payloads(1) == ["live"]


def test_a_stream_that_ends_before_its_first_message_resumes_as_well(broker: Broker) -> None:
    with Stream(broker, "/events?pattern=early") as stream:
        last = stream.log["id"]
    post(broker, "early", b"missed")
    with Stream(broker, "/events?pattern=early", f"Last-Event-ID: {last}") as stream:
        assert stream.payloads(1) == ["missed"]


def test_topics_and_payloads_cannot_forge_events(broker: Broker) -> None:
    with Stream(broker, "/events?pattern=~forged") as stream:
        forged = b"x\n\nid: 999\r\ndata: {}\r\r"
        post(broker, "forged%0A%0Aid:%207%0D", forged, TEXT)
        post(broker, "forged", b'"not \n json')
        with broker.connect("hermod.pub") as publisher:
            publisher.send(hermod.message("forged", b"{\n\ndata: 1"))
            publisher.expect(hermod.OK)
        first, second, third = stream.read(), stream.read(), stream.read()
    assert (first["data"]["topic"], first["data"]["payload"]) == ("forged\n\nid: 7\r", forged.decode())
    assert [second["data"]["payload"], third["data"]["payload"]] == ['"not \n json', "{\n\ndata: 1"]


def test_connections_list_streams(broker: Broker) -> None:
    with Stream(broker, "/events?pattern=listed.%3E") as stream:
        port = stream.peer.socket.getsockname()[1]
        body = b'{"request": "polycast/connections", "id": 1, "body": {"limit": 1000, "patterns": 9}}'
        with broker.connect("hermod.pub") as peer:
            peer.send(body)
            size = json.loads(peer.read_until(b"}"))["payload_size"]
            rows = json.loads(peer.read_until(b"\n")[:size])["connections"]
    [row] = [row for row in rows if row["address"].endswith(f":{port}")]
    assert (row["dialect"], row["patterns"]) == ("http", ["listed.>"])


def test_what_is_sent_after_the_request_is_ignored(broker: Broker) -> None:
    with Stream(broker, "/events?pattern=ignored") as stream:
        stream.peer.send(publication("ignored", b"smuggled") + b"\x00" * 100_000)
        post(broker, "ignored", b"real")
        assert stream.payloads(1) == ["real"]


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (publication("a", b"{", JSON), 400, b"not JSON"),
        (publication("a", b"", JSON), 400, b"not JSON"),
        (publication("a", b"[" * 100_000, JSON), 400, b"not JSON"),
        (publication("a", b"\xff", TEXT), 400, b"not UTF-8"),
        (publication("a", b"x", "Content-Type: text/plain; charset=latin-1"), 415, b"expected UTF-8"),
        (publication("a", b"x", "Content-Encoding: gzip"), 415, b"Content-Encoding"),
        (publication("", b"x"), 400, b"names no topic"),
        (publication("%C0%AF", b"x"), 400, b"not UTF-8"),
        (publication("%ff", b"x"), 400, b"not UTF-8"),
        (publication("x" * 1025, b"x"), 414, b"limits.topic_bytes"),
        (publication("a?from=1", b"x"), 400, b"unknown field 'from'"),
        (request("PUT", "/topics/a"), 405, b"GET, HEAD, OPTIONS, POST"),
        (request("POST", "/events?pattern=a"), 405, b"GET, HEAD, OPTIONS"),
        (get("/topics/a?limit=0"), 400, b"expected 1 to 10,000"),
        (get("/topics/a?limit=" + "1" * 5000), 400, b"expected 1 to 10,000"),
        (get("/topics/a?limit=%D9%A5"), 400, b"expected 1 to 10,000"),
        (get("/topics/a?from=soon"), 400, b"not a position"),
        (get("/topics/a?from=%ff"), 400, b"not UTF-8"),
        (get("/topics/a?from=1&from=2"), 400, b"from is twice"),
        (get("/topics/a?from=@99999999"), 412, b"past the end"),
        (get("/topics/a?log=another"), 412, b"not the log of this broker"),
        (get("/events"), 400, b"0 patterns"),
        (get("/events?" + "&".join(["pattern=a"] * 100) + "&x"), 400, b"query fields"),
        (get("/events?pattern="), 400, b"cannot be empty"),
        (get("/events?patern=a"), 400, b"unknown field 'patern'"),
        (get("/events?pattern=a&delivery=soon"), 400, b"expected committed or live"),
        (get("/events?pattern=a.%3E&from=7"), 400, b"belongs to one topic"),
        (get("/events?pattern=a", "Last-Event-ID: soon"), 400, b"Last-Event-ID"),
        (get("/events?pattern=a", "Last-Event-ID: -2"), 400, b"Last-Event-ID"),
        (get("/events?pattern=a", "Last-Event-ID: 99999999"), 412, b"past the end"),
        (get("/events?pattern=a&log=another", "Last-Event-ID: 1"), 412, b"not the log of this broker"),
    ],
)
def test_refusals(broker: Broker, data: bytes, status: int, words: bytes) -> None:
    response = fetch(broker, data)
    assert (response.status, words in response.body) == (status, True), response
    assert response.body.count(b"\n") == 1


def test_a_sequence_that_does_not_exist_yet_is_refused(broker: Broker) -> None:
    """Pages from there on would have earlier sequences. The end itself is a position."""
    post(broker, "short", b"x")
    assert read(broker, "/topics/short?from=1")["messages"] == []
    with broker.connect("http") as peer:
        peer.send(get("/topics/short?from=2") + get("/topics/none.yet?from=1"))
        for text in (b"'short' has come to sequence 1, there is no 2 yet", b"'none.yet' has come to sequence 0"):
            response = read_response(peer)
            assert response.status == 400
            assert text in response.body


def test_a_sequence_that_does_not_exist_yet_ends_the_stream(broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(get("/events?pattern=never&from=5"))
        peer.read_until(b"event: refused\n")
        assert b"there is no 5 yet" in peer.read_until(b"\n\n")
        assert peer.socket.recv(1) == b""


def test_a_broker_without_a_log() -> None:
    with Broker() as broker:
        assert post(broker, "a", b"x") == {"offset": None, "sequence": 0}
        assert fetch(broker, get("/topics/a")).status == 501
        assert fetch(broker, get("/events?pattern=a", "Last-Event-ID: 3")).status == 501
        with broker.connect("http") as peer:
            peer.send(get("/events?pattern=a"))
            peer.read_until(b"\r\n\r\n:\n\n")
            post(broker, "a", b"live")
            text = peer.read_until(b"\n\n").decode()
            assert text.startswith('data: {"offset":null,"sequence":1,') and "id:" not in text


def test_only_an_accepted_body_gets_100_continue(broker: Broker) -> None:
    expect = "Expect: 100-continue"
    with broker.connect("http") as peer:
        peer.send(publication("asked", b"", "X: y")[:-4].replace(b"Length: 0", b"Length: 2") + b"\r\n")
        peer.send(f"{expect}\r\n\r\n".encode())
        peer.expect(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.send(b"ok")
        assert read_response(peer).status == 200
    with broker.connect("http") as peer:
        peer.send(request("POST", "/topics/", "Content-Length: 2", expect))
        response = read_response(peer)
        assert (response.status, response.headers["connection"]) == (400, "close")


def test_a_stopping_broker_ends_streams(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, Stream(broker, "/events?pattern=a") as stream:
        post(broker, "a", b"last")
        broker.begin_to_stop()
        assert stream.payloads(1) == ["last"]
        assert read_rest(stream.peer) == b""


def read_rest(peer: Peer) -> bytes:
    rest = peer.read
    while more := peer.socket.recv(65536):
        rest += more
    return rest
