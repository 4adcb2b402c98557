from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import ALL, Broker
from kit.sp import SCHEMES

LISTEN = (*ALL, "simplest.peer", "hermod.pub", "hermod.sub", "nanomsg.pub", "nanomsg.sub", "http")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that listens to everything, and for nanomsg at files as well."""
    folder = tmp_path_factory.mktemp("ipc")  # the path of a socket has to be short
    files = [f"--listen={name}=ipc://{folder}/{name}" for name in ("nanomsg.pub", "nanomsg.sub")]
    with Broker(*files, listen=LISTEN) as running:
        yield running


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)
