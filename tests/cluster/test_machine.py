"""Apply without NATS: the same messages give the same state, whatever is repeated, moved or restarted."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cluster.machine_rig import STREAM, Node, Plan, sent, streams
from cluster.trio import read_table
from polycast.broker import Ledger, Proposal, StagedFrame
from polycast.cluster import machine as machine_module
from polycast.cluster.machine import ApplyMachine, Verdict
from polycast.cluster.messages import (
    LZ4,
    MAGIC,
    MESSAGE_BYTES,
    PACK_BYTES,
    PARTS_AT_MOST,
    PREFIX,
    VERSION,
    ForeignMessageError,
    Head,
    MessageKind,
    join_frame,
    pack_body,
    read_body,
    read_commit,
    read_message,
    to_proposal,
    write_body,
    write_frame,
    write_message,
)
from polycast.log.batch_ids import BatchIds
from polycast.log.files.format import StreamPosition
from polycast.log.files.hot import HotReader
from polycast.log.write.bulk import STAGED_SCHEMA, to_bulk, to_columns, to_stream
from polycast.model import BatchKey
from polycast.routing import Topics


def machine() -> ApplyMachine:
    ledger = Ledger(Topics(6), BatchIds(3, 100.0))
    return ApplyMachine(ledger, StreamPosition(STREAM))


@given(streams(), st.data())
@settings(phases=[Phase.reuse, Phase.generate])
def test_a_node_that_restarts_has_the_same_state(rows: list[bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        nodes = [Node(Path(folder) / "a"), Node(Path(folder) / "b", segment_bytes=65_536)]
        try:  # a node that is not closed leaves its threads behind, for every example that fails
            nodes[0].feed(rows, len(rows))
            for _ in range(2):
                stop = data.draw(st.integers(nodes[1].machine.sequence, len(rows)))
                nodes[1].feed(rows, stop)
                if data.draw(st.booleans()):
                    nodes[1].log.writer.roll()
                nodes[1] = nodes[1].crash() if data.draw(st.booleans()) else nodes[1].restart()
            nodes[1].feed(rows, len(rows))
            expected, found = (list(node.state()) for node in nodes)
        finally:
            for node in nodes:
                node.close()
        assert found == expected


@given(sent("a"), st.data())
def test_repeats_and_messages_out_of_order_change_no_row(rows: list[bytes], data: st.DataObject) -> None:
    """Every message is applied once, after the one before it, however often and whenever it comes again."""
    plain, disturbed = machine(), machine()
    applied = [plain.apply(number, row).applied for number, row in enumerate(rows, 1)]
    disturbances = (
        data.draw(st.lists(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows) - 1)), max_size=6))
        if rows
        else []
    )
    found, sequence = [], 0
    for index, row in enumerate(rows):
        for at, which in disturbances:
            if at == index and which != index and not _starts_incarnation(rows, which):
                sequence += 1
                assert not disturbed.apply(sequence, rows[which]).applied
        sequence += 1
        found.append(disturbed.apply(sequence, row).applied)
    offsets = [[(each.first, each.next, each.micros) for each in one] for one in applied]
    assert [[(each.first, each.next, each.micros) for each in one] for one in found] == offsets


def _starts_incarnation(rows: list[bytes], which: int) -> bool:
    return read_message(rows[which]).head.number == 1


def test_foreign_messages_are_counted_and_change_the_chain_alike() -> None:
    one, two = machine(), machine()
    head = write_message(Head("a", 1, 1), b"\xc1")
    whole = write_message(Head("a", 1, 1), BODY)
    older, newer = (b"PC%c" % number + whole[3:] for number in (VERSION - 1, VERSION + 1))
    for node in (one, two):
        for sequence, data in enumerate((b"", b"hello", older, newer, head), 1):
            assert node.apply(sequence, data).verdict is Verdict.FOREIGN
        assert node.apply(6, whole).verdict is Verdict.APPLIED
    assert one.position == two.position
    assert one.foreign == 5


BODY = write_body([Plan([b"t"], 1, None).propose()])
NESTED = b"\x91" * 100_000 + b"\xc0"
"""Arrays within arrays, in MessagePack."""


@pytest.mark.parametrize(
    "data",
    [
        PREFIX.pack(MAGIC, len(NESTED)) + NESTED,
        write_message(Head("a", 1, 1), NESTED),
        write_message(Head("a", 1, 1, kind=MessageKind.FRAME), NESTED),
    ],
)
def test_data_that_are_nested_too_deeply_are_skipped_by_all_nodes(data: bytes) -> None:
    node = machine()
    assert node.apply(1, data).verdict is Verdict.FOREIGN
    assert node.apply(2, write_message(Head("a", 1, 1), BODY)).verdict is Verdict.APPLIED


def commit(*frames: list[int]) -> bytes:
    """A commit that names frames at these stream sequences."""
    row = pa.RecordBatch.from_pydict({"topic": ["t"], "payload": [b"1"], "format": ["text"]}, STAGED_SCHEMA)
    bulk = to_bulk("hermod", to_columns([row]), list(frames))
    return write_body([Proposal((), "source", 5, BatchKey("me", "id"), 1, bulk)])


@pytest.mark.parametrize(
    "data",
    [
        write_message(Head("a", 1, 1), write_body([Plan([b"t"], 2**44, None).propose()])),
        write_message(Head("a", 1, 1), write_body([Plan([b"t"], -1, None).propose()])),
        write_message(Head("a", 1, 1), write_body([Plan([b"t"], 1, None).propose()._replace(messages=2)])),
        write_message(Head("a", 1, 1), write_body([Plan([b"t"], 1, None).propose()._replace(messages=-5)])),
        write_message(Head("a", 2**63, 1), BODY),
        write_message(Head("a", 0, 1), BODY),
        write_message(Head("a", 1, 2**63), BODY),
        write_message(Head("a", 1, 1, first=2**63), BODY),
        write_message(Head("a", 1, 1, 0, PARTS_AT_MOST + 1), BODY),
        write_message(Head("", 1, 1), BODY),
        write_message(Head("a.b", 1, 1), BODY),
        write_message(Head("a" * 33, 1, 1), BODY),
        write_message(Head("a", 1, 1, 0, 2, MessageKind.COMMIT), BODY),
    ],
)
def test_messages_with_numbers_out_of_bounds_are_skipped_by_all_nodes(data: bytes) -> None:
    node = machine()
    assert node.apply(1, data).verdict is Verdict.FOREIGN
    assert (node.foreign, node.proposers, node.position.parts) == (1, {}, {})
    assert node.apply(2, write_message(Head("a", 1, 1), BODY)).verdict is Verdict.APPLIED


@pytest.mark.parametrize("frames", [[[8]], [[10**6]], [[0]], [[-1]], [[7], [7]], [[6, 7, 6]]])
def test_a_commit_names_earlier_messages_and_each_once(frames: list[list[int]]) -> None:
    read_commit(commit([6, 7]), 8)
    with pytest.raises(ForeignMessageError, match="a commit names messages"):
        read_commit(commit(*frames), 8)


def test_a_node_skips_its_own_message_if_all_others_do() -> None:
    """The proposals of its own messages are not decoded."""
    proposal = Plan([b"t"], -1, None).propose()
    data = write_message(Head("a", 1, 1), write_body([proposal]))
    own, other = machine(), machine()
    own.apply(1, data, lambda head, data: [proposal])
    other.apply(1, data)
    assert own.position == other.position


def test_names_and_parts_of_proposers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "PROPOSERS_AT_MOST", 2)
    monkeypatch.setattr(machine_module, "PARTS_AT_MOST", 3)
    node = machine()
    sent = [("a", 1, 0), ("b", 1, 0), ("c", 1, 0), ("a", 2, 1), ("b", 2, 1)]
    found = [
        node.apply(sequence, write_message(Head(name, 1, number, part, 9), b"x")).verdict
        for sequence, (name, number, part) in enumerate(sent, 1)
    ]
    assert found == [Verdict.PART, Verdict.PART, Verdict.FOREIGN, Verdict.PART, Verdict.FOREIGN]
    assert node.apply(6, write_message(Head("b", 1, 2, 0, 9), b"x")).verdict is Verdict.FOREIGN
    assert node.position.parts == {"a": 1, "b": 2}
    assert node.apply(7, write_message(Head("a", 2, 1), BODY)).verdict is Verdict.APPLIED
    assert node.apply(8, write_message(Head("b", 1, 2, 1, 9), b"x")).verdict is Verdict.PART


def test_parts_that_no_node_accepted_are_not_collected_after_a_restart() -> None:
    body = write_body([Plan([b"t"], 1, None).propose()])
    rows = [
        write_message(Head("a", 1, 1, 0, 3), body[:5]),
        write_message(Head("a", 1, 2, 2, 3), b"not the next part"),
        write_message(Head("a", 1, 2, 1, 3), body[5:9]),
        write_message(Head("a", 1, 3, 2, 3), body[9:]),
    ]
    node = machine()
    for sequence, row in enumerate(rows[:3], 1):
        node.apply(sequence, row)
    again = ApplyMachine(Ledger(Topics(6), BatchIds(3, 100.0)), node.position)
    for sequence, row in enumerate(rows, 1):
        last = again.apply(sequence, row)
    assert (last.verdict, len(last.applied)) == (Verdict.APPLIED, 1)
    node.apply(4, rows[3])
    assert again.position == node.position


def test_the_chain_of_this_format() -> None:
    """Nodes of two versions share a stream only if both write and apply messages in the same way. If this chain
    changes, they do not: raise `VERSION`, and say so in the changelog."""

    def body(topics: bytes, seconds: int, batch: BatchKey | None = None) -> bytes:
        return write_body([Plan([b"%c" % topic for topic in topics], seconds, batch).propose()])

    batch, parts, stamp = BatchKey("me", "x"), body(b"abc", 2), 1_000
    rows = [
        write_message(Head("a", 1, 1), body(b"tut", 1, batch)),
        b"hello",
        write_message(Head("b", 1, 1, 0, 2), parts[:9]),
        write_message(Head("a", 1, 3), body(b"t", 2)),  # ignored
        write_message(Head("b", 1, 2, 1, 2), parts[9:]),
        write_message(Head("a", 1, 2), body(b"t", 3, batch)),  # known
        write_message(Head("a", 1, 3, first=4), body(b"t", stamp + 1_000)),  # a clock far ahead
        write_message(Head("a", 1, 4), body(b"t", -1)),  # no such time
        write_message(Head("a", 1, 4, kind=MessageKind.FRAME), write_frame(StagedFrame(batch, "s", 0, 1, b"?"))),
        write_message(Head("b", 2, 1), body(b"defghij", 4)),  # more topics than are remembered
        write_message(Head("b", 1, 3), body(b"t", 5)),  # of the incarnation before
        write_message(Head("a", 1, 5), body(b"tu", 6, BatchKey("me", "y"))),
    ]
    node = machine()
    found = [node.apply(sequence, row, stamp=stamp * 10**6) for sequence, row in enumerate(rows, 1)]
    assert [outcome.verdict.name[0] for outcome in found] == list("AFPIAAAFAAIA")
    assert (VERSION, node.chain) == (2, "b31bd68889b9a229def27f5b0a5468f7")


def test_a_clock_far_ahead_does_not_move_the_time_of_all_nodes() -> None:
    now = 1_000_000
    node = machine()

    def apply(sequence: int, seconds: int, stamp: int) -> tuple[int, int]:
        body = write_body([Plan([b"t"], seconds, None).propose()])
        found = node.apply(sequence, write_message(Head("a", 1, sequence), body), stamp=stamp * 10**6)
        return found.applied[0].micros // 10**6, found.ahead_micros // 10**6

    assert apply(1, now + 299, now) == (now + 299, 0)
    assert apply(2, now + 3_600, now + 1) == (now + 299, 3_599)
    assert apply(3, now + 3_700, now + 400) == (now + 400, 3_300)
    assert apply(4, now + 600, now) == (now + 600, 0)  # the clock of the servers went back
    assert apply(5, now - 900, now + 700) == (now + 600, 0)


def test_a_body_is_read_as_it_was_written() -> None:
    plan = Plan([b"t", b"t", b"u"], 5, BatchKey("me", "id"))
    proposal = plan.propose()
    head, body = read_message(write_message(Head("a", 7, 1), write_body([proposal])))
    [found] = read_body(body)
    assert head == Head("a", 7, 1)
    assert found._replace(bursts=()) == proposal._replace(bursts=())
    assert [list(burst.messages()) for burst in found.bursts] == [
        list(burst.messages()) for burst in proposal.bursts
    ]


def packed(count: int = 300) -> tuple[bytes, int]:
    return pack_body(write_body([Plan([b"t"] * count, 5, None).propose()]))


def test_a_body_that_gets_smaller_is_packed() -> None:
    body, unpacked = packed()
    assert len(body) < unpacked == len(write_body([Plan([b"t"] * 300, 5, None).propose()]))
    [found] = read_body(body, unpacked)
    assert [message.payload for message in found.bursts[0].messages()] == [b"t 5"] * 300
    assert pack_body(b"x" * (PACK_BYTES - 1)) == (b"x" * (PACK_BYTES - 1), 0)
    noise = Random(1).randbytes(5_000)
    assert pack_body(noise) == (noise, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda body, size: (body, size + 1), "does not have"),
        (lambda body, size: (body, size - 1), "does not have"),
        (lambda body, size: (body, 256 * 768 * 1024), "does not have"),
        (lambda body, size: (body[:-9], size), "Truncated"),
        (lambda body, size: (b"\0" + body[1:], size), "decompress failed"),
        (lambda body, size: (b"", size), "does not have"),
        (lambda body, size: (LZ4.compress(bytes(size), asbytes=True), size), "Expected `array`"),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_skipped_by_all_nodes(
    change: Callable[[bytes, int], tuple[bytes, int]], reason: str
) -> None:
    body, unpacked = change(*packed())
    node = machine()
    outcome = node.apply(1, write_message(Head("a", 1, 1, unpacked=unpacked), body))
    assert outcome.verdict is Verdict.FOREIGN
    assert reason in outcome.error
    assert node.foreign == 1


@pytest.mark.parametrize("claim", [-1, 2**40])
def test_a_body_claims_no_more_memory_than_its_message_can_need(claim: int) -> None:
    outcome = machine().apply(1, write_message(Head("a", 1, 1, unpacked=claim), packed()[0]))
    assert outcome.error == f"a body that claims {claim} bytes"


def test_nor_do_many_parts_claim_more_than_the_largest_message() -> None:
    most = PARTS_AT_MOST * MESSAGE_BYTES
    for unpacked, verdict in ((most, Verdict.PART), (most + 1, Verdict.FOREIGN)):
        head = Head("a", 1, 1, parts=PARTS_AT_MOST, unpacked=unpacked)
        assert machine().apply(1, write_message(head, packed()[0])).verdict is verdict


def test_nodes_agree_on_the_first_offset() -> None:
    """It never goes back, and never passes the end; a message that is ignored changes nothing."""
    node = machine()
    rows, nothing = write_body([Plan([b"t"] * 4, 1, None).propose()]), write_body([])
    firsts = []
    heads = [(1, 2, rows), (2, 9, rows), (3, 5, nothing), (3, 8, nothing), (4, 3, nothing)]
    for sequence, (number, first, body) in enumerate(heads, 1):
        node.apply(sequence, write_message(Head("a", 1, number, first=first), body))
        firsts.append(node.first)
    assert firsts == [2, 8, 8, 8, 8]
    assert ApplyMachine(Ledger(), node.position).first == 8


def test_a_newer_incarnation_ends_the_older_one_and_its_parts() -> None:
    node = machine()
    body = write_body([Plan([b"t"], 1, None).propose()])
    part = write_message(Head("a", 1, 1, 0, 2), body[:5])
    assert node.apply(1, part).verdict is Verdict.PART
    assert node.position.parts == {"a": 1}
    assert node.apply(2, write_message(Head("a", 2, 1), body)).verdict is Verdict.APPLIED
    assert node.apply(3, write_message(Head("a", 1, 2, 1, 2), body[5:])).verdict is Verdict.IGNORED
    assert node.position.parts == {}
    assert node.position.proposers == {"a": (2, 1)}


def test_parts_that_are_never_finished_are_dropped_later_in_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "PARTS_REACH", 2)
    node = machine()
    body = write_body([Plan([b"t"], 1, None).propose()])
    assert node.apply(1, write_message(Head("a", 1, 1, 0, 2), body[:5])).verdict is Verdict.PART
    for sequence in (2, 3):
        node.apply(sequence, write_message(Head("b", 1, sequence - 1), body))
    assert node.position.parts == {"a": 1}
    late = node.apply(4, write_message(Head("a", 1, 2, 1, 2), body[5:]))
    assert late.verdict is Verdict.FOREIGN
    assert node.position.parts == {}


def test_a_frame_is_found_again_after_a_restart_and_changes_nothing() -> None:
    batch = BatchKey("me", "id")
    frame = StagedFrame(batch, "1", 0, 3, b"rows")
    body = write_frame(frame)
    rows = [
        write_message(Head("a", 1, n + 1, n, 2, MessageKind.FRAME), part)
        for n, part in enumerate((body[:9], body[9:]))
    ]
    rows.insert(1, write_message(Head("b", 1, 1), write_body([Plan([b"t"], 1, None).propose()])))
    node = machine()
    found = [node.apply(sequence, row) for sequence, row in enumerate(rows, 1)]
    assert [outcome.verdict for outcome in found] == [Verdict.PART, Verdict.APPLIED, Verdict.APPLIED]
    assert found[2].frame == frame._replace(sequences=[1, 3])
    node.first_staged = lambda: 1
    again = ApplyMachine(Ledger(micros=10**6), node.position)
    assert again.resume == 1
    assert [again.apply(sequence, row).frame for sequence, row in enumerate(rows, 1)][2] == found[2].frame
    assert again.position == node.position


def test_a_commit_publishes_the_rows_of_the_frames_that_it_names_or_nothing() -> None:
    batch = BatchKey("me", "id")
    rows = pa.RecordBatch.from_pydict(
        {"topic": ["t", "u"], "payload": [b"1", b"2"], "format": ["text", None]}, STAGED_SCHEMA
    )
    message = write_message(
        Head("a", 1, 1, 0, 1, MessageKind.FRAME), write_frame(StagedFrame(batch, "1", 0, 2, to_stream([rows])))
    )
    frame = join_frame([message], [7])
    bulk = to_bulk("hermod", to_columns([rows]), [[7]])
    proposed, columns = read_commit(write_body([Proposal((), "source", 5, batch, 2, bulk)]), 8)
    found = to_proposal(proposed, columns, [frame])
    assert found.bulk.columns.equals(bulk.columns)  # type: ignore[union-attr]
    assert found._replace(bulk=None) == Proposal((), "source", 5, batch, 2, None)
    with pytest.raises(ForeignMessageError, match="not the parts of one frame"):
        join_frame([message, message], [7, 8])
    without = pa.RecordBatch.from_pydict(
        {"topic": ["t", None], "payload": [b"1", b"2"], "format": [None] * 2}, STAGED_SCHEMA
    )
    others = [
        [frame._replace(batch=BatchKey("you", "id"))],
        *([frame._replace(data=data)] for data in (b"?", frame.data[:-20], to_stream([without]))),
    ]
    for wrong in ([], [frame, frame], *others):
        with pytest.raises(ForeignMessageError):
            to_proposal(proposed, columns, wrong)


def test_a_node_that_died_in_its_first_group_starts_again(tmp_path: Path) -> None:
    row = write_message(Head("a", 1, 1), write_body([Plan([b"t"], 1, None).propose()]))
    node = Node(tmp_path / "a")
    node.apply(1, row)
    shutil.copytree(node.data, tmp_path / "b")
    expected = list(node.state())
    node.close()
    [segment] = (tmp_path / "b" / "log").glob("*.arrows")
    with closing(HotReader(segment)) as reader:
        [group] = reader.groups()
    os.truncate(segment, group.position + 10)
    torn = Node(tmp_path / "b")
    torn.feed([row], 1)
    found = list(torn.state())
    torn.close()
    assert found == expected
    assert read_table(tmp_path / "b" / "log").equals(read_table(tmp_path / "a" / "log"))


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").exists() else None
