"""`/healthz` reports liveness, `/readyz` readiness with the reasons if the broker is not ready."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.http import Response, get, read_response
from log.log_rig import FaultyDisk, open_rig
from polycast.dialects.session import Page
from polycast.server import load
from polycast.server.observe import pages
from polycast.server.server import Server

LISTEN = {"http": "tcp://127.0.0.1:0", "simplest": "tcp://127.0.0.1:0", "fanout.client": "tcp://127.0.0.1:0"}


def fetch(broker: Broker, path: str) -> Response:
    with broker.connect("http") as peer:
        peer.send(get(path))
        return read_response(peer)


@pytest.mark.parametrize("durable", [True, False])
def test_a_broker_that_runs_is_alive_and_ready(durable: bool, tmp_path: Path) -> None:
    with Broker(data=tmp_path if durable else None) as broker:
        assert fetch(broker, "/healthz")[::2] == (200, b"ok\n")
        assert fetch(broker, "/readyz")[::2] == (200, b"ready\n")


def readiness(server: Server) -> tuple[int, list[str]]:
    page = pages.find(server.core, "/readyz")
    assert isinstance(page, Page)
    return page.status, page.body.decode().splitlines()


def test_ready_between_start_and_stop() -> None:
    flags = [("log.enabled", False), *((f"listen.{name}", address) for name, address in LISTEN.items())]
    server = Server(load(flags=flags).settings)
    closed = (503, [f"the listener {name} is not open" for name in LISTEN])

    async def live() -> None:
        assert readiness(server) == closed
        await server.start()
        assert readiness(server) == (200, ["ready"])
        await server.stop()
        assert readiness(server) == closed
        health = pages.find(server.core, "/healthz")
        assert health and health.status == 200

    asyncio.run(live())


def test_two_addresses_of_one_name_are_two_to_wait_for() -> None:
    flags = [("log.enabled", False), *[("listen.simplest", "tcp://127.0.0.1:0")] * 2]
    server = Server(load(flags=flags).settings)

    async def live() -> None:
        await server.start()
        assert readiness(server) == (200, ["ready"])
        server.core.opened_listeners["simplest"] -= 1
        assert readiness(server) == (503, ["the listener simplest is not open"])
        await server.stop()

    asyncio.run(live())


# -- the log ---------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        assert rig.log.write_error() == ""
        disk.fail("write", ".arrows", errno.EIO)
        assert rig.publish(("t", b"no")).reason
        assert rig.log.write_error() == "messages are not stored: Input/output error"
        disk.heal()
        rig.fill(1)
        assert rig.log.write_error() == ""


def test_a_full_disk_is_full_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, room = FaultyDisk(), 0
    monkeypatch.setattr(disk, "free_bytes", lambda folder: room)
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        assert rig.log.write_error() == "", "there may be room in what was allocated"
        disk.fail("write", ".arrows", errno.ENOSPC)
        assert rig.publish(("t", b"no")).reason
        assert rig.log.write_error() == "messages are not stored: No space left on device"
        room = 1 << 30
        assert rig.log.write_error() == "", "nobody may publish before somebody finds it ready"


def test_a_log_that_has_failed_stays_so(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        disk.fail("sync", ".arrows", times=1)
        reason = rig.publish(("t", b"no")).reason
        disk.heal()
        assert rig.log.write_error() == reason and "starts again" in reason
