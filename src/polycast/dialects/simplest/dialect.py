"""The declaration of `simplest`."""

from polycast.dialects.contract import Dialect, DialectClient, PublishRules, Role
from polycast.dialects.settings import MeshSettings
from polycast.dialects.simplest.client import SimplestClientSession
from polycast.dialects.simplest.session import NAME, PeerSession, SimplestSession

DIALECT = Dialect(
    NAME,
    roles=(
        Role("simplest", NAME, SimplestSession, default="tcp://127.0.0.1:9014", echo=False),
        Role("simplest.peer", NAME, PeerSession, echo=False, link=True),
    ),
    settings=MeshSettings,
    publish_rules=lambda settings: PublishRules(topic_excludes=b" \r\n", empty_topic=False),
    client=DialectClient(SimplestClientSession, publishers="simplest", subscribers="simplest"),
)
