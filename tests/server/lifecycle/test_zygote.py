"""A forked broker behaves like one that a user starts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kit.broker import Broker, clean_environment, start
from kit.wire import GUARD_SECONDS
from kit.zygote import Zygote, fork

BOTH = pytest.mark.parametrize("fresh", [False, True], ids=["forked", "fresh"])


def libraries(broker: Broker) -> str:
    """Loaded shared libraries."""
    return Path(f"/proc/{broker.process.pid}/maps").read_text()


@BOTH
def test_the_exit_status_is_reported(fresh: bool, tmp_path: Path) -> None:
    with Broker(fresh=fresh, data=tmp_path) as broker:
        assert broker.process.poll() is None
        broker.process.send_signal(signal.SIGINT)
        assert broker.process.wait(GUARD_SECONDS) == broker.process.poll() == 0
        broker.process.kill()
    with Broker(fresh=fresh, data=tmp_path) as broker:
        broker.kill()
        assert broker.process.poll() == -signal.SIGKILL


@BOTH
def test_a_failed_start_is_reported(fresh: bool, tmp_path: Path) -> None:
    text = tmp_path / "stderr"
    with text.open("w") as stderr:
        process = (start if fresh else fork)(["serve", "--set=nonsense=1"], clean_environment(), stderr)
    assert process.stdout
    with process.stdout as stdout:
        assert stdout.read() == ""
    assert process.wait(GUARD_SECONDS) == 2
    assert text.read_text().startswith("polycast: flag: unknown setting nonsense\nhint:")


def test_unneeded_libraries_are_not_loaded(tmp_path: Path) -> None:
    with Broker(fresh=True) as broker:
        assert "libarrow" not in libraries(broker)
    with Broker(fresh=True, data=tmp_path) as broker:
        assert "libarrow" in libraries(broker)
        assert "pandas" not in libraries(broker)


def test_a_zygote_leaves_no_process_behind(tmp_path: Path) -> None:
    zygote = Zygote(clean_environment())
    with (tmp_path / "stderr").open("w") as stderr:
        forked = zygote.fork_broker(["serve", "--no-log"], clean_environment(), stderr)
    with forked.stdout as stdout:
        zygote.end()
        stdout.read()  # reaches end of file when no process has the pipe open for writing
    assert forked.wait(GUARD_SECONDS) == -signal.SIGKILL
    assert not Path(f"/proc/{forked.pid}").exists()
