"""Valid hosts and origins in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from polycast.errors import UsageError
from polycast.server import config
from polycast.server.access.http_allowlist import HttpAllowlist, parse_host, parse_origin
from polycast.server.access.settings import AccessSettings


def test_the_host_in_the_address_of_the_listener() -> None:
    sites = HttpAllowlist(AccessSettings())
    assert sites.allows_host("gate.example:8080", "Gate.Example")
    assert not sites.allows_host("gate.example:8080", "0.0.0.0")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("*", "*"),
        ("broker", "broker"),
        ("Broker.Example.", "broker.example"),
        ("broker:8080", "broker:8080"),
        ("[::1]:80", "[::1]:80"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert parse_host(text) == name


@pytest.mark.parametrize(
    "text", ["", "http://broker", "broker/", "*.example", "a b", "broker:port", "broker:99999", "bücher.example"]
)
def test_invalid_names(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_host(text)
    assert "HOST" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("*", "*"),
        ("https://App.Example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:443", "http://app.example:443"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("chrome-extension://abc", "chrome-extension://abc"),
    ],
)
def test_origins(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("app.example", "http://app.example"),
        ("https://app.example/", "https://app.example"),
        ("https://app.example/page?a", "https://app.example"),
        ("null", "sandbox"),
        ("", "https://HOST"),
        ("https://", "https://HOST"),
        ("https://*.example", "https://HOST"),
        ("https://a@b", "https://HOST"),
        ("https://a b", "https://HOST"),
        ("https://bücher.example", "https://HOST"),
    ],
)
def test_invalid_origins(text: str, cure: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_origin(text)
    assert cure in caught.value.hint


@pytest.mark.parametrize("key", ["hosts", "origins"])
def test_the_error_names_the_setting(key: str, tmp_path: Path) -> None:
    file = tmp_path / "polycast.toml"
    file.write_text(f'[access]\n{key} = ["fine.example/"]\n')
    with pytest.raises(UsageError, match=rf"polycast.toml: access.{key}: 'fine.example/'"):
        config.load(file)


@pytest.mark.parametrize(
    ("origin", "plain", "secure"),
    [
        ("https://broker.example", True, True),
        ("http://broker.example", True, False),
        ("ftp://broker.example", False, False),
        ("chrome-extension://broker.example", False, False),
        ("https://broker.example:444", False, False),
    ],
)
def test_an_http_origin_is_not_the_own_origin_of_a_tls_listener(origin: str, plain: bool, secure: bool) -> None:
    sites = HttpAllowlist(AccessSettings())
    assert sites.allows_origin(origin, "broker.example", secure=False) == plain
    assert sites.allows_origin(origin, "broker.example", secure=True) == secure
