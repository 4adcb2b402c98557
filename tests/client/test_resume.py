"""How clients come back, without sockets and without a clock: pauses, positions, and what is sent again."""

from __future__ import annotations

import pytest

from polycast.address import parse_address
from polycast.client.publication import Publication, new_batch_ids
from polycast.client.resume import LONGEST_PAUSE_SECONDS, STABLE_SECONDS, Resume
from polycast.client.states import State, StateChange
from polycast.dialects.client_session import ClientSession, Credentials, Missed
from polycast.dialects.client_subscriptions import ClientSubscription, ClientSubscriptions
from polycast.dialects.hermod.client import HermodClientSession
from polycast.dialects.simplest.client import SimplestClientSession
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Everything, Exact, Format, Message, Pattern, Prefix, StartPosition

ADDRESS = parse_address("tcp://127.0.0.1:1")
LOST = RemoteError("lost")
LOG = b'{"status": "OK", "log": "0123456789abcdef", "next": %d}\n'


def session(publishing: bool = False) -> HermodClientSession:
    made = HermodClientSession(ADDRESS, publishing, Credentials())
    made.resumes = True
    return made


def message(topic: str, offset: int) -> Message:
    return Message(topic, b"", Format.BYTES, 0, offset, 0.0)


# -- pauses ----------------------------------------------------------------------------------------------


def pauses(resume: Resume, number: int) -> list[float]:
    found = []
    for _ in range(number):
        found.append(resume.pause())
        resume.next_dial()
    return found


def to_resume(addresses: int, states: list[StateChange] | None = None) -> Resume:
    """Connected to the first of the addresses."""
    on_state = (lambda change: None) if states is None else states.append
    resume = Resume([session] * addresses, True, on_state, share=lambda low, high: high)
    made = resume.next_dial()()
    resume.begin(made)
    resume.commands(made)
    resume.connected(made, now=1.0)
    return resume


def test_pauses_double_up_to_the_longest() -> None:
    assert pauses(to_resume(1), 8) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]


def test_the_other_addresses_are_tried_at_once() -> None:
    assert pauses(to_resume(3), 9) == [0, 0, 0.1, 0, 0, 0.2, 0, 0, 0.4]


def test_pauses_are_shares_of_that() -> None:
    resume = Resume([session], share=lambda low, high: (low, high) == (0.5, 1.0) and 0.5)
    assert resume.pause() == 0.05


def test_a_connection_that_did_its_work_starts_the_pauses_anew() -> None:
    """One that is closed at once does not: that would be a busy loop."""
    resume = to_resume(1)
    pauses(resume, 4)
    useless, useful = session(), session()
    resume.connected(useless, now=10.0)
    resume.lose(useless, LOST, now=10.0 + STABLE_SECONDS - 0.1)
    assert resume.pause() == 1.6
    resume.connected(useful, now=20.0)
    useful.progressed = True
    resume.lose(useful, LOST, now=20.1)
    assert resume.pause() == 0.1
    pauses(resume, 4)
    resume.connected(useless, now=30.0)
    resume.lose(useless, LOST, now=30.0 + STABLE_SECONDS)
    assert resume.pause() == 0.1


def test_states_name_what_happens() -> None:
    states: list[StateChange] = []
    resume = to_resume(1, states)
    first = session()
    resume.lose(first, LOST, now=2.0)
    resume.fail(LOST)
    made = resume.next_dial()()
    resume.begin(made)
    made.on_missed(Missed(3, 7, "damaged"))
    resume.connected(made, now=3.0)
    resume.close()
    assert [change.state for change in states] == [
        State.CONNECTING, State.CONNECTED, State.DISCONNECTED, State.DISCONNECTED, State.CONNECTING, State.GAP,
        State.CONNECTED, State.CLOSED,
    ]  # fmt: skip
    assert states[2].error is LOST and (states[5].first, states[5].next) == (3, 7)
    assert resume.reconnects == 1


# -- positions -------------------------------------------------------------------------------------------


