"""A segment that is gone: every reader and every operator is told, also after the next start."""

from __future__ import annotations

import json
from pathlib import Path

from kit import hermod
from kit.broker import Broker
from kit.http import get, read_response
from kit.program import polycast
from kit.replay import handshake, metrics, read_messages, total, wait_for_total
from kit.subscribers import LISTEN, send_request
from log.log_builder import LogBuilder, stop
from polycast.log.upkeep.sealing import seal

GAP = {"first": 100, "next": 200, "reason": "the log is damaged there"}


def build(data: Path) -> None:
    """Offsets 0 to 309: three sealed segments, of which the second is gone, and a hot one."""
    (data / "log").mkdir(parents=True)
    builder = LogBuilder(data / "log")
    sealed = [seal(builder.segment(100)) for _ in range(3)]
    builder.segment(10)
    stop(builder)
    assert sealed[1]
    sealed[1].unlink()


def check(broker: Broker, warnings: list[str]) -> None:
    wait_for_total(broker, "log_messages_unreadable", 100)
    assert total(broker, "log_gaps") == 1
    with broker.connect("http") as peer:
        peer.send(get("/topics/a?limit=1000") + get("/topics/a?from=@150") + get("/readyz"))
        whole, within = (json.loads(read_response(peer).body) for _ in range(2))
        assert (whole["gaps"], within["gaps"]) == ([GAP], [{**GAP, "first": 150}])
        assert read_response(peer).body.decode().splitlines() == ["ready", *warnings]
    assert not any(metrics(broker)["polycast_messages_missed_total"].values()), "the response names the gap"
    for wanted in ({"pattern": "a", "from": "earliest"}, {"pattern": "a", "limit": 60}):
        rows = send_request(broker, "polycast/history", wanted)
        assert {"missing": GAP} in rows
    with broker.connect("hermod.sub") as peer:
        peer.send(handshake("a", since="earliest", patterns=["b.>"]))
        peer.expect(hermod.OK)
        assert len(read_messages(peer, 100)) == 100
        notice = hermod.read_error(peer)
        assert (notice["first"], notice["next"]) == (100, 200)
        assert len(read_messages(peer, 110)) == 110
    missed = metrics(broker)["polycast_messages_missed_total"]
    assert missed[("listener", "hermod.sub"), ("dialect", "hermod")] == 100


def test_a_segment_that_is_gone_is_told_everywhere(tmp_path: Path) -> None:
    build(tmp_path)
    lost = "damage was found in the log: 100 messages of the log are lost; polycast log info lists their offsets"
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        check(broker, [f"warning: {lost}"])
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        check(broker, [])
        info = json.loads(polycast("log", "info", "--json", "--data", str(tmp_path)).out)
        assert [(gap["first"], gap["next"]) for gap in info["gaps"]] == [(100, 200)]
        verified = polycast("log", "verify", "--data", str(tmp_path)).out.decode()
        assert verified.rstrip().endswith("damage: 0, notes: 1")
