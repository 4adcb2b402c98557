"""SIGHUP reloads the configuration file, unless it is invalid."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from access.gate import gated, write_config
from kit.broker import Broker, clean_environment
from kit.hermod import OK, message
from kit.wire import GUARD_SECONDS, wait_for


def reload(broker: Broker, expected: str) -> None:
    before = broker.log().count(expected)
    broker.process.send_signal(signal.SIGHUP)
    wait_for(lambda: broker.log().count(expected) > before, expected)


def test_rules_are_reread(tmp_path: Path) -> None:
    started = gated(tmp_path, "guest may publish a", listen=("hermod.pub",))
    with started as broker, broker.connect("hermod.pub") as peer:
        peer.send(message("a", b"") + message("b", b""))
        peer.expect(OK)
        assert b'"code": 403' in peer.read_until(b"\n")
        write_config(tmp_path, "guest may publish b")
        reload(broker, "reloaded")
        peer.send(message("b", b"") + message("a", b""))
        peer.expect(OK)
        assert b'"code": 403' in peer.read_until(b"\n")


def test_a_connection_that_loses_a_right_it_uses_is_closed(tmp_path: Path) -> None:
    rules = ("guest may subscribe a.>", "guest may publish c")
    started = gated(tmp_path, *rules, "guest may subscribe b.>", listen=("fanout.client",))
    with started as broker, broker.connect("fanout.client") as one, broker.connect("fanout.client") as two:
        for peer, channel in ((one, b"a.x"), (two, b"b.x")):
            peer.send(b"subscribe %b\ntime\n" % channel)
            peer.read_until(b"\n")
            peer.read_until(b"\n")
        write_config(tmp_path, "loopback may everything", *rules)
        reload(broker, "reloaded")
        assert two.expect_closed() == b""
        one.send(b"time\n")
        assert one.read_until(b"\n").strip().isdigit()
        write_config(tmp_path, "loopback may everything")
        reload(broker, "reloaded")
        assert one.expect_closed() == b""


BROKEN = {
    "no TOML": "[access",
    "no rule": '[access]\nrules = ["guest may fly"]\n',
    "an unknown key": "[access]\nroles = []\n",
    "a certificate that is not there": '[tls]\ncertificate = "/nowhere.pem"\n',
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_file_that_cannot_be_used_changes_nothing(problem: str, tmp_path: Path) -> None:
    with gated(tmp_path, "guest may publish a", listen=("hermod.pub",)) as broker:
        (tmp_path / "polycast.toml").write_text(BROKEN[problem])
        reload(broker, "ERROR not reloaded, all stays as it was: ")
        with broker.connect("hermod.pub") as peer:
            peer.send(message("a", b"") + message("b", b""))
            peer.expect(OK)
            assert b'"code": 403' in peer.read_until(b"\n")


def test_limits_and_rates_change_and_other_changes_are_logged(tmp_path: Path) -> None:
    with gated(tmp_path, "guest may everything", listen=("simplest",)) as broker:
        limits = "[limits]\nsubscriptions = 1\npayload_bytes = 10"
        more = f"connection_messages = 1.0\n{limits}\n[hermod]\nrequire_checksum = true"
        write_config(tmp_path, "loopback may everything", "guest may everything", more=more)
        reload(broker, "these change with the next start: limits.payload_bytes, hermod.require_checksum")
        with broker.connect("simplest") as peer:
            peer.send(b"sub a\nsub b\n")
            assert peer.expect_closed() == b""
        assert "limit of 1; raise limits.subscriptions" in broker.log()


def test_a_broker_whose_terminal_is_closed_stops(tmp_path: Path) -> None:
    """A closed terminal sends SIGHUP, too."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "polycast", "serve", "--no-log", "--listen=simplest=tcp://127.0.0.1:0"]
    with (tmp_path / "log").open("w") as stderr:
        process = subprocess.Popen(
            ["env", "--default-signal=HUP", "setsid", "--ctty", "--wait", *command],  # tests may run under nohup
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=clean_environment(),
            cwd=tmp_path,
        )
    os.close(slave)
    assert process.stdout
    try:
        assert process.stdout.readline().startswith(b"listening simplest ")
        assert process.stdout.readline() == b"ready\n"
        os.close(master)
        assert process.wait(GUARD_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert "reloaded" not in (tmp_path / "log").read_text()
