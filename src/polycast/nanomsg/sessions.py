"""The session and the encoder of a pipe: those of the dialect `nanomsg`, with messages that have no topic."""

from __future__ import annotations

from enum import IntEnum

from polycast.address import Address
from polycast.dialects.nanomsg.encoders import NAME, NanomsgEncoder, encoder_of
from polycast.dialects.nanomsg.session import PROTOCOLS, NanomsgWebSocket, SubSession, to_pub, to_sub
from polycast.dialects.nanomsg.settings import NanomsgSettings
from polycast.dialects.session import Session, SessionContext
from polycast.model import Limits
from polycast.nanomsg.upgrade_session import UpgradeSession

SEPARATOR = "|"
"""Without effect: with a topic limit of 0, the whole message is payload."""
LIMIT_ARGUMENT = "the socket's message_bytes"


class Kind(IntEnum):
    """The numbers are those of the SP headers, and of `NN_PUB` and `NN_SUB` of nanomsg."""

    PUB = 0x20
    SUB = 0x21


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
    """For a pipe that the peer dialled."""
    if context.scheme != "ws":
        return to_dialling_session(kind, context)
    return UpgradeSession(context, PROTOCOLS[kind])


def with_limit_argument(session: Session) -> Session:
    """The session, with errors that name the argument of the socket instead of a setting of the broker."""
    if isinstance(session, SubSession | NanomsgWebSocket):
        session.limit_setting = LIMIT_ARGUMENT
    return session
