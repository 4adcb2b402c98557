"""`serve --check` prints an equivalent configuration."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.broker import Broker
from kit.certificates import Authority
from kit.program import Finished, polycast, polycast_here
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
        "--listen=simplest=tcp://127.0.0.1:0", "--set=limits.connections=5", f"--data={tmp_path}/none",
        "--connect=nanomsg.sub=tcp://127.0.0.1:4", "--forward",
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
    assert [file.name] == [path.name for path in tmp_path.iterdir()]


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


# -- what a start would refuse ---------------------------------------------------------------------------


def check(*flags: str) -> Finished:
    checked = polycast_here("serve", *flags, "--listen=simplest=tcp://127.0.0.1:0")
    assert checked.code == 0 or (checked.out == b"" and "\nhint: " in checked.err), checked.err
    return checked


def test_check_finds_wrong_settings() -> None:
    assert polycast_here("serve", "--no-log", "--announce=nobody", "--check").code == 2
    assert polycast_here("serve", "--no-log", "--set=access.origins=example.com", "--check").code == 2
    assert polycast_here("serve", "--no-log", "--peer=nowhere", "--check").code == 2
    assert polycast_here("serve", "--no-log", "--connect=nanomsg.sub=tcp://h", "--check").code == 2


def test_check_reads_the_files_of_tls(tmp_path: Path) -> None:
    certificate, other = (Authority(tmp_path, name).issue(f"{name}-signed.pem") for name in "ab")
    text = tmp_path / "text"
    text.write_text("no certificate\n")
    key = tmp_path / "other.key"
    key.write_text(other.read_text().partition("-----BEGIN CERTIFICATE")[0])
    expired = Authority(tmp_path).issue("expired.pem", expired=True)
    named = f"--set=tls.certificate={certificate}"
    wrong = {
        "cannot read tls.certificate": [f"--set=tls.certificate={tmp_path}/none"],
        "is not a PEM certificate": [f"--set=tls.certificate={text}"],
        "does not match the key": [named, f"--set=tls.key={key}"],
        "has expired": [f"--set=tls.certificate={expired}"],
        f"tls.client_ca {text}: has no PEM": [named, f"--set=tls.client_ca={text}"],
        "cannot read tls.ca": ["--peer=tls://127.0.0.1:1", "--set=tls.ca=none.pem"],
        "tls.dial_certificate": ["--peer=tls://127.0.0.1:1", f"--set=tls.dial_certificate={text}"],
    }
    for words, flags in wrong.items():
        failed = check("--no-log", "--check", *flags)
        assert failed.code == 1 and words in failed.err, failed.err
    assert check("--no-log", "--check", named).code == 0


def test_check_reads_the_tokens_and_the_data_folder(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir(mode=0o700)
    state = log / "state.json"
    state.write_text('{"version": 99}')
    tokens = tmp_path / "tokens.json"
    before = sorted(tmp_path.rglob("*"))
    newer = check("--check", f"--data={tmp_path}")
    assert newer.code == 1 and "was written by a newer version of Polycast: 99" in newer.err
    assert sorted(tmp_path.rglob("*")) == before
    state.unlink()
    tokens.write_text("{")
    assert "tokens.json" in check("--check", f"--data={tmp_path}").err
    tokens.unlink()
    for place in (state, state / "below"):
        state.write_text("")
        assert "is not a folder" in check("--check", f"--data={place}").err
        state.unlink()
    assert check("--check", f"--data={tmp_path}").code == 0


def test_check_finds_a_folder_that_this_account_may_not_write_to(tmp_path: Path) -> None:
    with mock.patch("os.access", return_value=False):  # root may write everywhere
        failed = check("--check", f"--data={tmp_path}/data")
    assert failed.code == 1 and f"may not write to {tmp_path}" in failed.err


def test_a_broker_that_runs_is_not_disturbed(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=("simplest",)) as broker:
        taken = f"--listen=fanout.client=tcp://127.0.0.1:{broker.ports['simplest']}"
        assert check("--check", taken, f"--data={tmp_path}").code == 0
        busy = check("--check-ports", taken, "--no-log")
        assert busy.code == 1 and "address already in use" in busy.err
        used = check("--check-ports", f"--data={tmp_path}")
        assert used.code == 1 and f"a broker runs with the data folder {tmp_path}" in used.err
    assert check("--check-ports", f"--data={tmp_path}").code == 0


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("nats://user:se%40cret@one:4222", "nats://user:***@one:4222"),
        ("nats://token@one:4222", "nats://***@one:4222"),
        ("tls://one:4222", "tls://one:4222"),
    ],
)
def test_the_configuration_is_shown_without_passwords(server: str, shown: str) -> None:
    loaded = load(flags=[("cluster.servers", [server, "nats://two:4222"]), ("cluster.node", "a")])
    assert tomllib.loads(loaded.to_toml())["cluster"]["servers"] == [shown, "nats://two:4222"]
