"""The registry refuses dialects that collide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polycast.dialects.contract import Dialect, Role, WebSocketEndpoint
from polycast.dialects.registry import BUILT_IN, DIALECTS, ROLES, register
from polycast.dialects.session import Session
from polycast.errors import StartError

MORSE = Dialect("morse", (Role("morse", "morse", Session),))
ENDPOINT = WebSocketEndpoint("morse", lambda context, query: Session(context), "morse", "/ubre")


def test_the_built_in_dialects_come_first() -> None:
    assert list(DIALECTS)[: len(BUILT_IN)] == ["simplest", "hermod", "fanout", "nanomsg", "ubre"]
    assert all(role.dialect in {*DIALECTS, "http"} for role in ROLES.values())
    assert register([*BUILT_IN, MORSE])["morse"] is MORSE


@pytest.mark.parametrize(
    ("dialect", "claim"),
    [
        (replace(MORSE, name="hermod"), "the name hermod"),
        (replace(MORSE, name="http"), "the name http"),
        (replace(MORSE, roles=(Role("simplest", "morse", Session),)), "the listener simplest"),
        (replace(MORSE, roles=(Role("http", "morse", Session),)), "the listener http"),
        (replace(MORSE, endpoints=(ENDPOINT,)), "the WebSocket endpoint /ubre"),
        (replace(MORSE, endpoints=(replace(ENDPOINT, path="", protocol="pub.sp.nanomsg.org"),)), "pub.sp.nanomsg"),
    ],
)
def test_two_dialects_cannot_share(dialect: Dialect, claim: str) -> None:
    with pytest.raises(StartError, match=f"the dialect {dialect.name} takes .*{claim}.*another dialect has"):
        register([*BUILT_IN, dialect])
