"""Completion scripts, from the tree of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from polycast.dialects.registry import DIALECTS

VALUES = {"--dialect": list(DIALECTS), "--log-format": ["text", "json"]}
"""Options with a choice of values."""
FOLDERS = ("--data",)
FILES = ("--config", "--file")
ARGUMENTS = {"completion": {"bash": "", "zsh": "", "fish": ""}}
"""Arguments with a choice of values, by command."""


class Completion(NamedTuple):
    """The completion of one command. The path of the program itself is empty."""

    path: str
    options: dict[str, str]
    """The help of each option."""
    takes_value: frozenset[str]
    is_group: bool
    commands: dict[str, str]
    """Subcommands, or the values of the argument, with their help."""


def read_commands(program: Any) -> list[Completion]:
    """`program` is the command that Typer makes of an app."""
    return list(_walk(program, ""))


def _walk(command: Any, path: str) -> Iterator[Completion]:
    below: dict[str, Any] = getattr(command, "commands", {})
    options = [param for param in command.params if param.param_type_name == "option"]
    names = {name: _line(param.help) for param in options for name in param.opts if name.startswith("--")}
    values = frozenset(name for param in options if not param.is_flag for name in param.opts)
    helps = {name: _line(each.help) for name, each in below.items()} or ARGUMENTS.get(path, {})
    names["--help"] = "Show this message and exit."
    yield Completion(path, names, values, bool(below), helps)
    for name, each in below.items():
        yield from _walk(each, f"{path} {name}".strip())


def _line(text: str | None) -> str:
    """The first sentence, without characters that shells interpret."""
    sentence = " ".join((text or "").split("\n\n")[0].split()).partition(". ")[0]
    return "".join(c for c in sentence if c not in "'\"`$\\:[]")


def _to_words(command: Completion) -> str:
    words, options = " ".join(command.commands), " ".join(command.options)
    return f'            "{command.path}") words="{words}" options="{options}" ;;'


BASH = """\
_polycast() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}"
    COMPREPLY=()
    local command="" skip="" word words="" options=""
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        if [[ -n "$skip" ]]; then skip=""; continue; fi
        case "$word" in
            {values}) skip=1 ;;
            -*) ;;
            *) case "$command" in {groups}) command="${{command:+$command }}$word" ;; esac ;;
        esac
    done
    case "$previous" in
{choices}
        {folders}) COMPREPLY=($(compgen -d -- "$current")); return ;;
        {files}) COMPREPLY=($(compgen -f -- "$current")); return ;;
        {values}) return ;;
        *) case "$command" in
{words}
        esac
        if [[ "$current" == -* ]]; then words="$options"; fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _polycast polycast
"""
ZSH = """\
autoload -U +X compinit && (( $+functions[compdef] )) || compinit
autoload -U +X bashcompinit && bashcompinit
"""


def to_bash(commands: list[Completion]) -> str:
    return BASH.format(
        values="|".join(sorted(frozenset().union(*(command.takes_value for command in commands)))),
        groups="|".join(f'"{command.path}"' for command in commands if command.is_group),
        choices="\n".join(f'        {name}) words="{" ".join(found)}" ;;' for name, found in VALUES.items()),
        folders="|".join(FOLDERS),
        files="|".join(FILES),
        words="\n".join(map(_to_words, commands)),
    )


def to_zsh(commands: list[Completion]) -> str:
    """zsh can run completions of bash."""
    return ZSH + to_bash(commands)


def to_fish(commands: list[Completion]) -> str:
    return "complete -c polycast -f\n" + "".join(f"{line}\n" for command in commands for line in _to_fish(command))


def _to_fish(command: Completion) -> Iterator[str]:
    seen = [f"__fish_seen_subcommand_from {name}" for name in command.path.split()]
    below = f"not __fish_seen_subcommand_from {' '.join(command.commands)}" if command.commands else ""
    condition = "; and ".join(filter(None, [*seen, below]))
    for name, text in command.commands.items():
        yield f"complete -c polycast -n '{condition}' -a {name} -d '{text}'"
    for name, text in command.options.items():
        if name in VALUES:
            value = f" -x -a '{' '.join(VALUES[name])}'"
        elif name in FOLDERS:
            value = " -x -a '(__fish_complete_directories)'"
        else:
            value = " -r -F" if name in FILES else " -x" * (name in command.takes_value)
        yield f"complete -c polycast -n '{condition}' -l {name.removeprefix('--')}{value} -d '{text}'"


SCRIPTS: dict[str, Callable[[list[Completion]], str]] = {"bash": to_bash, "zsh": to_zsh, "fish": to_fish}
