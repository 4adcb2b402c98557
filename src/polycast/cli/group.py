"""Typer commands from modules with NAME, HELP, EXAMPLE, run(), and CONTEXT where click needs other settings."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import typer


def add_commands(app: typer.Typer, commands: Iterable[ModuleType]) -> None:
    for command in commands:
        context = getattr(command, "CONTEXT", None)
        add = app.command(command.NAME, help=command.HELP, epilog=_to_epilog(command), context_settings=context)
        add(command.run)


def add_group(app: typer.Typer, group: ModuleType) -> None:
    app.add_typer(group.app, name=group.NAME, help=group.HELP, epilog=_to_epilog(group))


def to_group(commands: Iterable[ModuleType]) -> typer.Typer:
    """The app of a command with subcommands."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    add_commands(app, commands)
    return app


def _to_epilog(module: ModuleType) -> str:
    return f"Example: {module.EXAMPLE}"
