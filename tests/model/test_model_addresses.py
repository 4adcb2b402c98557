"""Addresses as users write them."""

from __future__ import annotations

import pytest

from polycast.address import Address, parse_address, split_addresses
from polycast.errors import UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:9014", Address("tcp", "127.0.0.1", 9014)),
        ("tcp://localhost:0", Address("tcp", "localhost", 0)),
        ("tcp://[::1]:65535", Address("tcp", "::1", 65535)),
        ("tcp://host:1/", Address("tcp", "host", 1)),
        ("tls+tcp://h:1", Address("tls", "h", 1)),
        ("ipc:///run/x.sock", Address("ipc", path="/run/x.sock")),
        ("tcp://h:1?policy=drop&x=", Address("tcp", "h", 1, options={"policy": "drop", "x": ""})),
        ("ipc:///x?policy=drop", Address("ipc", path="/x", options={"policy": "drop"})),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:1",
        "udp://h:1",
        "tcp://h",
        "tcp://h:",
        "tcp://h:x",
        "tcp://h:-1",
        "tcp://h:65536",
        "tcp://:1",
        "tcp://::1:1",
        "tcp://h:1/path",
        "tcp://h:١",
        "ipc://relative",
        "ipc://",
    ],
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert caught.value.hint


def test_a_default_scheme_lets_host_and_port_stand_alone() -> None:
    assert parse_address("h:1", "tcp") == Address("tcp", "h", 1)
    assert parse_address("ipc:///x", "tcp") == Address("ipc", path="/x")


def test_several_addresses() -> None:
    assert split_addresses("") == [""]
    assert split_addresses("localhost") == ["localhost"]
    assert split_addresses("tcp://a:1, tls://b:2?token=x%2Cy") == ["tcp://a:1", "tls://b:2?token=x%2Cy"]
    for text in ("tcp://a:1,", ",tcp://a:1", "tcp://a:1,,tcp://b:2"):
        with pytest.raises(UsageError, match="an empty address"):
            split_addresses(text)
