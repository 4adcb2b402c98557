"""Settings of the log: their effect, and errors for invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker import Broker
from kit.program import POLYCAST, Finished, Program, polycast, polycast_here
from kit.replay import Delivered, numbered, publish, read_messages, subscribe, total
from kit.wire import wait_for


def segments(data: Path, kind: str) -> list[Path]:
    return sorted((data / "log").glob(f"*.{kind}"))


@pytest.mark.parametrize("seal", ["true", "false"])
def test_sealing_can_be_left_to_others(tmp_path: Path, seal: str) -> None:
    flags = ("--set=log.segment_bytes=65536", f"--set=log.seal={seal}")
    with Broker(*flags, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        for begin in range(0, 1000, 100):
            publish(peer, numbered("t", range(begin, begin + 100), 300))
        if seal == "true":
            wait_for(lambda: len(segments(tmp_path, "parquet")) > 2, "sealed segments")
        else:
            wait_for(lambda: len(segments(tmp_path, "arrows")) > 3, "segments")
            assert total(broker, "log_segments_sealed_total") == 0
    assert bool(segments(tmp_path, "parquet")) is (seal == "true")
    with Broker(*flags, data=tmp_path) as broker, subscribe(broker, "t", since={"t": 100}) as subscriber:
        assert [received.sequence for received in read_messages(subscriber, 900)] == list(range(100, 1000))


def test_a_segment_has_an_age(tmp_path: Path) -> None:
    flags = ("--set=log.segment_seconds=0.05", "--set=log.seal=false")
    with Broker(*flags, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:

        def several() -> bool:
            publish(peer, [("t", b"x")])
            return len(segments(tmp_path, "arrows")) > 2

        wait_for(several, "segments")


def test_the_data_folder_may_be_named_in_the_environment(tmp_path: Path) -> None:
    shown = polycast("serve", "--check", env={"POLYCAST_DATA": str(tmp_path / "elsewhere")})
    assert f'data = "{tmp_path}/elsewhere"  # POLYCAST_DATA' in shown.out.decode()


def test_without_a_log_there_is_no_folder(tmp_path: Path) -> None:
    listen = "--listen=simplest=tcp://127.0.0.1:0"
    with Program(*POLYCAST, "serve", "--no-log", listen, "--data", str(tmp_path / "data")) as broker:
        while broker.read_line() != b"ready":
            pass
    assert not (tmp_path / "data").exists()


def test_sequences_of_evicted_topics_are_not_reused(tmp_path: Path) -> None:
    """Across a restart too: no sequence is used twice."""
    flag = "--set=limits.topics=10"
    seen: set[tuple[str, int]] = set()
    for _ in range(2):
        with Broker(flag, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
            with subscribe(broker, patterns=[">"]) as subscriber:
                for turn in range(3):
                    publish(peer, [(f"topic/{number}", b"%d" % turn) for number in range(40)])
                received = {(each.topic, each.sequence) for each in read_messages(subscriber, 120)}
            assert len(received) == 120 and not received & seen
            seen |= received
    with Broker(flag, data=tmp_path) as broker, subscribe(broker, patterns=[">"], since="earliest") as subscriber:
        assert {(each.topic, each.sequence) for each in read_messages(subscriber, 240)} == seen


def test_committed_messages_are_those_that_a_crash_does_not_take_back(tmp_path: Path) -> None:
    """Every message that a subscriber received is in the log."""
    with (
        Broker("--set=log.delivery=committed", data=tmp_path) as broker,
        broker.connect("simplest") as peer,
        subscribe(broker, "t") as subscriber,
    ):
        peer.send(b"".join(b"pub t 4 %04d\n" % number for number in range(2000)))
        received = read_messages(subscriber, 500)
        broker.kill()
    with Broker(data=tmp_path) as broker, subscribe(broker, "t", since="earliest") as subscriber:
        assert read_messages(subscriber, 500) == received == [Delivered("t", n, b"%04d" % n) for n in range(500)]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("log.sync=sometimes", ["log.sync", "sometimes", "always or interval or never"]),
        ("log.delivery=later", ["log.delivery", "later", "live or committed"]),
        ("log.sync_seconds=0", ["log.sync_seconds", "0.001"]),
        ("log.segment_bytes=1000", ["log.segment_bytes", "1,000", "65,536"]),
        ("log.pending_bytes=1", ["log.pending_bytes", "65,536"]),
        ("log.segment_bytes=64 MB/s", ["log.segment_bytes", "64 MB/s", "a size such as 512MiB or 10GB"]),
        ("log.segment_bytes=7d", ["log.segment_bytes = '7d'", "a size such as 512MiB or 10GB"]),
        ("log.retain_seconds=10GB", ["log.retain_seconds = '10GB'", "a time such as 250ms, 30s, 10m, 12h or 7d"]),
        ("log.retain_seconds=inf", ["log.retain_seconds = 'inf'", "a time such as"]),
        ("log.retain_bytes=-1", ["log.retain_bytes", "-1"]),
        (
            "log.retain_bytes=1MiB",
            ["flag: log.retain_bytes is 1,048,576", "67,108,864", "lower log.segment_bytes"],
        ),
        ("log.seal=perhaps", ["log.seal", "perhaps", "true or false"]),
        ("log.batch_ids=-1", ["log.batch_ids", "-1"]),
        ("log.synk=never", ["log.synk", "did you mean log.sync?"]),
        ("limits.policy=split", ["limits.policy", "split", "spill"]),
    ],
)
def test_wrong_values(setting: str, words: list[str]) -> None:
    done: Finished = polycast_here("serve", f"--set={setting}", "--check")
    assert done.code == 2
    assert all(word in done.err for word in words), done.err
