from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from polycast.dialects.registry import ROLES

LISTEN = tuple(role for role in ROLES if role not in ("simplest.peer", "http"))


@pytest.fixture(scope="module")
def crossroads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with listeners of all dialects, which replays its log."""
    flag = "--set=log.delivery=committed"
    with Broker(flag, data=tmp_path_factory.mktemp("data"), listen=LISTEN) as broker:
        yield broker
