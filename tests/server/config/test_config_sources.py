"""Precedence of sources: defaults, file, environment, flags."""

from __future__ import annotations

import json
from dataclasses import Field
from pathlib import Path
from typing import Any

import pytest

from kit.broker import Broker
from kit.program import polycast
from polycast.errors import UsageError
from polycast.server import Loaded, load
from polycast.server.settings import TABLES, declared

KEYS = sorted(declared())
DEPENDENT = ("tls.client_certificates", "cluster.servers", "cluster.manage", "cluster.node")
ALONE = [key for key in KEYS if key not in DEPENDENT]
"""Settings that are valid on their own; the excluded ones need tls.client_ca, or each other."""
OTHERS: dict[str, Any] = {
    "separator": ";",
    "rules": ["loopback may admin", "anonymous may publish a"],
    "networks": ["lan=192.0.2.0/24"],
    "origins": ["https://app.example"],
    "discover_networks": ["192.0.2.0/24"],
    "keep_free": "3GiB",
    "retain_bytes": 2**30,
    "node": "n1",
    "stream": "OTHER",
    "name": "other",
    "listen": "192.0.2.1:1",
    "route": "192.0.2.1:2",
}
"""Valid texts for settings that do not accept every text."""


def other_than_default(field: Field[Any]) -> Any:
    """A valid value that is not the default."""
    if field.name in OTHERS:
        return OTHERS[field.name]
    if field.metadata["choices"]:
        return next(choice for choice in field.metadata["choices"] if choice != field.default)
    if isinstance(field.default, bool):
        return not field.default
    if isinstance(field.default, int | float):
        return field.default + type(field.default)(7)
    return "org/name=127.0.0.1:1" if isinstance(field.default, str) else ["192.0.2.1:1", "192.0.2.2:2"]


def as_text(value: Any) -> str:
    return (
        ",".join(value)
        if isinstance(value, list)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def variable(key: str) -> str:
    return "POLYCAST_" + key.upper().replace(".", "_")


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def value_of(loaded: Loaded, key: str) -> Any:
    table, name = key.split(".")
    return getattr(getattr(loaded.settings, table), name)


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_has_a_meaning_and_a_default_that_is_legal(key: str) -> None:
    field = declared()[key]
    assert len(field.metadata["meaning"].split()) >= 3
    default = value_of(load(), key)
    again = load(flags=[(key, as_text(default))]) if default != "" else load(flags=[(key, "")])
    assert value_of(again, key) == default


@pytest.mark.parametrize("key", ALONE)
def test_a_setting_can_be_set_by_file(key: str, tmp_path: Path) -> None:
    value = other_than_default(declared()[key])
    table, name = key.split(".")
    file = write(tmp_path / "a.toml", f"[{table}]\n{name} = {json.dumps(value)}\n")
    loaded = load(file)
    assert value_of(loaded, key) == value
    assert type(value_of(loaded, key)) is type(value_of(load(), key))
    assert loaded.sources == {key: str(file)}


@pytest.mark.parametrize("key", ALONE)
def test_a_setting_can_be_set_by_the_environment(key: str) -> None:
    value = other_than_default(declared()[key])
    loaded = load(environment={variable(key): as_text(value), "PATH": "/bin", "POLYCASTLE": "x"})
    assert value_of(loaded, key) == value
    assert type(value_of(loaded, key)) is type(value_of(load(), key))
    assert loaded.sources == {key: variable(key)}


@pytest.mark.parametrize("key", ALONE)
def test_a_setting_can_be_set_by_a_flag(key: str) -> None:
    value = other_than_default(declared()[key])
    loaded = load(flags=[(key, as_text(value))])
    assert value_of(loaded, key) == value
    assert type(value_of(loaded, key)) is type(value_of(load(), key))


@pytest.mark.parametrize("key", ALONE)
def test_only_that_setting_changes(key: str) -> None:
    loaded = load(flags=[(key, as_text(other_than_default(declared()[key])))])
    for other in KEYS:
        assert other == key or value_of(loaded, other) == value_of(load(), other)


def test_every_table_has_a_setting() -> None:
    assert {key.split(".")[0] for key in KEYS} == set(TABLES)


def test_the_last_source_wins(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", "[limits]\nqueue_bytes = 5001\nconnections = 11\nsubscriptions = 21\n")
    environment = {"POLYCAST_LIMITS_CONNECTIONS": "12", "POLYCAST_LIMITS_SUBSCRIPTIONS": "22"}
    limits = load(file, environment, [("limits.subscriptions", "23")]).settings.limits
    assert (limits.queue_bytes, limits.connections, limits.subscriptions) == (5001, 12, 23)


def test_the_last_of_two_flags_wins() -> None:
    flags = [("limits.connections", "1"), ("limits.connections", "2")]
    assert load(flags=flags).settings.limits.connections == 2


def test_the_data_folder_has_a_short_name_in_the_environment() -> None:
    assert load(environment={"POLYCAST_DATA": "/srv"}).settings.log.data == "/srv"


@pytest.mark.parametrize("text", ["true", "1", "yes", "on", "TRUE", "Yes"])
def test_texts_for_true(text: str) -> None:
    assert load(environment={"POLYCAST_SIMPLEST_FORWARD": text}).settings.simplest.forward


@pytest.mark.parametrize("text", ["false", "0", "no", "off", "False"])
def test_texts_for_false(text: str) -> None:
    assert not load(flags=[("log.enabled", text)]).settings.log.enabled


def test_lists_are_split_at_commas_in_texts() -> None:
    assert load(flags=[("simplest.discover", " a, b ,,c ")]).settings.simplest.discover == ["a", "b", "c"]
    assert load(flags=[("simplest.discover", "")]).settings.simplest.discover == []


# -- listeners -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '[listen]\nsimplest = "A"\n"fanout.client" = ["B", "C"]\n',
        '[listen]\nsimplest = "A"\nfanout.client = ["B", "C"]\n',
        '[listen]\nsimplest = ["A"]\n[listen.fanout]\nclient = ["B", "C"]\n',
        'listen = { simplest = "A", "fanout.client" = ["B", "C"] }\n',
    ],
)
def test_listeners_in_a_file(text: str, tmp_path: Path) -> None:
    places = {"A": "tcp://127.0.0.1:1", "B": "tcp://127.0.0.1:2", "C": "ipc:///tmp/x?policy=drop"}
    for name, address in places.items():
        text = text.replace(f'"{name}"', f'"{address}"')
    loaded = load(write(tmp_path / "a.toml", text))
    assert loaded.settings.listen == {"simplest": [places["A"]], "fanout.client": [places["B"], places["C"]]}


