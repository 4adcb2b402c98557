"""Subscribers of `hermod` that asked for a window or for batches: what they get when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dialects.subscriber import A, B, Place, Subscriber, group, one, read_groups
from kit import hermod
from polycast.dialects.hermod.encoders import ENCODER, OFFSET_ENCODER, PacedEncoder
from polycast.dialects.session import SessionContext

# -- offsets ----------------------------------------------------------------------------------------------


LOG = SessionContext(has_log=True, log_id="0123456789abcdef", log_next=lambda: 42)
PLACED = b'{"topic": "a", "sequence": %d, "offset": %d, "time": %d, "payload_size": 1, "checksum": "%b"}x'
SHA1 = hermod.checksum(b"x").encode()


def placed(sequence: int, offset: int, micros: int) -> bytes:
    return PLACED % (sequence, offset, micros, SHA1)


def test_subscribers_with_offsets_share_one_encoder() -> None:
    subscriber = Subscriber(hermod.topics("a", offsets=True), LOG)
    assert subscriber.encoders == {"a": OFFSET_ENCODER}
    assert subscriber.publish(B, A, A) == placed(0, 1, 0) + placed(1, 2, 0)
    assert subscriber.publish(A) == placed(2, 3, 3000)


def test_offsets_are_for_the_whole_connection_and_go_with_a_window() -> None:
    subscriber = Subscriber(hermod.topics("a"), LOG)
    assert subscriber.publish(A) == one("a", 0)
    assert subscriber.send(hermod.topics("b", offsets=True)) == b'{"status": "OK", "log": "%b", "next": 42}\n' % (
        LOG.log_id.encode()
    )
    assert subscriber.encoders == {"a": OFFSET_ENCODER, "b": OFFSET_ENCODER}
    assert subscriber.publish(A) == placed(1, 1, 1000)
    subscriber.send(hermod.topics(window=1))
    assert subscriber.publish(A, A) == placed(2, 2, 2000)
    assert subscriber.send(hermod.OK) == placed(3, 3, 2000)


def test_without_a_log_there_are_no_offsets() -> None:
    subscriber = Subscriber(hermod.topics("a", offsets=True, delivery="committed"))
    assert subscriber.encoders == {"a": ENCODER}
    assert subscriber.publish(A) == one("a", 0)


# -- window ----------------------------------------------------------------------------------------------


def test_subscribers_without_a_window_share_one_encoder() -> None:
    assert Subscriber(hermod.topics("a")).encoders == {"a": ENCODER}
    assert Subscriber(hermod.topics("a")).publish(A, A) == one("a", 0) + one("a", 1)


def test_no_more_than_the_window_is_sent_ahead() -> None:
    subscriber = Subscriber(hermod.topics("a", window=2))
    assert subscriber.publish(A, A, A) == one("a", 0) + one("a", 1)
    assert subscriber.publish(A) == b""
    assert subscriber.send(hermod.OK) == one("a", 2)
    assert subscriber.send(hermod.OK * 2) == one("a", 3)
    assert subscriber.publish(A) == one("a", 4)


def test_withheld_bytes_are_counted() -> None:
    subscriber = Subscriber(hermod.topics("a", window=1))
    assert subscriber.session.withheld_bytes == 0
    subscriber.publish(A, ("a", b"y" * 1000))
    assert subscriber.session.withheld_bytes == len(one("a", 1, b"y" * 1000))
    subscriber.send(hermod.OK)
    assert subscriber.session.withheld_bytes == 0


def test_an_ok_too_many_is_no_credit() -> None:
    subscriber = Subscriber(hermod.topics("a", window=1))
    assert subscriber.send(hermod.OK * 5) == b""
    assert subscriber.publish(A, A, A) == one("a", 0)


def test_an_acknowledgement_with_a_sequence_is_for_everything_up_to_it() -> None:
    subscriber = Subscriber(hermod.topics("a", "b", window=4))
    assert subscriber.publish(A, B, A, A, A, A, A) == one("a", 0) + one("b", 0) + one("a", 1) + one("a", 2)
    assert subscriber.send(hermod.acknowledgement("a", 1)) == one("a", 3) + one("a", 4)
    assert subscriber.send(hermod.acknowledgement("a", 1)) == b""
    assert subscriber.send(hermod.acknowledgement("nothing", 9)) == b""
    assert subscriber.send(hermod.acknowledgement("b", 7)) == one("a", 5)


def test_a_plain_ok_behind_one_with_a_sequence_is_for_the_oldest_that_is_left() -> None:
    subscriber = Subscriber(hermod.topics("a", "b", window=3))
    subscriber.publish(A, B, A, A, A, A)
    assert subscriber.send(hermod.acknowledgement("a", 0)) == one("a", 2)
    assert subscriber.send(hermod.OK) == one("a", 3)
    assert subscriber.send(hermod.acknowledgement("b", 0)) == b""


def test_a_second_handshake_adds_topics_and_replaces_the_window() -> None:
    subscriber = Subscriber(hermod.topics("a"))
    assert subscriber.send(hermod.topics("b", window=1)) == b""
    assert len(set(subscriber.encoders.values())) == 1
    assert subscriber.publish(A, B, A, B) == one("a", 0)
    assert subscriber.send(hermod.topics("c")) == b""
    assert subscriber.send(hermod.topics(window=3)) == one("b", 0) + one("a", 1)
    assert subscriber.send(hermod.topics(window=0)) == one("b", 1)
    assert subscriber.publish(*[A] * 5) == b"".join(one("a", number) for number in range(2, 7))


def test_a_smaller_window_waits_until_there_is_room_in_it() -> None:
    subscriber = Subscriber(hermod.topics("a", window=3))
    subscriber.publish(*[A] * 5)
    assert subscriber.send(hermod.topics(window=1)) == b""
    assert subscriber.send(hermod.OK * 2) == b""
    assert subscriber.send(hermod.OK) == one("a", 3)


def test_an_ok_releases_messages_before_a_close() -> None:
    subscriber = Subscriber(hermod.topics("a", window=1))
    subscriber.publish(A, A)
    assert subscriber.send(hermod.OK + hermod.CLOSE) == one("a", 1)


# -- batches ---------------------------------------------------------------------------------------------


def test_deliveries_in_batches() -> None:
    subscriber = Subscriber(hermod.topics("a", "b", batch=2))
    sent = subscriber.publish(A, A, B, A, B)
    assert sent == group(one("a", 0), one("a", 1)) + group(one("b", 0), one("a", 2)) + group(one("b", 1))
    assert subscriber.publish(A) == group(one("a", 3))


def test_one_ok_acknowledges_a_whole_batch() -> None:
    subscriber = Subscriber(hermod.topics("a", batch=2, window=4))
    sent = subscriber.publish(*[A] * 9)
    assert sent == group(one("a", 0), one("a", 1)) + group(one("a", 2), one("a", 3))
    assert subscriber.send(hermod.OK) == group(one("a", 4), one("a", 5))


def test_a_batch_is_no_larger_than_the_room_in_the_window() -> None:
    subscriber = Subscriber(hermod.topics("a", batch=10, window=3))
    assert subscriber.publish(*[A] * 5) == group(one("a", 0), one("a", 1), one("a", 2))
    assert subscriber.send(hermod.acknowledgement("a", 0)) == group(one("a", 3))
    assert subscriber.send(hermod.OK) == group(one("a", 4))


def test_a_larger_window_releases_messages_together() -> None:
    subscriber = Subscriber(hermod.topics("a", batch=4, window=1))
    subscriber.publish(*[A] * 5)
    assert subscriber.send(hermod.topics(window=4)) == group(*[one("a", number) for number in (1, 2, 3)])


# -- whatever happens ------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same with lists, looked through from one end to the other."""

    window: int
    batch: int
    held: list[Place] = field(default_factory=list)
    sent: list[list[Place]] = field(default_factory=list)

    def release(self) -> list[list[Place]]:
        released = []
        while self.held:
            room = self.window - sum(map(len, self.sent)) if self.window else len(self.held)
            size = min(room, self.batch or 1)
            if size <= 0:
                break
            taken, self.held = self.held[:size], self.held[size:]
            released.append(taken)
            if self.window:
                self.sent.append(list(taken))
        return released

    def acknowledge(self, topic: str | None, sequence: int) -> None:
        if topic is None:
            self.sent = self.sent[1:]
            return
        left = [[place for place in one if place[0] != topic or place[1] > sequence] for one in self.sent]
        self.sent = [places for places in left if places]


