from __future__ import annotations

from polycast.dialects.base import Role

ROLES: tuple[Role, ...] = ()
