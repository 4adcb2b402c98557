"""The files in deploy/, as far as they can be tested without systemd and Docker."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kit.broker import Broker
from kit.certificates import Authority
from kit.default_ports import DEFAULT_PORTS
from kit.pages import BIN, ROOT
from kit.program import polycast_here

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "polycast.service"
PROGRAM = "/opt/polycast/bin/polycast"


def read_unit(text: str) -> dict[str, list[str]]:
    """All values of each key."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def check(arguments: list[str], warns: str = "") -> dict[str, dict[str, Any]]:
    """The configuration that a broker with this command line would have."""
    checked = polycast_here(*arguments, "--check")
    assert checked.code == 0 and (warns in checked.err if warns else checked.err == "")
    return tomllib.loads(checked.out.decode())


# -- systemd ---------------------------------------------------------------------------------------------


def test_the_command_of_the_unit_is_accepted(tmp_path: Path) -> None:
    [command] = read_unit(UNIT.read_text())["ExecStart"]
    shutil.copy(DEPLOY / "polycast.toml", tmp_path)
    here = command.replace("${CONFIGURATION_DIRECTORY}", str(tmp_path)).replace(
        "${STATE_DIRECTORY}", f"{tmp_path}/state"
    )
    program, *arguments = shlex.split(here)
    assert program == PROGRAM
    settings = check(arguments)
    assert settings["log"]["data"] == f"{tmp_path}/state"
    assert settings["stderr"]["format"] == "json"


def test_the_unit_is_hardened_and_restarts() -> None:
    unit = read_unit(UNIT.read_text())
    expected = {
        "ExecReload": "/bin/kill -HUP $MAINPID",
        "Restart": "on-failure",
        "User": "polycast",
        "StateDirectory": "polycast",
        "StateDirectoryMode": "0700",
        "UMask": "0077",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
    }
    assert {key: unit[key] for key in expected} == {key: [value] for key, value in expected.items()}
    assert int(unit["LimitNOFILE"][0]) > 65_536, "limits.connections is that many"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    here = tmp_path / "polycast.service"
    here.write_text(UNIT.read_text().replace(PROGRAM, str(BIN / "polycast")))
    verified = subprocess.run([analyze, "verify", here], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    here.write_text(here.read_text().replace("Restart=on-failure", "Restart=perhaps"))
    verified = subprocess.run([analyze, "verify", here], capture_output=True, text=True, check=False)
    assert "perhaps" in verified.stderr, "it would have reported it"


@pytest.mark.parametrize("name", ["polycast.toml", "container.toml"])
def test_commented_settings_are_accepted_too(name: str, tmp_path: Path) -> None:
    """Whoever takes the marks away has settings that work, with the files of their certificate."""
    text = (DEPLOY / name).read_text()
    lines = [re.sub(r"^# (?=\[|\w[\w.]* = )", "", line) for line in text.splitlines()]
    file = tmp_path / name
    made = Authority(tmp_path).issue("broker.pem")
    file.write_text(re.sub(r'"/etc/polycast/tls/\w+\.pem"', f'"{made}"', "\n".join(lines)))
    assert tomllib.loads(file.read_text())["access"]
    check(["serve", "--config", str(file)], warns="without TLS" if name == "container.toml" else "")


# -- Docker ----------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word and word != "#"]


def output(word: str) -> list[str]:
    return [rest for each, rest in instructions() if each == word]


def test_the_command_of_the_container_is_accepted() -> None:
    [entry], [command] = output("ENTRYPOINT"), output("CMD")
    assert json.loads(entry) == ["polycast"]
    inside = "/etc/polycast/polycast.toml"
    assert f"deploy/container.toml {inside}" in output("COPY")
    arguments = [str(DEPLOY / "container.toml") if word == inside else word for word in json.loads(command)]
    settings = check(arguments, warns="open to the network, but no remote peer has rights: simplest, ")
    assert [settings["log"]["data"]] == output("VOLUME")
    ports = [int(addresses[0].rpartition(":")[2]) for addresses in settings["listen"].values()]
    assert sorted(ports) == sorted(map(int, output("EXPOSE")[0].split())) == sorted(DEFAULT_PORTS)


def test_the_container_has_a_health_check() -> None:
    [check_] = output("HEALTHCHECK")
    words = json.loads(check_[check_.index("[") :])
    assert words[:2] == ["python", "-c"] and "127.0.0.1:8080/healthz" in words[2]
    with Broker(listen=("http",)) as broker:
        code = words[2].replace("8080", str(broker.ports["http"]))
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == 1, "nobody is there any more"


def test_the_container_runs_as_an_unprivileged_user() -> None:
    words = [word for word, _ in instructions()]
    [user] = output("USER")
    assert user.isdigit() and int(user) > 0
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert not re.search(r"https?://(?!127\.0\.0\.1)|index-url", (DEPLOY / "Dockerfile").read_text())


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    included = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert ignored[0] == "*" and "src" in included
    assert all((ROOT / path).exists() for path in included)
    assert {"pyproject.toml", "setup.py", "requirements.lock", "deploy/container.toml"} <= set(included)
