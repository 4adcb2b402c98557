"""Messages that retention removed and that are still in memory."""

from __future__ import annotations

import json
from pathlib import Path

from kit.broker import Broker
from kit.http import get, read_response
from kit.replay import publish, read_messages, subscribe, total
from kit.wire import wait_for

SMALL = ("--set=log.segment_bytes=65536", "--set=log.retain_bytes=200000")


def test_a_position_reaches_them_and_earliest_does_not(tmp_path: Path) -> None:
    """`earliest`, requests and HTTP begin with the files."""
    with Broker(*SMALL, data=tmp_path) as broker:
        with broker.connect("hermod.pub") as publisher:
            for begin in range(0, 2000, 100):
                publish(publisher, [("t", b"%d" % n + b"." * 500) for n in range(begin, begin + 100)])
        wait_for(lambda: total(broker, "log_segments_removed_total") > 2, "removed segments")
        for position in ("@0", {"t": 0}):
            with subscribe(broker, "t", since=position) as peer:
                assert [message.sequence for message in read_messages(peer, 2000)] == list(range(2000))
        with subscribe(broker, "t", since="earliest") as peer:
            first = read_messages(peer, 1)[0].sequence
        assert first > 0
        with broker.connect("http") as peer:
            peer.send(get("/topics/t?from=@0&limit=1"))
            page = json.loads(read_response(peer).body)
        assert page["messages"][0]["offset"] >= first
        assert page["gaps"][0]["reason"] == "removed by retention"
