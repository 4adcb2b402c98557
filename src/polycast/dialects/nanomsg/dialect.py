"""The declaration of `nanomsg`."""

from polycast.address import WEB
from polycast.dialects.contract import (
    STREAMS,
    Dialect,
    DialectClient,
    PublishRules,
    Role,
    WebSocketEndpoint,
)
from polycast.dialects.nanomsg.client import NanomsgClientSession
from polycast.dialects.nanomsg.encoders import NAME
from polycast.dialects.nanomsg.headers import PUB, SUB
from polycast.dialects.nanomsg.session import PROTOCOLS, PubWebSocketSession, SubWebSocketSession, to_pub, to_sub
from polycast.dialects.nanomsg.settings import NanomsgSettings


def to_publish_rules(settings: NanomsgSettings) -> PublishRules:
    """A topic ends at the first separator."""
    return PublishRules(topic_excludes=settings.separator.encode())


DIALECT = Dialect(
    NAME,
    roles=(
        Role("nanomsg.pub", NAME, to_pub, default="tcp://127.0.0.1:5550", options=("prefix",), dials=True),
        Role("nanomsg.sub", NAME, to_sub, default="tcp://127.0.0.1:5551", dials=True),
    ),
    settings=NanomsgSettings,
    publish_rules=to_publish_rules,
    endpoints=(
        WebSocketEndpoint(NAME, lambda context, query: PubWebSocketSession(context), PROTOCOLS[PUB]),
        WebSocketEndpoint(NAME, lambda context, query: SubWebSocketSession(context), PROTOCOLS[SUB]),
    ),
    client=DialectClient(NanomsgClientSession, "nanomsg.sub", "nanomsg.pub", STREAMS + WEB),
)
