"""Which session and which form a pipe gets: those of the dialect, told to take no topic out of a message."""

from __future__ import annotations

from polycast.address import Address
from polycast.dialects.nanomsg.encoders import NAME, NanomsgEncoder, encoder_of
from polycast.dialects.nanomsg.session import PROTOCOLS, NanomsgWebSocket, SubSession, to_pub, to_sub
from polycast.dialects.nanomsg.settings import NanomsgSettings
from polycast.dialects.session import Session, SessionContext
from polycast.model import Limits
from polycast.nanomsg.door import DoorSession
from polycast.nanomsg.end import Kind

SEPARATOR = "|"
"""Of no effect: with no room for a topic, all of a message is its payload."""


LIMIT_ARGUMENT = "the socket's message_bytes"


def to_session_context(scheme: str, message_bytes: int, dialed: Address | None = None) -> SessionContext:
    return SessionContext(
        Limits(payload_bytes=message_bytes, topic_bytes=0),
        scheme,
        tables={NAME: NanomsgSettings(message_bytes, SEPARATOR)},
        dialed=dialed,
    )


def to_dialling_session(kind: Kind, context: SessionContext) -> Session:
    return to_pub(context) if kind is Kind.PUB else to_sub(context)


def to_encoder(context: SessionContext) -> NanomsgEncoder:
    return encoder_of(context.scheme, SEPARATOR, context.scheme == "ws" and context.dialed is not None)


def to_listening_session(kind: Kind, context: SessionContext) -> Session:
    """For a pipe that somebody else dialled."""
    if context.scheme != "ws":
        return to_dialling_session(kind, context)
    return DoorSession(context, PROTOCOLS[kind])


def with_argument(session: Session) -> Session:
    """The same session, which names what a socket was given where a broker would have a setting."""
    if isinstance(session, SubSession | NanomsgWebSocket):
        session.limit_setting = LIMIT_ARGUMENT
    return session
