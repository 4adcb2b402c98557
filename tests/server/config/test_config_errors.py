"""Unknown names and wrong types: the error names the source, the expected type and the nearest known name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.program import polycast
from polycast.errors import UsageError
from polycast.server import load
from polycast.server.settings import declared


def error_of(text: str, folder: Path) -> UsageError:
    file = folder / "a.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(file)
    assert str(file) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "word", "hint"),
    [
        ("[limit]\nx = 1\n", "[limit]", "did you mean limits?"),
        ("[zzz]\n", "[zzz]", "known are "),
        ("limits = 5\n", "limits", ""),
        ("[limits]\nqueue_byte = 5000\n", "limits.queue_byte", "did you mean limits.queue_bytes?"),
        ("[limits]\nzzz = 1\n", "limits.zzz", ""),
        ("[limits.queue_bytes]\nx = 1\n", "limits.queue_bytes", ""),
        ('[listen]\nsimples = "tcp://127.0.0.1:0"\n', "simples", "did you mean simplest?"),
        ('[listen]\nfanout.clients = "tcp://127.0.0.1:0"\n', "fanout.clients", "did you mean fanout.client?"),
        ("[listen]\nsimplest = 9014\n", "9014", ""),
        ('[listen]\nsimplest = ["tcp://127.0.0.1:0", 1]\n', "listen.simplest", ""),
        ('[listen]\nsimplest = "9014"\n', "9014", "write tcp://HOST:PORT"),
        ('[listen]\nsimplest = "tcp://127.0.0.1:0?x=1"\n', "x", ""),
        ('[listen]\nnanomsg.sub = "tcp://127.0.0.1:0?prefix=a"\n', "prefix", "known are policy"),
        ('[listen]\nnanomsg.pub = "tcp://127.0.0.1:0?prefi=a"\n', "prefi", "did you mean prefix?"),
        ('[listen]\nnanomsg.pub = "ws://127.0.0.1:0/"\n', "come to the http listener", "--listen http="),
        ('[connect]\nnanomsg.su = "tcp://127.0.0.1:1"\n', "nanomsg.su", "did you mean nanomsg.sub?"),
        ('[connect]\nsimplest = "tcp://127.0.0.1:1"\n', "simplest does not connect", "--peer HOST:PORT"),
        ('[connect]\nfanout.client = "tcp://127.0.0.1:1"\n', "fanout.client does not connect", "nanomsg.pub and"),
        ('[connect]\nnanomsg.sub = "tcp://127.0.0.1:0"\n', "port 0", "PORT from 1 to 65535"),
        ('[connect]\nnanomsg.sub = "127.0.0.1:1"\n', "127.0.0.1:1", "write tcp://HOST:PORT"),
        ('[connect]\nnanomsg.sub = "ws://127.0.0.1:1/a b"\n', "no URL has", "%20"),
        ("[connect]\nnanomsg.sub = 5551\n", "5551", ""),
        ("[simplest]\ndiscover_networks = ['10.0.0.1/8']\n", "10.0.0.1/8 has host bits", "such as 10.0.0.0/8"),
        ("[simplest]\ndiscover_networks = ['host']\n", "discover_networks: 'host'", "such as 10.0.0.0/8"),
        ("[simplest]\ndiscover = ['a']\ndiscover_tls = true\n", "discover_tls needs tls.ca", "authorities"),
        ('[connect]\nnanomsg.sub = "wss://127.0.0.1:1/a b"\n', "no URL has", "%20"),
        ("not toml", "no TOML", ""),
        ("[limits]\nqueue_bytes = 1\nqueue_bytes = 2\n", "no TOML", ""),
    ],
)  # fmt: skip
def test_errors_in_a_file(text: str, word: str, hint: str, tmp_path: Path) -> None:
    error = error_of(text, tmp_path)
    assert word in str(error)
    assert hint in error.hint


WRONG: list[tuple[str, Any, str]] = [
    ("limits.queue_bytes", "'lots'", "a number of bytes"),
    ("limits.queue_bytes", "5000.0", "a whole number"),
    ("limits.queue_bytes", "true", "a whole number"),
    ("limits.queue_bytes", "[5000]", "a whole number"),
    ("limits.queue_bytes", "1979-05-27", "a whole number"),
    ("limits.queue_bytes", "-5000", "expected 4,096 to"),
    ("limits.queue_bytes", "4095", "expected 4,096 to"),
    ("limits.idle_seconds", "'soon'", "a number"),
    ("limits.idle_seconds", "true", "a number"),
    ("limits.idle_seconds", "-0.1", "expected 0 to"),
    ("limits.idle_seconds", "nan", "expected 0 to"),
    ("limits.policy", "1", "text"),
    ("limits.policy", "'keep'", "disconnect or drop"),
    ("log.enabled", "'perhaps'", "true or false"),
    ("log.enabled", "1", "true or false"),
    ("log.enabled", "'no'", "true or false"),
    ("limits.topics", "'5'", "a whole number"),
    ("limits.idle_seconds", "'2'", "a number"),
    ("limits.payload_bytes", "9223372036854775808", "expected 1 to"),
    ("simplest.peers", "'127.0.0.1:1'", "a list of texts"),
    ("log.data", "1", "text"),
    ("simplest.peers", "1", "a list of texts"),
    ("simplest.peers", "[1, 2]", "a list of texts"),
    ("simplest.peers", "['nowhere']", "nowhere"),
    ("simplest.peers", "['ipc:///x']", "HOST:PORT"),
    ("simplest.peers", "['wss://h:1/x']", "HOST:PORT"),
    ("nanomsg.separator", "''", "expected one byte, found 0"),
    ("nanomsg.separator", "'ab'", "expected one byte, found 2"),
    ("nanomsg.separator", "'é'", "expected one byte, found 2"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_wrong_values_in_a_file(key: str, value: str, expected: str, tmp_path: Path) -> None:
    table, name = key.split(".")
    file = tmp_path / "a.toml"
    file.write_text(f"[{table}]\n{name} = {value}\n")
    with pytest.raises(UsageError) as caught:
        load(file)
    assert expected in str(caught.value)
    if "peers" not in key or expected == "a list of texts":
        assert f"{file}: {key} = " in str(caught.value)


@pytest.mark.parametrize("key", [key for key, field in declared().items() if field.metadata["low"] is not None])
def test_every_number_is_checked_against_its_bounds(key: str) -> None:
    low = declared()[key].metadata["low"]
    load(flags=[(key, str(low))])
    with pytest.raises(UsageError, match=f"expected {low:,} to"):
        load(flags=[(key, str(low - 1))])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("POLYCAST_LIMITS_QUEUE_BYTE", "did you mean POLYCAST_LIMITS_QUEUE_BYTES?"),
        ("POLYCAST_LISTEN_SIMPLES", "did you mean POLYCAST_LISTEN_SIMPLEST?"),
        ("POLYCAST_CONNECT_NANOMSG_SU", "did you mean POLYCAST_CONNECT_NANOMSG_SUB?"),
        ("POLYCAST_SIMPLEST_FORWARDS", "did you mean POLYCAST_SIMPLEST_FORWARD?"),
    ],
)
def test_errors_in_the_environment(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        load(environment={name: "1"})
    assert caught.value.hint == hint


def test_a_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(UsageError, match=r"POLYCAST_LIMITS_CONNECTIONS: limits\.connections = 'x'"):
        load(environment={"POLYCAST_LIMITS_CONNECTIONS": "x"})


def test_variables_of_others_are_none_of_our_business() -> None:
    load(environment={"POLYCAST_AT": "x", "POLYCASTLE_LIMITS": "x", "LIMITS_X": "1", "POLYCAST_FUTURE": "1"})


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[limits]\nconnections = 'x\n", b"[limits]\nconnection = 1\n"])
def test_the_command_prints_one_line_and_exits_with_2(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(content)
    failed = polycast("serve", f"--config={file}")
    assert failed.code == 2
    assert failed.out == b""
    assert str(file) in failed.err.splitlines()[0]
    assert len(failed.err.splitlines()) <= 2


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    failed = polycast("serve", f"--config={tmp_path}")
    assert failed.code == 2
    assert str(tmp_path) in failed.err
