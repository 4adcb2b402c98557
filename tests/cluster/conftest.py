from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.place import Place
from cluster.trio import LISTEN
from kit.broker import Broker
from kit.nats import Servers


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("server"), 1) as running:
        yield running


@pytest.fixture
def place(server: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    name = request.node.name.partition("[")[0].upper()[5:26]
    return Place(server, tmp_path, f"{name}_{secrets.token_hex(3)}")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """A server that the test may kill."""
    with Servers(tmp_path / "nats", 1) as running:
        yield running


@pytest.fixture
def nodes(servers: Servers, tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    flags = [f"--cluster={servers.urls}"]
    with (
        Broker(*flags, "--node=a", listen=LISTEN, data=tmp_path / "a") as first,
        Broker(*flags, "--node=b", listen=LISTEN, data=tmp_path / "b") as second,
    ):
        yield first, second
