"""The one registry of what can be listened on."""

from polycast.dialects import fanout, simplest
from polycast.dialects.base import Role
from polycast.dialects.hermod import session as hermod
from polycast.dialects.nanomsg import sessions as nanomsg
from polycast.dialects.ubre import sessions as ubre
from polycast.dialects.web import http

ROLES: dict[str, Role] = {
    role.listener: role for dialect in (simplest, hermod, fanout, nanomsg, ubre, http) for role in dialect.ROLES
}
