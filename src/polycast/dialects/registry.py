"""All dialects: those of this package, and those that installed packages declare.

A package declares a dialect by an entry point of the group `polycast.dialects` whose object is a `Dialect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points

from polycast.dialects.contract import Dialect, Role
from polycast.dialects.fanout import dialect as fanout
from polycast.dialects.hermod import dialect as hermod
from polycast.dialects.nanomsg import dialect as nanomsg
from polycast.dialects.simplest import dialect as simplest
from polycast.dialects.ubre import dialect as ubre
from polycast.dialects.web.http import to_http_role
from polycast.errors import StartError

GROUP = "polycast.dialects"
BUILT_IN = tuple(module.DIALECT for module in (simplest, hermod, fanout, nanomsg, ubre))


def installed_dialects() -> Iterator[Dialect]:
    for entry in sorted(entry_points(group=GROUP)):
        try:
            dialect = entry.load()
        except Exception as error:
            raise StartError(f"cannot load the dialect {entry.name} from {entry.value}: {error}") from error
        if not isinstance(dialect, Dialect):
            raise StartError(f"the entry point {entry.name} = {entry.value} of {GROUP} is no Dialect")
        yield dialect


def register(dialects: Iterable[Dialect]) -> dict[str, Dialect]:
    """By name. No two dialects may share a name, a listener or a WebSocket endpoint."""
    found: dict[str, Dialect] = {}
    taken = {"the name http", "the listener http"}
    for dialect in dialects:
        claims = [f"the name {dialect.name}"]
        claims += [f"the listener {role.listener}" for role in dialect.roles]
        claims += [f"the WebSocket endpoint {end.path or end.protocol}" for end in dialect.endpoints]
        for claim in claims:
            if claim in taken:
                raise StartError(f"the dialect {dialect.name} takes {claim}, which another dialect has")
            taken.add(claim)
        found[dialect.name] = dialect
    return found


DIALECTS = register((*BUILT_IN, *installed_dialects()))
HTTP = to_http_role([endpoint for dialect in DIALECTS.values() for endpoint in dialect.endpoints])
ROLES: dict[str, Role] = {
    role.listener: role for role in (*(role for dialect in DIALECTS.values() for role in dialect.roles), HTTP)
}
