"""Who a peer is by the way it came."""

from __future__ import annotations

from typing import Any

import pytest

from polycast.errors import UsageError
from polycast.server.access.access import DIALED
from polycast.server.access.identity import from_certificate, from_place, parse_networks
from polycast.server.access.rules import check_name

NETWORKS = parse_networks(["wide=10.0.0.0/8", "narrow=10.1.0.0/16", "six=2001:db8::/32"])


@pytest.mark.parametrize(
    ("host", "identity"),
    [
        (None, "loopback"),
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.2.0.1", "wide"),
        ("10.1.0.1", "narrow"),
        ("::ffff:10.1.0.1", "narrow"),
        ("2001:db8::1", "six"),
        ("fe80::1%eth0", "anonymous"),
        ("192.0.2.1", "anonymous"),
        ("", "anonymous"),
    ],
)
def test_from_a_place(host: str | None, identity: str) -> None:
    assert from_place(host, NETWORKS) == identity


@pytest.mark.parametrize("text", ["10.0.0.0/8", "a=10.0.0.1/8", "a=somewhere", "a b=10.0.0.0/8", "=10.0.0.0/8"])
def test_what_is_no_network(text: str) -> None:
    with pytest.raises(UsageError):
        parse_networks([text])


def subject(name: str) -> Any:
    return {"subject": ((("organizationName", "x"),), (("commonName", name),))}


@pytest.mark.parametrize(
    ("certificate", "identity"),
    [
        (None, None),
        ({}, None),
        (subject("sensors"), "sensors"),
        ({**subject("sensors"), "subjectAltName": (("DNS", "other"),)}, "sensors"),
        ({"subjectAltName": (("IP Address", "10.0.0.1"), ("DNS", "a.example"))}, "a.example"),
        ({"subjectAltName": (("URI", "spiffe://x/y"),)}, "spiffe://x/y"),
        (subject("loopback"), None),
        (subject("anonymous"), None),
        (subject("a b"), None),
        (subject("a\nb"), None),
    ],
)
def test_from_a_certificate(certificate: Any, identity: str | None) -> None:
    assert from_certificate(certificate) == identity


def test_nobody_can_be_called_what_may_do_everything() -> None:
    assert from_certificate(subject(DIALED)) is None
    with pytest.raises(UsageError):
        parse_networks([f"{DIALED}=10.0.0.0/8"])
    with pytest.raises(UsageError):
        check_name(DIALED)
