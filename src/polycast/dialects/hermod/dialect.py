"""The declaration of `hermod`."""

from polycast.dialects.contract import Dialect, DialectClient, Role
from polycast.dialects.hermod.client import HermodClientSession
from polycast.dialects.hermod.encoders import NAME
from polycast.dialects.hermod.scan import COMPILED
from polycast.dialects.hermod.session import HermodSession
from polycast.dialects.hermod.settings import HermodSettings

DIALECT = Dialect(
    NAME,
    roles=(
        Role("hermod.pub", NAME, HermodSession, default="tcp://127.0.0.1:7878"),
        Role("hermod.sub", NAME, HermodSession, default="tcp://127.0.0.1:8787"),
    ),
    settings=HermodSettings,
    client=DialectClient(HermodClientSession, publishers="hermod.pub", subscribers="hermod.sub"),
    compiled=COMPILED,
)