def subscriptions(*each: ClientSubscription) -> ClientSubscriptions:
    made = ClientSubscriptions(lambda pattern, topic: pattern.matches(topic))
    for subscription in each:
        made.add(subscription)
    return made


def test_a_subscription_without_messages_resumes_where_it_began() -> None:
    one = ClientSubscription([Exact("a")])
    made = subscriptions(one)
    made.confirm(one, 17)
    assert made.resume() == (17, [Exact("a")], [])


def test_live_subscriptions_have_come_as_far_as_the_last_message_of_any() -> None:
    rare, often = ClientSubscription([Exact("rare")]), ClientSubscription([Exact("often")])
    made = subscriptions(rare, often)
    made.confirm(rare, 10)
    made.confirm(often, 20)
    for offset in (20, 21, 25):
        assert made.take(message("often", offset))
    assert made.resume() == (26, [Exact("rare"), Exact("often")], [])
    assert made.take(message("rare", 26))


def test_messages_before_a_later_subscription_are_not_its_own() -> None:
    one, two = ClientSubscription([Exact("a")]), ClientSubscription([Exact("b")])
    made = subscriptions(one, two)
    made.confirm(one, 10)
    made.confirm(two, 20)
    assert made.resume().offset == 10
    assert [made.take(message("b", offset)) for offset in (12, 19, 20)] == [False, False, True]


def test_a_replay_beside_a_live_subscription() -> None:
    live, past = ClientSubscription([Everything()]), ClientSubscription([Prefix("x")], StartPosition())
    made = subscriptions(live, past)
    made.confirm(live, 1000)
    assert made.take(message("x", 1000))  # not yet of the replay
    made.confirm(past, 1001)
    assert made.take(message("x", 5)) and made.take(message("y", 1500)) and made.take(message("x", 6))
    assert made.resume() == (7, [Everything(), Prefix("x")], [])
    assert [made.take(message("y", offset)) for offset in (7, 1500, 1501)] == [False, False, True]
    assert [made.take(message("x", offset)) for offset in (6, 7, 1500)] == [False, True, True]


def test_a_second_reconnect_keeps_what_the_first_had_to_make_up() -> None:
    live, past = ClientSubscription([Everything()]), ClientSubscription([Exact("x")], StartPosition(offset=0))
    made = subscriptions(live, past)
    made.confirm(live, 100)
    made.confirm(past, 100)
    for offset in range(500):
        made.take(message("x", offset))
    assert made.resume().offset == 100
    assert not made.take(message("x", 150)) and made.take(message("y", 151))
    assert made.resume().offset == 152
    assert [made.take(message("x", offset)) for offset in (499, 500)] == [False, True]


def test_a_replay_of_which_nothing_has_arrived_starts_as_requested() -> None:
    before = session()
    before.subscribe([Exact("a")], StartPosition(seconds=5.0))
    before.receive(LOG % 7)
    [command] = session().resume(before)
    assert b'"from":{"time":5000}' in command.data and b'"log"' not in command.data


def test_topics_that_a_pattern_covers_are_subscribed_once() -> None:
    one, two = ClientSubscription([Exact("a.b"), Exact("c")]), ClientSubscription([Prefix("a.")])
    made = subscriptions(one, two)
    for each in (one, two):
        made.confirm(each, 3)
    assert made.resume().known == [Prefix("a."), Exact("c")]


def test_messages_that_the_log_cannot_deliver_are_behind_us() -> None:
    one = ClientSubscription([Exact("a")])
    made = subscriptions(one)
    made.confirm(one, 10)
    made.skip(5, 30)
    made.skip(40, 50)
    assert made.resume().offset == 30


def test_the_handshake_of_a_resumed_session() -> None:
    before = session()
    before.subscribe([Exact("a"), Prefix("b.")])
    before.receive(LOG % 41 + b'{"topic":"a","sequence":3,"offset":77,"time":1,"payload_size":1,"checksum":""}x')
    after = session()
    [command] = after.resume(before)
    assert command.data == (
        b'{"topics":["a"],"patterns":["b.>"],"offsets":true,"from":"@78","delivery":"committed",'
        b'"log":"0123456789abcdef"}'
    )
    assert [each.offset for each in after.take()] == [77]  # what was not taken yet