acts = st.one_of(
    st.lists(st.sampled_from([A, B]), min_size=1, max_size=6),
    st.none(),
    st.tuples(st.sampled_from("abc"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["window", "batch"]), st.integers(0, 4)),
)


@given(st.integers(0, 4), st.integers(0, 3), st.lists(acts, max_size=30))
def test_every_message_comes_once_in_order_and_in_time(window: int, batch: int, happens: list[object]) -> None:
    subscriber = Subscriber(hermod.topics("a", "b", window=window, batch=batch))
    model = Model(window, batch)
    numbers: Counter[str] = Counter()
    for act in happens:
        match act:
            case list():
                for topic, _ in act:
                    model.held.append((topic, numbers[topic]))
                    numbers[topic] += 1
                sent = subscriber.publish(*act)
            case None:
                model.acknowledge(None, 0)
                sent = subscriber.send(hermod.OK)
            case ("window" | "batch" as key, int(value)):
                setattr(model, key, value)
                model.sent = model.sent if model.window else []
                sent = subscriber.send(hermod.topics(**{key: value}))
            case (str(topic), int(sequence)):
                model.acknowledge(topic, sequence)
                sent = subscriber.send(hermod.acknowledgement(topic, sequence))
        assert read_groups(sent) == model.release()
        held = [hermod.delivery(topic, b"x", sequence) for topic, sequence in model.held]
        assert subscriber.session.withheld_bytes == sum(map(len, held))


def test_acknowledged_messages_are_released() -> None:
    """Also when one message is never acknowledged."""
    subscriber = Subscriber(hermod.topics("a", "b", window=2))
    subscriber.publish(B)
    for number in range(100):
        assert subscriber.publish(A) == one("a", number)
        subscriber.send(hermod.acknowledgement("a", number))
    encoder = subscriber.encoders["a"]
    assert isinstance(encoder, PacedEncoder)
    assert encoder.unacknowledged == 1
