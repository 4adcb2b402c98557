from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting
from polycast.dialects.base import Role

NAME = "nanomsg"


@dataclass(frozen=True, slots=True)
class NanomsgSettings:
    message_bytes: int = setting(1024 * 1024, "largest message that is accepted", low=1)
    separator: str = setting("|", "the character between topic and payload in a message")


ROLES: tuple[Role, ...] = ()