def test_thousands_of_patterns_go_in_parts() -> None:
    before = session()
    patterns: list[Pattern] = [Exact(f"a/topic/of/some/length/{number}") for number in range(5000)]
    for start in range(0, 5000, 500):
        before.subscribe(patterns[start : start + 500])
        before.receive(LOG % 1)
    commands = session().resume(before)
    assert len(commands) > 1 and all(len(command.data) < 64 * 1024 for command in commands)
    assert sum(command.data.count(b"length") for command in commands) == 5000


def test_a_refused_subscription_is_not_made_again() -> None:
    before = session()
    before.subscribe([Exact("secret")])
    before.receive(b'{"status": "ERROR", "code": 403, "message": "Forbidden"}\n')
    assert session().resume(before) == []


def test_a_dialect_without_offsets_subscribes_again() -> None:
    before, after = (SimplestClientSession(ADDRESS, False, Credentials()) for _ in range(2))
    before.subscribe([Exact("a")])
    before.subscribe([Exact("b")])
    assert b"".join(command.data for command in after.resume(before)) == b"sub a\nsub b\n"


# -- publications ----------------------------------------------------------------------------------------

GREETING = b'{"status": "OK", "count": 0, "log": "0123456789abcdef", "batch_ids": 9}\n'


def publisher(greeting: bytes = GREETING) -> HermodClientSession:
    made = session(publishing=True)
    assert made.open().data == b'{"batch_type":"End","offsets":true}'
    made.receive(greeting)
    return made


def send(publication: Publication, over: ClientSession) -> list[bytes]:
    return [publication.to_frame(block, over) for block in publication.blocks()]


def test_what_was_not_acknowledged_is_sent_again_under_the_same_id() -> None:
    first, second = publisher(), publisher()
    payload = b"x" * 300_000
    publication = Publication(first, [Message("a", payload)] * 3, new_batch_ids())
    frames = send(publication, first)
    assert len(set(frames)) == 3 and all(b'"batch_id":"polycast/client/' in frame for frame in frames)
    first.receive(b'{"status": "OK", "count": 1}\n')
    assert publication.may_resend(first) and not publication.done
    assert send(publication, second) == frames[1:]
    second.receive(b'{"status": "OK", "count": 1}\n' * 2)
    assert publication.done
    publication.check(second)


def test_without_batch_ids_nothing_is_sent_again() -> None:
    plain = publisher(b'{"status": "OK", "count": 0}\n')
    publication = Publication(plain, [Message("a", b"x")], new_batch_ids())
    [frame] = send(publication, plain)
    assert b"batch_id" not in frame and not publication.may_resend(plain)


def test_in_a_dialect_without_acknowledgements_nothing_is_sent_again() -> None:
    silent = SimplestClientSession(ADDRESS, True, Credentials())
    publication = Publication(silent, [Message("a", b"x")], new_batch_ids())
    assert send(publication, silent) == [b"pub a 1 x\n"]
    assert publication.done and not publication.may_resend(silent)


def test_a_refusal_is_reported_by_the_operation_that_it_refuses_alone() -> None:
    """Not by every later one."""
    made = publisher()
    publication = Publication(made, [Message("a", b"x")], new_batch_ids())
    send(publication, made)
    made.receive(b'{"status": "ERROR", "code": 413, "message": "too large"}\n')
    with pytest.raises(RefusedError, match="413 too large"):
        publication.check(made)
    assert made.closing and not isinstance(made.ended(), RefusedError)


# -- text ------------------------------------------------------------------------------------------------


def test_text_is_a_payload() -> None:
    assert Message("a", "é") == Message("a", "é".encode(), Format.TEXT)
    assert Message("a", "{}", Format.JSON) == Message("a", b"{}", Format.JSON)
    for payload in (5, None, bytearray(b"x"), "\ud800"):
        with pytest.raises(UsageError, match="a payload is"):
            Message("a", payload)  # type: ignore[arg-type]
