"""The router finds the same audiences as brute force, with as few lookups in the index as possible."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from polycast.model import Contains, Encoder, Everything, Exact, Pattern, Prefix
from polycast.routing import Audience, Router, Subscriber, Topics
from polycast.routing.index import PatternIndex


class PrecedingEncoder(Encoder):
    takes_precedence = True


ENCODERS = [Encoder(), Encoder()]
ALL_ENCODERS = [*ENCODERS, PrecedingEncoder()]
ALPHABET = "abé/"

values = st.one_of(
    st.text(ALPHABET, min_size=1, max_size=3),
    st.text(ALPHABET, min_size=6, max_size=18),
    st.text("ab", max_size=9).map("polycast/".__add__),
    st.sampled_from(["p", "/", "poly", "polycast", "olycast/", "polycast/"]),
)
patterns: st.SearchStrategy[Pattern] = st.one_of(
    st.builds(Exact, values),
    st.builds(Prefix, values),
    st.builds(Contains, values),
    st.builds(Contains, st.text(ALPHABET, min_size=1, max_size=2)),
    st.just(Everything()),
)
topics = st.one_of(
    st.text(ALPHABET, max_size=6),
    st.text(ALPHABET, max_size=24),
    st.text("ab/", max_size=6).map("polycast/".__add__),
)


def is_empty(index: PatternIndex) -> bool:
    """The tables have no trace of any subscription."""
    left = [value for shelf in index._tables.values() for value in vars(shelf).values()]
    return not index._everything and not any(left)


class RouterAgainstBruteForce(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router(Topics(1_000_000))
        self.subscribers = [Subscriber(i) for i in range(4)]
        self.held: dict[Subscriber, dict[Pattern, Encoder]] = {s: {} for s in self.subscribers}

    @rule(who=st.integers(0, 3), pattern=patterns, encoder=st.sampled_from(ALL_ENCODERS))
    def subscribe(self, who: int, pattern: Pattern, encoder: Encoder) -> None:
        subscriber = self.subscribers[who]
        changes = self.held[subscriber].get(pattern) is not encoder
        assert self.router.subscribe(subscriber, pattern, encoder) is changes
        self.held[subscriber][pattern] = encoder

    @rule(who=st.integers(0, 3), pattern=patterns)
    def unsubscribe(self, who: int, pattern: Pattern) -> None:
        subscriber = self.subscribers[who]
        was_held = self.held[subscriber].pop(pattern, None) is not None
        assert self.router.unsubscribe(subscriber, pattern) is was_held

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def unsubscribe_what_is_held(self, data: st.DataObject) -> None:
        subscriber, pattern = data.draw(st.sampled_from(self._subscriptions()))
        del self.held[subscriber][pattern]
        assert self.router.unsubscribe(subscriber, pattern)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), encoder=st.sampled_from(ALL_ENCODERS))
    def subscribe_again(self, data: st.DataObject, encoder: Encoder) -> None:
        subscriber, pattern = data.draw(st.sampled_from(self._subscriptions()))
        self.subscribe(self.subscribers.index(subscriber), pattern, encoder)

    @rule(topic=topics)
    def look_up(self, topic: str) -> None:
        self._check(topic)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), before=st.text(ALPHABET, max_size=2), behind=st.text(ALPHABET, max_size=9))
    def look_up_something_near(self, data: st.DataObject, before: str, behind: str) -> None:
        _, pattern = data.draw(st.sampled_from(self._subscriptions()))
        for topic in (
            pattern.value,
            before + pattern.value,
            pattern.value + behind,
            before + pattern.value + behind,
        ):
            self._check(topic)

    @rule(one=topics, two=topics)
    def audiences_are_interned(self, one: str, two: str) -> None:
        first, second = self._check(one), self._check(two)
        assert (first is second) == (first.members == second.members)

    def teardown(self) -> None:
        for subscriber, pattern in self._subscriptions():
            self.router.unsubscribe(subscriber, pattern)
        assert is_empty(self.router._index) and is_empty(self.router._precedence)
        assert not any(subscriber.patterns for subscriber in self.subscribers)

    def _subscriptions(self) -> list[tuple[Subscriber, Pattern]]:
        return [(subscriber, pattern) for subscriber in self.subscribers for pattern in self.held[subscriber]]

    def _check(self, name: str) -> Audience:
        topic = self.router.refresh(self.router.topics.use(name.encode()))
        assert topic.name == name
        wanted = {
            subscriber: [encoder for pattern, encoder in held.items() if pattern.matches(name)]
            for subscriber, held in self.held.items()
        }
        assert {subscriber for subscriber, _ in topic.audience.members} == {
            s for s, forms in wanted.items() if forms
        }
        assert len(topic.audience.members) == len({subscriber for subscriber, _ in topic.audience.members})
        assert all(encoder in wanted[subscriber] for subscriber, encoder in topic.audience.members)
        assert all(
            encoder.takes_precedence == any(each.takes_precedence for each in wanted[subscriber])
            for subscriber, encoder in topic.audience.members
        )
        check_groups(topic.audience)
        return topic.audience


def check_groups(audience: Audience) -> None:
    grouped = [(subscriber, encoder) for encoder, subscribers in audience.groups for subscriber in subscribers]
    assert len(grouped) == len(audience.members)
    assert frozenset(grouped) == audience.members
    assert bool(audience) is bool(audience.members)


TestRouterAgainstBruteForce = RouterAgainstBruteForce.TestCase
TestRouterAgainstBruteForce.settings = settings(stateful_step_count=50)


# -- lookups in the index --------------------------------------------------------------------------------


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every topic that was looked up."""
    found: list[str] = []
    match: Callable[[PatternIndex, str, PatternIndex], Audience] = PatternIndex.match

    def watched(index: PatternIndex, topic: str, over: PatternIndex) -> Audience:
        found.append(topic)
        return match(index, topic, over)

    monkeypatch.setattr(PatternIndex, "match", watched)
    return found


