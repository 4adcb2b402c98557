"""Identities by certificate and source address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polycast.errors import UsageError
from polycast.model import Exact, Prefix
from polycast.server.access.access_control import AccessControl, ConnectionGuard
from polycast.server.access.identity import from_address, from_certificate, parse_networks
from polycast.server.access.settings import AccessSettings
from polycast.server.access.tokens import add_token

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
def test_identity_from_an_address(host: str | None, identity: str) -> None:
    assert from_address(host, NETWORKS) == identity


@pytest.mark.parametrize("text", ["10.0.0.0/8", "a=10.0.0.1/8", "a=somewhere", "a b=10.0.0.0/8", "=10.0.0.0/8"])
def test_invalid_networks(text: str) -> None:
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
        (subject("dialled"), None),
        (subject("a b"), None),
        (subject("a\nb"), None),
    ],
)
def test_identity_from_a_certificate(certificate: Any, identity: str | None) -> None:
    assert from_certificate(certificate) == identity


@pytest.mark.parametrize("name", ["loopback", "anonymous", "dialled"])
def test_names_that_no_token_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=name):
        add_token(tmp_path, name, [])


@pytest.mark.parametrize(
    ("host", "certificate", "configured", "found"),
    [
        (None, None, "loopback", "dialled"),
        ("127.0.0.1", None, "loopback", "dialled"),
        ("::1", None, "loopback", "dialled"),
        ("192.0.2.1", None, "dialled", "dialled"),
        ("", None, "dialled", "dialled"),
        ("10.2.0.1", None, "wide", "wide"),
        ("127.0.0.1", subject("other"), "other", "other"),
        ("10.2.0.1", subject("dialled"), "wide", "wide"),
        ("192.0.2.1", subject("loopback"), "dialled", "dialled"),
    ],
)
def test_identity_of_a_dialled_server(
    host: str | None, certificate: Any, configured: str, found: str, tmp_path: Path
) -> None:
    access = AccessControl(AccessSettings(networks=["wide=10.0.0.0/8"]), tmp_path)
    assert access.identify_dialled(host, certificate, announced=False) == configured
    assert access.identify_dialled(host, certificate, announced=True) == found


def test_a_configured_peer_may_do_everything_without_rules(tmp_path: Path) -> None:
    access = AccessControl(AccessSettings(), tmp_path)
    configured = ConnectionGuard(access, "dialled", "simplest", configured=True)
    found = ConnectionGuard(access, "dialled", "simplest")
    assert not configured.restricted
    assert found.has_no_rights
    access.adopt(AccessSettings(rules=["loopback may everything", "dialled may subscribe a.>"]))
    for held in (configured, found):
        assert held.refresh()
        assert held.may_subscribe(Prefix("a."))
        assert not held.may_subscribe(Exact("b"))
        assert not held.may_publish(b"a.1")
