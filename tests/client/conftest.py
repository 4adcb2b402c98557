from __future__ import annotations

from collections.abc import Iterator

import pytest

from client.shells import KINDS, LISTENERS
from kit.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that speaks every dialect."""
    with Broker(listen=LISTENERS) as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
