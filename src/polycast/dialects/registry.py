"""The one registry of what can be listened on."""

from polycast.dialects import fanout, simplest
from polycast.dialects.base import Role

ROLES: dict[str, Role] = {role.listener: role for role in (*simplest.ROLES, *fanout.ROLES)}
