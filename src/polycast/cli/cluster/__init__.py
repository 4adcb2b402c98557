"""`polycast cluster`: brokers that share one replicated log."""

from __future__ import annotations

from polycast.cli.cluster import leave, restore, status, verify
from polycast.cli.group import to_group

NAME = "cluster"
HELP = "Show and repair a cluster: brokers that share one replicated log."
EXAMPLE = "polycast cluster status"

COMMANDS = (status, verify, restore, leave)

app = to_group(COMMANDS)