def test_a_listener_and_its_namesake_in_a_file(tmp_path: Path) -> None:
    text = '[listen]\nsimplest = "tcp://127.0.0.1:1"\n"simplest.peer" = "tcp://127.0.0.1:2"\n'
    assert list(load(write(tmp_path / "a.toml", text)).settings.listen) == ["simplest", "simplest.peer"]


def test_listeners_in_the_environment() -> None:
    environment = {
        "POLYCAST_LISTEN_SIMPLEST": "tcp://127.0.0.1:1",
        "POLYCAST_LISTEN_SIMPLEST_PEER": "tcp://127.0.0.1:2",
        "POLYCAST_LISTEN_FANOUT_CLIENT": "tcp://127.0.0.1:3",
    }
    assert load(environment=environment).settings.listen == {
        "simplest": ["tcp://127.0.0.1:1"],
        "simplest.peer": ["tcp://127.0.0.1:2"],
        "fanout.client": ["tcp://127.0.0.1:3"],
    }


def test_listeners_of_a_later_source_replace_those_of_an_earlier(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", '[listen]\nsimplest = "tcp://127.0.0.1:1"\n')
    environment = {"POLYCAST_LISTEN_FANOUT_CLIENT": "tcp://127.0.0.1:2"}
    flags = [("listen.simplest", "tcp://127.0.0.1:3"), ("listen.simplest", "tcp://127.0.0.1:4")]
    assert load(file).settings.listen == {"simplest": ["tcp://127.0.0.1:1"]}
    assert load(file, environment).settings.listen == {"fanout.client": ["tcp://127.0.0.1:2"]}
    assert load(file, environment, flags).settings.listen == {
        "simplest": ["tcp://127.0.0.1:3", "tcp://127.0.0.1:4"]
    }


# -- addresses to connect to -----------------------------------------------------------------------------


def test_addresses_to_connect_to_in_a_file(tmp_path: Path) -> None:
    places = {"nanomsg.sub": ["tcp://h:1", "ws://h:2/x"], "nanomsg.pub": ["ipc:///tmp/x?prefix=a"]}
    text = '[connect]\nnanomsg.sub = ["tcp://h:1", "ws://h:2/x"]\n"nanomsg.pub" = "ipc:///tmp/x?prefix=a"\n'
    with pytest.raises(UsageError, match="no TOML"):
        load(write(tmp_path / "a.toml", text.replace('"nanomsg.pub"', "nanomsg")))
    loaded = load(write(tmp_path / "b.toml", text))
    assert loaded.settings.connect == places
    assert loaded.settings.listen == load().settings.listen


def test_addresses_of_a_later_source_replace_those_of_an_earlier(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", '[connect]\n"nanomsg.sub" = "tcp://h:1"\n')
    environment = {"POLYCAST_CONNECT_NANOMSG_PUB": "tcp://h:2"}
    assert load(file, environment).settings.connect == {"nanomsg.pub": ["tcp://h:2"]}
    flags = [("connect.nanomsg.sub", "tcp://h:3"), ("connect.nanomsg.sub", "tcp://h:4")]
    loaded = load(file, environment, flags)
    assert loaded.settings.connect == {"nanomsg.sub": ["tcp://h:3", "tcp://h:4"]}
    assert loaded.sources == {"connect": "flag"}


def test_which_places_are_dialled_over_tls() -> None:
    plain = [
        ("connect.nanomsg.sub", "tcp://h:1"),
        ("simplest.peers", "h:1"),
        ("listen.simplest.peer", "tcp://h:1"),
    ]
    assert not load(flags=plain).settings.dials_securely
    for key, place in (
        ("connect.nanomsg.sub", "tls+tcp://h:1"), ("connect.nanomsg.pub", "wss://h:1/x"), ("simplest.peers", "tls://h:1")
    ):  # fmt: skip
        assert load(flags=[*plain, (key, place)]).settings.dials_securely


def test_no_addresses_to_connect_to_by_default() -> None:
    assert load().settings.connect == {}


def test_the_defaults_are_those_of_the_dialects() -> None:
    assert load().settings.listen == {
        "simplest": ["tcp://127.0.0.1:9014"],
        "fanout.client": ["tcp://127.0.0.1:8880"],
        "fanout.controller": ["tcp://127.0.0.1:8890"],
        "hermod.pub": ["tcp://127.0.0.1:7878"],
        "hermod.sub": ["tcp://127.0.0.1:8787"],
        "nanomsg.pub": ["tcp://127.0.0.1:5550"],
        "nanomsg.sub": ["tcp://127.0.0.1:5551"],
        "http": ["tcp://127.0.0.1:8080"],
    }


def test_a_broker_that_runs_on_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(
        tmp_path / "a.toml",
        '[listen]\n"fanout.client" = "tcp://127.0.0.1:0"\n[limits]\nconnections = 2\nsubscriptions = 1\n',
    )
    with Broker(f"--config={file}", "--set=limits.subscriptions=2", listen=()) as broker:
        with broker.connect("fanout.client") as client:
            client.expect(b"debug!connected...\n")
            client.send(b"subscribe a\ntime\n")
            client.read_until(b"\n")
        assert [name for name, _ in broker.addresses] == ["fanout.client"]


def test_the_config_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", "[limits]\nconnections = 77\n")
    shown = polycast("serve", "--check", env={"POLYCAST_CONFIG": str(file), "POLYCAST_LIMITS_SUBSCRIPTIONS": "78"})
    assert f"connections = 77  # {file}" in shown.out.decode()
    assert "subscriptions = 78  # POLYCAST_LIMITS_SUBSCRIPTIONS" in shown.out.decode()


def test_sizes_and_times_take_units_in_every_source(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", '[log]\nretain_bytes = "10GB"\nretain_seconds = "7d"\nsync_seconds = 2\n')
    environment = {"POLYCAST_LIMITS_IDLE_SECONDS": "10m", "POLYCAST_LIMITS_QUEUE_BYTES": "1_048_576"}
    flags = [
        ("limits.payload_bytes", "512 KiB"),
        ("limits.stall_seconds", "250ms"),
        ("log.segment_seconds", "1.5h"),
    ]
    found = load(file, environment, flags).settings
    assert (found.log.retain_bytes, found.log.retain_seconds, found.log.sync_seconds) == (10 * 2**30, 604_800, 2)
    assert (found.limits.idle_seconds, found.limits.queue_bytes, found.limits.payload_bytes) == (600, 2**20, 2**19)
    assert (found.limits.stall_seconds, found.log.segment_seconds) == (0.25, 5400)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('retain_bytes = "10XB"', "log.retain_bytes = '10XB': expected a number of bytes, or a size such as"),
        (
            'retain_seconds = "7 days"',
            "log.retain_seconds = '7 days': expected a number of seconds, or",
        ),
        ("retain_bytes = 1.5", "log.retain_bytes = 1.5: expected a whole number"),
        ('batch_ids = "10GB"', "log.batch_ids = '10GB': expected a whole number"),
    ],
)
def test_a_wrong_unit_names_the_file_and_the_key(tmp_path: Path, line: str, expected: str) -> None:
    file = write(tmp_path / "a.toml", f"[log]\n{line}\n")
    with pytest.raises(UsageError) as raised:
        load(file)
    assert str(raised.value).startswith(f"{file}: {expected}")
