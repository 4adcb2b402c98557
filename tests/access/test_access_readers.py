"""A peer that floods the broker with requests for its log uses no more than its own turns."""

from __future__ import annotations

import json
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker import Broker
from kit.replay import numbered, publish, read_json_lines, total, wait_for_total
from kit.subscribers import send_request
from kit.ubre import UbrePeer, line
from kit.wire import wait_for

LISTEN = ("hermod.pub", "ubre", "http")
SMALL = "--set=log.segment_bytes=65536"
FLOOD = 150
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: closing sends a reset."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sealed and hot segments of a broker that was killed, so that some topics may be unknown."""
    folder = tmp_path_factory.mktemp("data")
    with Broker(SMALL, data=folder, listen=LISTEN) as broker, broker.connect("hermod.pub") as publisher:
        for begin in range(0, 1000, 100):
            publish(publisher, numbered("busy", range(begin, begin + 100), 300))
            publish(publisher, [(f"many.{number}", b"x") for number in range(begin, begin + 100)])
        wait_for(lambda: total(broker, "log_segments_sealed_total") > 2, "sealed segments")
        broker.kill()
    return folder


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Broker]:
    with Broker(SMALL, "--set=limits.reads=100", data=data, listen=LISTEN) as broker:
        yield broker


def flood(topic: str, count: int = FLOOD) -> bytes:
    requested = (line(request="polycast/history", id=number, body={"pattern": topic}) for number in range(count))
    return b"".join(requested)


def honest(broker: Broker) -> list[int]:
    rows: list[dict[str, Any]] = send_request(broker, "polycast/history", {"pattern": "busy", "limit": 3})
    return [row["sequence"] for row in rows]


@pytest.mark.parametrize("topic", ["absent", "absent.>", "many.77", "~7"])
def test_a_peer_that_floods_and_leaves(broker: Broker, topic: str) -> None:
    def leave() -> bool:
        before = total(broker, "log_reads_cancelled_total")
        with UbrePeer(broker.ports["ubre"]) as peer:
            peer.send(flood(topic))
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert honest(broker) == [997, 998, 999]
        wait_for_total(broker, "log_reads_waiting", 0)
        return total(broker, "log_reads_cancelled_total") > before

    wait_for(leave, "requests to be cancelled")


def test_a_peer_that_floods_and_stays_is_refused_past_the_limit(broker: Broker) -> None:
    before = total(broker, "log_reads_refused_total")
    with UbrePeer(broker.ports["ubre"]) as peer:
        peer.send(flood("~7"))
        assert honest(broker) == [997, 998, 999]
        peer.shut()
        responses = read_json_lines(peer.expect_closed())
    assert {response.get("success", response.get("fail")) for response in responses} == set(range(FLOOD))
    assert len(responses) == FLOOD
    refused = [response for response in responses if "fail" in response]
    assert 0 < len(refused) == total(broker, "log_reads_refused_total") - before
    assert {response["body"] for response in refused} == {
        "Busy: 100 reads of the log wait on this connection, the limit is 100 (limits.reads); "
        "send the next request after a response"
    }
    wait_for_total(broker, "log_reads_waiting", 0)


def test_a_flood_of_other_routes_is_refused_as_busy(broker: Broker) -> None:
    bodies = {"polycast/log": {}, "polycast/offsets": {"time": 0}, "polycast/rows": {"from": 0, "to": 5}}
    for route, body in bodies.items():
        with UbrePeer(broker.ports["ubre"]) as peer:
            peer.send(b"".join(line(request=route, id=number, body=body) for number in range(FLOOD)))
            peer.shut()
            responses = read_json_lines(peer.expect_closed())
        assert len(responses) == FLOOD
        assert any("Busy" in str(response["body"]) for response in responses if "fail" in response)


def test_a_request_that_takes_too_long_fails(tmp_path: Path) -> None:
    with (
        Broker("--set=limits.read_seconds=1e-9", data=tmp_path, listen=LISTEN) as broker,
        UbrePeer(broker.ports["ubre"]) as peer,
    ):
        peer.send_message(request="polycast/log", id=1, body={})
        response = json.loads(peer.read_until(b"\n"))
        assert response["fail"] == 1 and response["body"].startswith("Timeout: ") and "since" in response["body"]
        assert total(broker, "log_reads_expired_total") == 1


def test_the_limits_can_be_changed_while_the_broker_runs(tmp_path: Path) -> None:
    config = tmp_path / "polycast.toml"
    config.write_text("[limits]\nread_seconds = 1e-9\n")
    with (
        Broker(f"--config={config}", data=tmp_path / "data", listen=LISTEN) as broker,
        UbrePeer(broker.ports["ubre"]) as peer,
    ):
        assert peer.refusal("polycast/log", {}).startswith("Timeout: ")
        config.write_text("[limits]\nread_seconds = 0\nreads = 1\n")
        broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in broker.log(), "it to be reloaded")
        peer.send(flood("absent", 3))
        responses = [json.loads(peer.read_until(b"\n")) for _ in range(3)]
        assert any("the limit is 1 " in str(response["body"]) for response in responses)
        assert {"success": 0, "body": []} in responses


def test_a_stop_does_not_wait_for_requests(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker, UbrePeer(broker.ports["ubre"]) as peer:
        peer.send(flood("~7", 60))
        assert honest(broker) == []
        broker.stop()
        responses = read_json_lines(peer.expect_closed())
    assert {str(response["body"]) for response in responses} <= {"[]", "Gone: the broker stops"}
