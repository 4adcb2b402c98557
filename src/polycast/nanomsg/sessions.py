"""Which session and which form a pipe gets: those of the dialect, told to take no topic out of a message."""

from __future__ import annotations

from polycast.address import Address
from polycast.dialects.base import Session, Terms
from polycast.dialects.nanomsg.forms import NAME, NanomsgForm, form_of
from polycast.dialects.nanomsg.sessions import (
    PROTOCOLS,
    NanomsgSettings,
    NanomsgWebSocket,
    SubSession,
    to_pub,
    to_sub,
)
from polycast.model import Limits
from polycast.nanomsg.door import DoorSession
from polycast.nanomsg.end import Kind

SEPARATOR = "|"
"""Of no effect: with no room for a topic, all of a message is its payload."""


LIMIT_ARGUMENT = "the socket's message_bytes"


def to_terms(scheme: str, message_bytes: int, dialed: Address | None = None) -> Terms:
    return Terms(
        Limits(payload_bytes=message_bytes, topic_bytes=0),
        scheme,
        tables={NAME: NanomsgSettings(message_bytes, SEPARATOR)},
        dialed=dialed,
    )


def to_dialling_session(kind: Kind, terms: Terms) -> Session:
    return to_pub(terms) if kind is Kind.PUB else to_sub(terms)


def to_form(terms: Terms) -> NanomsgForm:
    return form_of(terms.scheme, SEPARATOR, terms.scheme == "ws" and terms.dialed is not None)


def to_listening_session(kind: Kind, terms: Terms) -> Session:
    """For a pipe that somebody else dialled."""
    if terms.scheme != "ws":
        return to_dialling_session(kind, terms)
    return DoorSession(terms, PROTOCOLS[kind])


def with_argument(session: Session) -> Session:
    """The same session, which names what a socket was given where a broker would have a setting."""
    if isinstance(session, SubSession | NanomsgWebSocket):
        session.limit_setting = LIMIT_ARGUMENT
    return session
