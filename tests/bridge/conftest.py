from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from polycast.dialects.registry import ROLES

LISTEN = tuple(role for role in ROLES if role not in ("simplest.peer", "http"))


@pytest.fixture(scope="module")
def crossroads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that can be spoken to in every dialect, and that delivers what its log has kept."""
    flag = "--set=log.delivery=committed"
    with Broker(flag, data=tmp_path_factory.mktemp("data"), listen=LISTEN) as broker:
        yield broker
