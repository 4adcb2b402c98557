"""The declaration of `ubre`."""

from urllib.parse import parse_qsl

from polycast.address import WEB
from polycast.dialects.contract import (
    STREAMS,
    Dialect,
    DialectClient,
    PublishRules,
    Role,
    WebSocketEndpoint,
)
from polycast.dialects.session import Session, SessionContext
from polycast.dialects.settings import RequestSettings
from polycast.dialects.ubre.client import PATH, UbreClientSession
from polycast.dialects.ubre.encoders import NAME
from polycast.dialects.ubre.scan import COMPILED
from polycast.dialects.ubre.session import UbreSession, UbreWebSocketSession


def to_websocket_session(context: SessionContext, query: str) -> Session:
    """`?publishes=a,b` lists topics that the peer publishes only while there are subscribers."""
    lists = [value.split(",") for key, value in parse_qsl(query, errors="strict") if key == "publishes"]
    topics = dict.fromkeys(topic for topics in lists for topic in topics if topic)
    longest = max((len(topic.encode()) for topic in topics), default=0)
    if longest > context.limits.topic_bytes:
        raise ValueError(f"a topic of {longest:,} bytes, the limit is {context.limits.topic_bytes:,}")
    return UbreWebSocketSession(context, list(topics))


DIALECT = Dialect(
    NAME,
    roles=(Role("ubre", NAME, UbreSession),),
    settings=RequestSettings,
    publish_rules=lambda settings: PublishRules(formats=True),
    endpoints=(WebSocketEndpoint(NAME, to_websocket_session, "ubre", PATH),),
    client=DialectClient(UbreClientSession, "http", "http", STREAMS + WEB),
    compiled=COMPILED,
)
