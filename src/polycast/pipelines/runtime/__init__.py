"""How a pipeline runs: its definition, settings, runner and progress."""
