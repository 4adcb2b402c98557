from __future__ import annotations

from collections.abc import Iterator

import pytest

from client.shells import KINDS, LISTENERS
from kit.broker import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with all dialects and a log."""
    with Broker(data=tmp_path_factory.mktemp("data"), listen=LISTENERS) as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
