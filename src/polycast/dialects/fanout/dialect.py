"""The declaration of `fanout`."""

from polycast.dialects.contract import Dialect, DialectClient, PublishRules, Role
from polycast.dialects.fanout.client import FanoutClientSession
from polycast.dialects.fanout.session import NAME, ControllerSession, SubscriberSession

DIALECT = Dialect(
    NAME,
    roles=(
        Role("fanout.client", NAME, SubscriberSession, default="tcp://127.0.0.1:8880"),
        Role("fanout.controller", NAME, ControllerSession, default="tcp://127.0.0.1:8890"),
    ),
    publish_rules=lambda settings: PublishRules(b" !\r\n", payload_excludes=b"\n", empty_topic=False),
    client=DialectClient(FanoutClientSession, publishers="fanout.controller", subscribers="fanout.client"),
)
