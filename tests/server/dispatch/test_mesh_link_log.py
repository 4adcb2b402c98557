"""What the log says about announced brokers."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import pytest

from polycast.dialects.settings import MeshSettings
from polycast.server.access.access_control import AccessControl
from polycast.server.dispatch.dispatcher import Exchange
from polycast.server.dispatch.mesh_links import Neighbours
from polycast.server.dispatch.request_handler import DETAILS_AT_MOST
from polycast.server.io.connection import Connection
from polycast.server.io.outbound import DialTarget


async def dial(place: DialTarget) -> Connection:
    raise ConnectionRefusedError


def test_each_reason_is_told_once_however_many_others_were_told_before(caplog: pytest.LogCaptureFixture) -> None:
    neighbours = Neighbours(
        MeshSettings(), cast(Exchange, SimpleNamespace()), cast(AccessControl, SimpleNamespace()), dial
    )
    with caplog.at_level(logging.WARNING):
        for number in range(2 * DETAILS_AT_MOST):
            neighbours._tell("the same")
            neighbours._tell(str(number))
    told = [record.message for record in caplog.records]
    assert told == ["the same", *map(str, range(2 * DETAILS_AT_MOST))]
