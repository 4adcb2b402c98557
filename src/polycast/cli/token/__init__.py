"""`polycast token`: tokens of identities, with the broker running or stopped."""

from __future__ import annotations

from polycast.cli.group import to_group
from polycast.cli.token import list_tokens, new, revoke

NAME = "token"
HELP = "Create, list and revoke tokens. A running broker reloads them at once."
EXAMPLE = "polycast token new sensors --publish 'sensors.>'"

COMMANDS = (new, list_tokens, revoke)

app = to_group(COMMANDS)
