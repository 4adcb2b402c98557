"""`polycast pipeline`: jobs of Spark over topics."""

from __future__ import annotations

from polycast.cli.group import to_group
from polycast.cli.pipeline import describe, list_pipelines, running

NAME = "pipeline"
HELP = "Run a pipeline: a Spark job over the topics in the log."
EXAMPLE = "polycast pipeline run archive --once"

COMMANDS = (list_pipelines, describe, running)

app = to_group(COMMANDS)
