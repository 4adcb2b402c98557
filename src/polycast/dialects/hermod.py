from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting
from polycast.dialects.base import Role

NAME = "hermod"


@dataclass(frozen=True, slots=True)
class HermodSettings:
    require_checksum: bool = setting(False, "refuse messages whose checksum is empty, which means unchecked")


ROLES: tuple[Role, ...] = ()
