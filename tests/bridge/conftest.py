from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from polycast.dialects.registry import ROLES


@pytest.fixture(scope="module")
def crossroads() -> Iterator[Broker]:
    """A broker that can be spoken to in every dialect."""
    with Broker(listen=tuple(role for role in ROLES if role not in ("simplest.peer", "http"))) as broker:
        yield broker
