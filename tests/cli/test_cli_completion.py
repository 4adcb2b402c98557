"""`polycast completion`: the scripts in the shells that they are for."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from kit.broker import clean_environment
from kit.program import need, polycast_here
from polycast.cli import flags
from polycast.cli.completion_scripts import VALUES
from polycast.dialects import registry

LINES = {
    "polycast ": {"serve", "pub", "log", "completion"},
    "polycast pu": {"pub"},
    "polycast pub --di": {"--dialect"},
    "polycast pub --dialect ": {"simplest", "hermod", "fanout", "nanomsg", "ubre"},
    "polycast sub chat --fr": {"--from"},
    "polycast sub --at tcp://x:1 --js": {"--json"},
    "polycast token ": {"new", "list", "revoke"},
    "polycast log cat --to": {"--topic"},
    "polycast completion ": {"bash", "zsh", "fish"},
    "polycast serve --data da": {"data/"},
    "polycast serve --config da": {"data/"},
    "polycast pub --at po": set(),
}
"""What is typed, and what is offered. zsh itself leaves out what does not match."""


def complete(shell: str, script: str, folder: Path) -> str:
    env = {**clean_environment(), "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    command = [need(shell, shell), *options, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def to_bash(line: str) -> str:
    words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    quoted = " ".join(map(shlex.quote, words))
    return f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _polycast; echo "${{COMPREPLY[*]}}"'


TO_SCRIPT = {
    "bash": to_bash,
    "zsh": to_bash,
    "fish": lambda line: f"echo (complete -C {shlex.quote(line)} | cut -f 1)",
}


@pytest.mark.parametrize("shell", TO_SCRIPT)
def test_the_shell_completes(shell: str, tmp_path: Path) -> None:
    printed = polycast_here("completion", shell)
    assert (printed.code, printed.err) == (0, "")
    (tmp_path / "data").mkdir()
    (tmp_path / "script").write_bytes(printed.out)
    as_bash = "setopt ksharrays shwordsplit; " if shell == "zsh" else ""
    script = f"source ./script; {as_bash}" + "; ".join(map(TO_SCRIPT[shell], LINES))
    completions = complete(shell, script, tmp_path).splitlines()
    for (line, expected), offered in zip(LINES.items(), completions, strict=True):
        found = {word.rstrip("/") for word in offered.split() if word.startswith(line.rpartition(" ")[2])}
        wanted = {word.rstrip("/") for word in expected}
        assert wanted <= found if line == "polycast " else wanted == found, line


def test_zsh_has_a_completion_for_the_program(tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(polycast_here("completion", "zsh").out)
    assert complete("zsh", "source ./script; echo $_comps[polycast]", tmp_path) != "\n"


def test_another_shell_is_wrong_usage() -> None:
    failed = polycast_here("completion", "tcsh")
    assert (failed.code, failed.out) == (2, b"")
    assert "hint: there is one for bash, zsh, fish" in failed.err


def test_the_help_names_the_built_in_dialects() -> None:
    names = {dialect.name for dialect in registry.BUILT_IN}
    assert names == set(flags.BUILT_IN) <= set(VALUES["--dialect"])
    assert all(name in flags.DIALECTS for name in names)
