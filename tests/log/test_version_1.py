"""Logs that version 1 of the format wrote, in which a batch id has no owner.

The files in `version_1` were written by the program of that time: by a broker that was killed, and by one that was
stopped. Each has three batches: in a sealed segment, in a hot one, and committed from stages.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit import hermod
from kit.broker import Broker
from kit.replay import total
from log.log_builder import findings
from log.log_rig import open_rig

OLD = Path(__file__).parent / "version_1"
COUNTS = {"sealed": 2, "hot": 1, "staged": 3}
LATER = 1_800_000_000.0
"""After all messages in the files."""
LONG = 1e9
"""The lifetime of ids, in seconds."""


@pytest.fixture(params=["killed", "stopped", "without its last snapshot"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    how = "killed" if "without" in request.param else request.param
    shutil.copytree(OLD / how, tmp_path / "data")
    if how != request.param:
        for path in (tmp_path / "data" / "log").glob(f"{102:020}.[tb]*"):
            path.unlink()
    assert version_of(tmp_path / "data") == 1
    return tmp_path / "data"


def version_of(data: Path) -> int:
    return int(json.loads((data / "log" / "state.json").read_bytes())["version"])


def test_ids_of_version_1_are_known_to_every_identity(data: Path) -> None:
    for _ in range(2):
        with open_rig(data, batch_id_seconds=LONG) as rig:
            for owner in ("alice", "bob"):
                found = {name: rig.find(name, owner=owner) for name in COUNTS}
                assert {name: durable and durable.count for name, durable in found.items()} == COUNTS
            assert not rig.find("other")
            rig.publish(("t", b"x"), batch_id="new", owner="alice", now=LATER)
            assert rig.find("new", owner="alice") and not rig.find("new", owner="bob")
            image = rig.crash(data.parent)
        with open_rig(image, batch_id_seconds=LONG) as after:
            assert after.find("new", owner="alice") and not after.find("new", owner="bob")
            assert after.find("sealed") and after.find("staged")


def test_a_log_of_version_1_continues_as_version_2(data: Path) -> None:
    with open_rig(data, batch_id_seconds=LONG, seal=True) as rig:
        rig.publish(("t", b"x"))
    assert version_of(data) == 2
    check_log(*read_with_pyarrow(rig.folder))
    assert findings(rig.folder) == []


def test_a_repeat_at_a_broker_that_is_newer(data: Path) -> None:
    flag = f"--set=log.batch_id_seconds={LONG:g}"
    with Broker(flag, data=data) as broker, broker.connect("hermod.pub") as peer:
        before = total(broker, "log_next_offset")
        peer.send(hermod.count(2, batch_id="sealed") + hermod.message("t", b"1") + hermod.message("t", b"2"))
        peer.expect(hermod.ok(2))
        peer.send(hermod.commit("staged", "s", count=3) + hermod.commit("staged", "s", count=4))
        peer.expect(hermod.ok(3))
        hermod.expect_error(peer, 422)
        assert total(broker, "log_next_offset") == before