def look_up(router: Router, *keys: bytes) -> list[Audience]:
    """As publishing does: topics that are looked up are known from then on."""
    return [router.refresh(router.topics.use(key)).audience for key in keys]


def test_an_audience_is_cached(lookups: list[str]) -> None:
    router = Router(Topics(1_000_000))
    first = look_up(router, b"a", b"b")
    assert look_up(router, b"a", b"b", b"a") == [*first, first[0]]
    assert lookups == ["a", "b"]


def test_an_exact_subscription_invalidates_one_topic(lookups: list[str]) -> None:
    router, one = Router(Topics(1_000_000)), Subscriber(1)
    _, other = look_up(router, b"a", b"b")
    lookups.clear()
    router.subscribe(one, Exact("a"), ENCODERS[0])
    a, b = look_up(router, b"a", b"b")
    assert lookups == ["a"]
    assert b is other
    assert a.members == {(one, ENCODERS[0])}
    router.unsubscribe(one, Exact("a"))
    lookups.clear()
    assert look_up(router, b"b", b"a") == [other, other]
    assert lookups == ["a"]


@pytest.mark.parametrize("pattern", [Prefix("a"), Contains("a"), Everything()], ids=str)
def test_any_other_subscription_invalidates_all_topics(lookups: list[str], pattern: Pattern) -> None:
    router, one = Router(Topics(1_000_000)), Subscriber(1)
    look_up(router, b"a", b"b")
    lookups.clear()
    router.subscribe(one, pattern, ENCODERS[0])
    look_up(router, b"a", b"b")
    assert lookups == ["a", "b"]


def test_an_unchanged_subscription_invalidates_nothing(lookups: list[str]) -> None:
    router, one = Router(Topics(1_000_000)), Subscriber(1)
    router.subscribe(one, Everything(), ENCODERS[0])
    look_up(router, b"a")
    lookups.clear()
    assert not router.subscribe(one, Everything(), ENCODERS[0])
    assert not router.unsubscribe(one, Contains("a"))
    look_up(router, b"a")
    assert lookups == []


def test_a_second_subscription_replaces_the_encoder() -> None:
    router, one = Router(Topics(1_000_000)), Subscriber(1)
    for pattern in (Exact("a"), Prefix("a"), Contains("a"), Everything()):
        for encoder in ENCODERS:
            assert router.subscribe(one, pattern, encoder)
            assert router.audience(b"a").members == {(one, encoder)}
        router.unsubscribe(one, pattern)


def test_topics_of_one_audience_share_it() -> None:
    router, one, two = Router(Topics(1_000_000)), Subscriber(1), Subscriber(2)
    router.subscribe(one, Exact("a"), ENCODERS[0])
    router.subscribe(one, Prefix("b"), ENCODERS[0])
    router.subscribe(two, Contains("a"), ENCODERS[0])
    a, b, bb, nobody = look_up(router, b"a", b"b", b"bb", b"x")
    assert b is bb
    assert a is not b
    assert a.members == {(one, ENCODERS[0]), (two, ENCODERS[0])}
    assert not nobody


def test_an_audience_that_no_topic_has_is_forgotten() -> None:
    router = Router(Topics(1_000_000))
    subscribers = [Subscriber(i) for i in range(50)]
    for i, subscriber in enumerate(subscribers):
        router.subscribe(subscriber, Exact(f"t{i}"), ENCODERS[0])
        look_up(router, f"t{i}".encode())
    assert len(router._index._audiences) == 50
    for i, subscriber in enumerate(subscribers):
        router.unsubscribe(subscriber, Exact(f"t{i}"))
        look_up(router, f"t{i}".encode())
    gc.collect()
    assert len(router._index._audiences) == 1


def test_a_lookup_creates_no_topic() -> None:
    router, one = Router(Topics(1_000_000)), Subscriber(1)
    router.subscribe(one, Prefix("a"), ENCODERS[0])
    assert router.audience(b"ab").members == {(one, ENCODERS[0])}
    assert not router.audience(b"b").members
    assert len(router.topics) == 0


def test_a_topic_that_is_not_utf8_is_not_cached() -> None:
    router = Router(Topics(1_000_000))
    with pytest.raises(UnicodeDecodeError):
        router.topics.use(b"\xff")
    assert len(router.topics) == 0


# -- the local part of an audience -----------------------------------------------------------------------


def test_the_local_part_has_no_links() -> None:
    client, link = Subscriber(1), Subscriber(2, link=True)
    audience = Audience(frozenset({(client, ENCODERS[0]), (link, ENCODERS[0])}))
    assert audience.local.members == {(client, ENCODERS[0])}
    assert audience.local is audience.local
    assert audience.local.local is audience.local


def test_without_clients_there_is_no_local_part() -> None:
    assert not Audience(frozenset({(Subscriber(2, link=True), ENCODERS[0])})).local
