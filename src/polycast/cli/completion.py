from __future__ import annotations

import typer

from polycast.errors import UsageError

NAME = "completion"
HELP = """Print a script that completes commands and options in a shell: bash, zsh or fish.

The script starts no program when you press tab. Put the line of the example into ~/.bashrc, or with zsh for bash
into ~/.zshrc. For fish: polycast completion fish > ~/.config/fish/completions/polycast.fish"""
EXAMPLE = 'eval "$(polycast completion bash)"'


def run(
    context: typer.Context, shell: str = typer.Argument(help="The shell: bash, zsh or fish.", metavar="SHELL")
) -> None:
    from polycast.cli.completion_scripts import SCRIPTS, read_commands

    if shell not in SCRIPTS:
        raise UsageError(f"no completion for {shell}", f"there is one for {', '.join(SCRIPTS)}")
    typer.echo(SCRIPTS[shell](read_commands(context.find_root().command)), nl=False)
