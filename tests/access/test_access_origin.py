"""From which pages a browser may open a WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from access.gate import gated
from kit.broker import Broker
from kit.http import read_answer
from kit.websocket import upgrade


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with gated(
        tmp_path_factory.mktemp("origin"), "guest may everything", more='origins = ["https://friend"]'
    ) as started:
        yield started


def answer_to(broker: Broker, host: str, origin: str, here: bool = False) -> int:
    asked = upgrade(extra=f"Origin: {origin}\r\n" if origin else "").replace(
        b"Host: localhost", f"Host: {host}".encode()
    )
    with broker.connect_file("http") if here else broker.connect("http") as peer:
        peer.send(asked)
        peer.expect(b"HTTP/1.1 ")
        return int(peer.read_until(b" "))


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("broker:8080", "", 101),
        ("broker:8080", "http://broker:8080", 101),
        ("Broker:8080", "http://broker:8080", 101),
        ("broker", "https://broker", 101),
        ("broker:8080", "https://friend", 101),
        ("broker:8080", "http://friend", 403),
        ("broker:8080", "http://broker", 403),
        ("broker:8080", "http://broker:80", 403),
        ("broker:8080", "http://evil", 403),
        ("broker:8080", "http://broker:8080.evil", 403),
        ("broker:8080", "null", 403),
    ],
)
def test_own_pages_and_those_that_are_listed(host: str, origin: str, status: int, broker: Broker) -> None:
    assert answer_to(broker, host, origin) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8080", 101), ("127.0.0.1:8080", 101), ("[::1]:8080", 101), ("rebound:8080", 403)],
)
def test_who_is_trusted_for_being_here_calls_it_by_a_name_of_here(host: str, status: int, broker: Broker) -> None:
    """Anybody can make a name of theirs lead to this machine, and have browsers on it open pages from there."""
    assert answer_to(broker, host, f"http://{host}", here=True) == status
    assert answer_to(broker, host, "", here=True) == 101


def test_all_pages(tmp_path: Path) -> None:
    with gated(tmp_path, "guest may everything", listen=("http",), more='origins = ["*"]') as broker:
        assert answer_to(broker, "broker", "http://evil") == 101


def test_the_refusal_says_no_more_than_that(broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(upgrade(extra="Origin: http://evil\r\n"))
        assert read_answer(peer).body == b"Forbidden\n"
