"""The one registry of what can be listened on."""

from polycast.dialects import fanout, hermod, http, nanomsg, simplest, ubre
from polycast.dialects.base import Role

ROLES: dict[str, Role] = {
    role.listener: role for dialect in (simplest, hermod, fanout, nanomsg, ubre, http) for role in dialect.ROLES
}
