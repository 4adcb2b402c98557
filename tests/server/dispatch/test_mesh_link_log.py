"""Log lines about announced brokers."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from polycast.dialects.settings import MeshSettings
from polycast.server.dispatch.mesh_links import MeshLinks
from polycast.server.io.connection import DETAILS_AT_MOST, Connection
from polycast.server.io.outbound import DialTarget


async def dial(place: DialTarget) -> Connection:
    raise ConnectionRefusedError


def test_each_reason_is_logged_once_however_many_others_were_logged(caplog: pytest.LogCaptureFixture) -> None:
    unused = cast(Any, SimpleNamespace())
    links = MeshLinks(MeshSettings(), unused, unused, unused, unused, unused, unused, dial)
    with caplog.at_level(logging.WARNING):
        for number in range(2 * DETAILS_AT_MOST):
            links._log_once("the same")
            links._log_once(str(number))
    reported = [record.message for record in caplog.records]
    assert reported == ["the same", *map(str, range(2 * DETAILS_AT_MOST))]
