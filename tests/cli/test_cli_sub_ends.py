"""`polycast sub`: exit codes after ctrl-C, positions past the end of the log, the hint after a close."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from kit.program import POLYCAST, Finished, Program, polycast
from kit.replay import publish


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Five messages on `t`: the offsets 0 to 4. The topic `empty` has none."""
    with Broker(data=tmp_path_factory.mktemp("data"), listen=("hermod.pub", "hermod.sub", "simplest")) as started:
        with started.connect("hermod.pub") as publisher:
            publish(publisher, [("t", b"%d" % number) for number in range(5)])
        yield started


def at(broker: Broker, listener: str = "hermod.sub") -> str:
    return f"tcp://127.0.0.1:{broker.ports[listener]}"


def interrupted(broker: Broker, *flags: str) -> Finished:
    with Program(*POLYCAST, "sub", "live", *flags, "--at", at(broker)) as subscriber:
        assert b"subscribed" in subscriber.stderr.readline()
        subscriber.interrupt()
        return subscriber.finish()


def test_an_interrupt_is_the_end_of_a_sub_without_end(broker: Broker) -> None:
    assert interrupted(broker) == Finished(0, b"", "")


@pytest.mark.parametrize("flags", [["--count=5"], ["--timeout=60"]])
def test_an_interrupt_before_the_end_that_was_requested(broker: Broker, flags: list[str]) -> None:
    done = interrupted(broker, *flags)
    assert (done.code, done.out) == (130, b"")
    assert "Traceback" not in done.err


# -- positions past the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["@99999", "300", "6"])
@pytest.mark.parametrize("flags", [[], ["--exit"], ["--count=1"], ["--exit", "--raw"]])
def test_a_position_past_the_end_is_refused(broker: Broker, position: str, flags: list[str]) -> None:
    failed = polycast("sub", "t", "--from", position, *flags, "--at", at(broker))
    assert (failed.code, failed.out) == (1, b"")
    assert "refused: 400" in failed.err


@pytest.mark.parametrize("topics", [["t", "empty"], ["empty"]])
def test_a_sequence_of_a_topic_without_messages_is_refused(broker: Broker, topics: list[str]) -> None:
    assert polycast("sub", *topics, "--from", "1", "--exit", "--at", at(broker)).code == 1


@pytest.mark.parametrize("position", ["@5", "5", "2100-01-01T00:00"])
def test_the_end_itself_is_a_position(broker: Broker, position: str) -> None:
    """A script goes on where it ended: there is nothing yet."""
    done = polycast("sub", "t", "--from", position, "--exit", "--at", at(broker))
    assert (done.code, done.out) == (0, b"")


# -- the hint after a close ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listener", "hint"),
    [
        ("hermod.sub", "hint: it has stopped: its log says why\n"),
        ("simplest", "hint: it has stopped, or refused: its log says why, and --dialect hermod shows a refusal\n"),
    ],
)
def test_the_hint_names_hermod_only_to_others(listener: str, hint: str) -> None:
    with (
        Broker("--no-log", listen=("hermod.sub", "simplest")) as broker,
        Program(*POLYCAST, "sub", "t", "--no-reconnect", "--at", at(broker, listener)) as subscriber,
    ):
        assert b"subscribed" in subscriber.stderr.readline()
        broker.stop()
        done = subscriber.finish()
    assert (done.code, done.out) == (1, b"")
    assert done.err.endswith(f"the broker closed the connection\n{hint}")
