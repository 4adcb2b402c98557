"""Stages and batch ids belong to one identity: another identity cannot change them, even if it knows the id."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from access.gate import write_config
from kit import hermod
from kit.broker import Broker
from kit.hermod import OK, expect_error, read_error
from kit.replay import read_messages, subscribe, total
from kit.staged import numbered, to_frame
from kit.wire import Peer, wait_for
from polycast.server.access.tokens import add_token, revoke_token

LISTEN = ("hermod.pub", "hermod.sub", "http")
ROWS = 2000
LARGE = 3000
"""This many rows of 1,000 bytes are written to the log in bulk."""
BOTH = ("alice", "bob")
RULES = ("guest may subscribe >", "guest may admin", *(f"{name} may publish jobs.>" for name in BOTH))
"""A guest may subscribe to everything, and publish nothing."""
NIGHT = "night-2026-11-16"


class Gate:
    def __init__(self, folder: Path, *flags: str) -> None:
        self.data = folder / "data"
        self.tokens = {name: add_token(self.data, name, []) for name in BOTH}
        self.folder = folder
        self.flags = (f"--config={write_config(folder, *RULES)}", *flags)
        self.broker = self.start()

    def start(self) -> Broker:
        self.broker = Broker(*self.flags, listen=LISTEN, data=self.data)
        return self.broker

    @contextmanager
    def connect(self, name: str = "guest") -> Iterator[Peer]:
        with self.broker.connect("hermod.pub") as peer:
            if name in self.tokens:
                peer.send(json.dumps({"batch_type": "End", "token": self.tokens[name]}).encode())
                peer.expect(hermod.ok(0))
            yield peer

    def allow(self, *rules: str) -> None:
        write_config(self.folder, *rules)
        before = self.broker.log().count("reloaded")
        self.broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.broker.log().count("reloaded") > before, "the new rules")

    def durable(self, topic: str, count: int) -> list[bytes]:
        with subscribe(self.broker, topic, since="earliest") as subscriber:
            return [each.payload for each in read_messages(subscriber, count)]

    def next_offset(self) -> int:
        return total(self.broker, "log_next_offset")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    with gate.broker:
        yield gate


def stage(peer: Peer, name: str, topic: str, rows: int, batch_id: str = NIGHT, size: int = 0) -> None:
    peer.send(hermod.stage(batch_id, name, to_frame(numbered(topic, rows, size)), count=0))
    peer.expect(hermod.ok(rows))


def commit(peer: Peer, *names: str, rows: int, batch_id: str = NIGHT) -> None:
    peer.send(hermod.commit(batch_id, *names, count=rows))
    peer.expect(hermod.ok(rows))


def once(topic: str, *payloads: bytes, batch_id: str = NIGHT) -> bytes:
    messages = b"".join(hermod.message(topic, payload) for payload in payloads)
    return hermod.count(len(payloads), batch_id=batch_id) + messages


# -- a peer without the right to publish that knows the id ------------------------------------------------


FRAME = to_frame(numbered("jobs.x", 1))
ATTACKS = {
    "abort": hermod.abort(NIGHT),
    "abort of one": hermod.abort(NIGHT, "part-0"),
    "stage": hermod.stage(NIGHT, "part-0", FRAME, count=0),
    "stage that is bad": hermod.stage(NIGHT, "part-0", b"no Arrow", count=0),
    "commit": hermod.commit(NIGHT, "part-0", "part-1"),
    "commit of one": hermod.commit(NIGHT, "part-0"),
    "commit of none": hermod.commit(NIGHT),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_peer_without_rights_changes_nothing(gate: Gate, attack: str) -> None:
    with gate.connect("alice") as alice, gate.connect() as stranger:
        stage(alice, "part-0", "jobs.a", ROWS)
        stage(alice, "part-1", "jobs.b", ROWS)
        stranger.send(ATTACKS[attack])
        assert read_error(stranger) == {"code": 403, "message": "Forbidden"}
        commit(alice, "part-0", "part-1", rows=2 * ROWS)
        stranger.send(ATTACKS[attack])
        expect_error(stranger, 403)
        commit(alice, "part-0", "part-1", rows=2 * ROWS)
    assert (
        gate.durable("jobs.a", ROWS) == gate.durable("jobs.b", ROWS) == [b"%d" % number for number in range(ROWS)]
    )
    assert gate.next_offset() == 2 * ROWS


def test_a_peer_without_rights_cannot_use_the_id_first(gate: Gate) -> None:
    with gate.connect("alice") as alice, gate.connect() as stranger:
        stranger.send(once("jobs.a", b"x"))
        expect_error(stranger, 403, count=0)
        stage(alice, "part-0", "jobs.a", 500)
        commit(alice, "part-0", rows=500)
    assert gate.next_offset() == 500


def test_a_forbidden_stage_is_refused_on_its_header(gate: Gate) -> None:
    """Without waiting for the payload, which is skipped."""
    header, payload = hermod.stage(NIGHT, "s", b"")[:-1], b"." * 5_000_000
    header = header.replace(b'"payload_size": 0', b'"payload_size": %d' % len(payload)) + b"}"
    with gate.connect() as stranger:
        stranger.send(header)
        expect_error(stranger, 403)
        stranger.send(payload[:-1])
        stranger.send(payload[-1:] + hermod.abort("x") + hermod.message("jobs.a", b"x"))
        expect_error(stranger, 403)
        expect_error(stranger, 403)


# -- two identities with the right to publish -------------------------------------------------------------


def test_two_identities_use_one_id(gate: Gate) -> None:
    """Neither sees, commits, drops or blocks the stages of the other."""
    with gate.connect("alice") as alice, gate.connect("bob") as bob:
        stage(alice, "part-0", "jobs.alice", 500)
        bob.send(hermod.commit(NIGHT, "part-0"))
        expect_error(bob, 404)
        stage(bob, "part-0", "jobs.bob", 7)
        bob.send(hermod.stage(NIGHT, "part-1", b"no Arrow"))
        expect_error(bob, 422)
        stage(alice, "part-1", "jobs.alice", 100)
        bob.send(hermod.abort(NIGHT, "part-1"))
        bob.expect(OK)
        commit(bob, "part-0", rows=7)
        bob.send(hermod.abort(NIGHT))
        bob.expect(OK)
        commit(alice, "part-0", "part-1", rows=600)
        commit(bob, "part-0", rows=7)
        commit(alice, "part-0", "part-1", rows=600)
    assert len(gate.durable("jobs.alice", 600)) == 600 and len(gate.durable("jobs.bob", 7)) == 7
    assert gate.next_offset() == 607


def test_two_identities_send_one_batch_each(gate: Gate) -> None:
    with gate.connect("alice") as alice, gate.connect("bob") as bob:
        for _ in range(2):
            alice.send(once("jobs.a", b"1", b"2"))
            alice.expect(hermod.ok(2))
            bob.send(once("jobs.b", b"1"))
            bob.expect(hermod.ok(1))
        assert total(gate.broker, "log_batch_ids") == 2
    assert gate.next_offset() == 3


@pytest.mark.parametrize("size", [0, 1000])
def test_after_a_crash_an_id_is_known_to_its_owner_alone(gate: Gate, size: int) -> None:
    with gate.connect("alice") as alice:
        stage(alice, "s", "jobs.a", LARGE, size=size)
        commit(alice, "s", rows=LARGE)
        gate.broker.kill()
    with gate.start(), gate.connect("alice") as alice, gate.connect("bob") as bob:
        commit(alice, "never staged", rows=LARGE)
        bob.send(hermod.commit(NIGHT, "s"))
        expect_error(bob, 404)
        bob.send(once("jobs.b", b"x"))
        bob.expect(hermod.ok(1))
        assert gate.durable("jobs.b", 1) == [b"x"]
        assert len(gate.durable("jobs.a", LARGE)) == LARGE


def test_after_a_crash_a_stage_belongs_to_its_owner_alone(gate: Gate) -> None:
    """Other identities, with rights and without, cannot commit, extend or abort it; its owner may lose rights."""
    with gate.connect("alice") as alice:
        stage(alice, "part-0", "jobs.a", ROWS)
        stage(alice, "part-1", "jobs.b", ROWS)
        gate.broker.kill()
    with gate.start(), gate.connect("alice") as alice, gate.connect("bob") as bob, gate.connect() as stranger:
        for attack in ATTACKS.values():
            stranger.send(attack)
            expect_error(stranger, 403)
        bob.send(hermod.commit(NIGHT, "part-0"))
        expect_error(bob, 404)
        bob.send(hermod.abort(NIGHT) + hermod.stage(NIGHT, "part-0", FRAME))
        bob.expect(OK + hermod.ok(1))
        gate.allow("guest may subscribe >", "guest may admin", "alice may publish jobs.a")
        alice.send(hermod.commit(NIGHT, "part-0", "part-1"))
        expect_error(alice, 403)
        gate.allow(*RULES)
        commit(alice, "part-0", "part-1", rows=2 * ROWS)
        assert len(gate.durable("jobs.a", ROWS)) == len(gate.durable("jobs.b", ROWS)) == ROWS


def test_ids_of_one_identity_do_not_evict_those_of_another(tmp_path: Path) -> None:
    gate = Gate(tmp_path, "--set=log.batch_ids=10")
    with gate.broker, gate.connect("alice") as alice, gate.connect("bob") as bob:
        for number in range(5):
            alice.send(once("jobs.a", b"x", batch_id=f"{number}"))
            alice.expect(hermod.ok(1))
        bob.send(b"".join(once("jobs.b", b"x", batch_id=f"{number}") for number in range(100)))
        bob.expect(hermod.ok(1) * 100)
        gate.broker.kill()
    for _ in range(2):
        with gate.start(), gate.connect("alice") as alice, gate.connect("bob") as bob:
            before = gate.next_offset()
            alice.send(b"".join(once("jobs.a", b"x", batch_id=f"{number}") for number in range(5)))
            alice.expect(hermod.ok(1) * 5)
            bob.send(b"".join(once("jobs.b", b"x", batch_id=f"{number}") for number in range(95, 100)))
            bob.expect(hermod.ok(1) * 5)
            assert gate.next_offset() == before
            assert total(gate.broker, "log_batch_ids") == 10


# -- the right is checked on stage and on commit -----------------------------------------------------------


def test_a_forbidden_topic_drops_only_the_stage_of_the_same_identity(gate: Gate) -> None:
    with gate.connect("alice") as alice, gate.connect("bob") as bob:
        stage(alice, "s", "jobs.a", 5)
        stage(bob, "s", "jobs.b", 5)
        bob.send(hermod.stage(NIGHT, "s", to_frame([("jobs.b", b""), ("secret", b"")])))
        assert read_error(bob) == {"code": 403, "message": "Forbidden"}
        bob.send(hermod.commit(NIGHT, "s"))
        expect_error(bob, 404)
        commit(alice, "s", rows=5)


@pytest.mark.parametrize("size", [0, 1000])
def test_rights_that_are_lost_between_stage_and_commit(gate: Gate, size: int) -> None:
    """Small commits and bulk commits. The rows stay staged: a commit with the right publishes them."""
    with gate.connect("alice") as alice:
        stage(alice, "s", "jobs.a", LARGE, size=size)
        stage(alice, "t", "jobs.other", 1)
        gate.allow("guest may subscribe >", "guest may admin", "alice may publish jobs.other")
        alice.send(hermod.commit(NIGHT, "s", "t", count=LARGE + 1))
        assert read_error(alice) == {"code": 403, "message": "Forbidden"}
        assert gate.next_offset() == 0
        gate.allow(*RULES)
        commit(alice, "s", "t", rows=LARGE + 1)
    assert gate.next_offset() == LARGE + 1


def test_all_rights_that_are_lost_between_stage_and_commit(gate: Gate) -> None:
    with gate.connect("alice") as alice:
        stage(alice, "s", "jobs.a", 5)
        gate.allow("guest may subscribe >", "guest may admin")
        for attack in ATTACKS.values():
            alice.send(attack)
            expect_error(alice, 403)
        gate.allow(*RULES)
        commit(alice, "s", rows=5)


def test_rights_that_are_lost_within_a_batch(gate: Gate) -> None:
    """The first message was allowed when it was received; none is published, and the id is not used."""
    frames = once("jobs.a", b"1", b"2")
    with gate.connect("alice") as alice:
        alice.send(hermod.message("jobs.a", b"before") + frames[:-1])
        alice.expect(OK)
        gate.allow("guest may subscribe >", "guest may admin", "alice may publish jobs.b")
        alice.send(frames[-1:])
        expect_error(alice, 403, count=0)
        gate.allow(*RULES)
        alice.send(frames)
        alice.expect(hermod.ok(2))
    assert gate.next_offset() == 3


def test_a_token_that_is_revoked_between_stage_and_commit(gate: Gate) -> None:
    with gate.connect("alice") as alice:
        stage(alice, "s", "jobs.a", 5)
        revoke_token(gate.data, "alice")
        alice.expect_closed()
    with gate.connect("bob") as bob:
        bob.send(hermod.commit(NIGHT, "s"))
        expect_error(bob, 404)
    assert gate.next_offset() == 0


# -- counts -----------------------------------------------------------------------------------------------


def test_a_commit_of_another_count_is_an_error(gate: Gate) -> None:
    with gate.connect("alice") as alice:
        alice.send(once("jobs.a", b"x"))
        alice.expect(hermod.ok(1))
        stage(alice, "part-0", "jobs.a", 500)
        alice.send(hermod.commit(NIGHT, "part-0", count=500) + once("jobs.a", b"x", b"y"))
        for error, count in ((read_error(alice), "500"), (read_error(alice), "2")):
            assert error["code"] == 422
            assert " 1 " in str(error["message"]) and count in str(error["message"])
        commit(alice, "part-0", rows=1)
    assert gate.next_offset() == 1


# -- memory -----------------------------------------------------------------------------------------------


def test_one_identity_does_not_use_up_the_memory_of_another(tmp_path: Path) -> None:
    limits = ("--set=hermod.stage_bytes=200000", "--set=hermod.identity_stage_bytes=100000")
    gate = Gate(tmp_path, *limits)
    rows = [("jobs.a", b"x" * 40_000)]
    with gate.broker, gate.connect("alice") as alice, gate.connect("bob") as bob:
        for peer in (alice, bob):
            for name in ("0", "1"):
                peer.send(hermod.stage(NIGHT, name, to_frame(rows)))
                peer.expect(hermod.ok(1))
            peer.send(hermod.stage(NIGHT, "2", to_frame(rows)))
            error = read_error(peer)
            assert error["code"] == 507
            assert "100,000" in str(error["message"]) and "identity_stage_bytes" in str(error["message"])
        commit(alice, "0", "1", rows=2)
        commit(bob, "0", "1", rows=2)


def test_stages_without_rows_are_counted(tmp_path: Path) -> None:
    """By number, and by memory."""
    empty = to_frame([])
    gate = Gate(tmp_path, "--set=hermod.identity_stages=20")
    with gate.broker, gate.connect("alice") as alice, gate.connect("bob") as bob:
        for number in range(20):
            alice.send(hermod.stage(NIGHT, f"{number}", empty))
            alice.expect(hermod.ok(0))
        alice.send(hermod.stage("other", "one more", empty))
        error = read_error(alice)
        assert error["code"] == 507 and "hermod.identity_stages" in str(error["message"])
        stage(bob, "s", "jobs.b", 1)
        stage(alice, "0", "jobs.a", 1)
        alice.send(hermod.abort(NIGHT, "1"))
        alice.expect(OK)
        alice.send(hermod.stage("other", "one more", empty))
        alice.expect(hermod.ok(0))
    narrow = Gate(tmp_path / "narrow", "--set=hermod.stage_bytes=20000")
    with narrow.broker, narrow.connect("alice") as alice:
        for number in range(100):
            alice.send(hermod.stage(NIGHT, f"{number}", empty))
        replies = [json.loads(alice.read_until(b"\n")) for _ in range(100)]
        assert {reply.get("code") for reply in replies} == {None, 507}
