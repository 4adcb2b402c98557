"""`serve --check` prints an equivalent configuration."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.program import polycast
from polycast.server import Loaded, load
from polycast.server.settings import declared


def round_trip(loaded: Loaded, folder: Path) -> Loaded:
    file = folder / "again.toml"
    file.write_text(loaded.to_toml())
    return load(file)


def test_the_defaults_round_trip(tmp_path: Path) -> None:
    assert round_trip(load(), tmp_path).settings == load().settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("check")


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "limits.queue_bytes": st.integers(4096, 2**53),
    "limits.idle_seconds": st.floats(0, 2**53, allow_nan=False),
    "limits.policy": st.sampled_from(["drop", "disconnect"]),
    "simplest.forward": st.booleans(),
    "simplest.discover": st.lists(st.text(st.characters(codec="utf-8"))),
    "log.data": st.text(st.characters(codec="utf-8")),
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_every_value_round_trips(folder: Path, values: dict[str, Any]) -> None:
    loaded = load(flags=list(values.items()))
    assert round_trip(loaded, folder).settings == loaded.settings


def test_listeners_round_trip(tmp_path: Path) -> None:
    addresses = ["tcp://127.0.0.1:0?policy=drop", "ipc:///tmp/x y", "tcp://[::1]:5"]
    flags = [("listen.fanout.client", address) for address in addresses] + [("listen.simplest", "tcp://h:1")]
    loaded = load(flags=flags)
    assert round_trip(loaded, tmp_path).settings == loaded.settings


def test_addresses_to_connect_to_round_trip(tmp_path: Path) -> None:
    flags = [("connect.nanomsg.sub", "tcp://h:1"), ("connect.nanomsg.pub", "ws://[::1]:5/x?prefix=a")]
    loaded = load(flags=flags)
    assert round_trip(loaded, tmp_path).settings == loaded.settings
    assert "[connect]  # flag\n" in loaded.to_toml()


def test_the_command_prints_the_same_and_starts_nothing(tmp_path: Path) -> None:
    flags = (
        "--listen=simplest=tcp://127.0.0.1:0", "--set=limits.connections=5", "--data=/proc/none", "--forward",
        "--connect=nanomsg.sub=tcp://127.0.0.1:4",
        "--peer=127.0.0.1:1", "--peer=127.0.0.1:2", "--discover=org", "--announce=org/me=127.0.0.1:3",
    )  # fmt: skip
    shown = polycast("serve", *flags, "--check")
    assert shown.code == 0
    assert shown.err == ""
    tables = tomllib.loads(shown.out.decode())
    assert tables["listen"] == {"simplest": ["tcp://127.0.0.1:0"]}
    assert tables["connect"] == {"nanomsg.sub": ["tcp://127.0.0.1:4"]}
    assert tables["limits"]["connections"] == 5
    assert tables["simplest"]["peers"] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert tables["simplest"]["announce"] == "org/me=127.0.0.1:3"
    file = tmp_path / "a.toml"
    file.write_bytes(shown.out)
    again = polycast("serve", f"--config={file}", "--check")
    assert tomllib.loads(again.out.decode()) == tables


def test_every_setting_is_shown() -> None:
    tables = tomllib.loads(load().to_toml())
    shown = {f"{table}.{key}" for table, entries in tables.items() if table != "listen" for key in entries}
    assert shown == set(declared())


def test_the_source_of_each_value_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[limits]\nconnections = 5\n")
    text = load(file, {"POLYCAST_LIMITS_TOPICS": "50"}, [("limits.queue_bytes", "5000")]).to_toml()
    assert f"connections = 5  # {file}\n" in text
    assert "topics = 50  # POLYCAST_LIMITS_TOPICS\n" in text
    assert "queue_bytes = 5000  # flag\n" in text
    assert text.count("#") == 3


def test_check_finds_what_serve_would_refuse() -> None:
    assert polycast("serve", "--no-log", "--announce=nobody", "--check").code == 2
