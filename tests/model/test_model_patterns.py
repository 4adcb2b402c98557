"""Patterns: their text form, and what they match."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polycast.errors import UsageError
from polycast.model import Contains, Everything, Exact, Pattern, Prefix, parse_pattern

texts = st.text(st.one_of(st.sampled_from("ab.>~=^*/ é"), st.characters(codec="utf-8")), max_size=8)
patterns: st.SearchStrategy[Pattern] = st.one_of(
    st.builds(Exact, texts),
    st.builds(Prefix, texts.filter(bool)),
    st.builds(Contains, texts.filter(bool)),
    st.just(Everything()),
)


@given(patterns)
@example(Exact(""))
@example(Exact(">"))
@example(Exact("~a"))
@example(Exact("=a"))
@example(Exact("a.>"))
@example(Exact("^>"))
@example(Prefix(">"))
@example(Prefix("^"))
@example(Prefix("^~"))
@example(Prefix("~a"))
@example(Prefix("=a"))
@example(Contains(">"))
@example(Contains("a>"))
def test_every_pattern_has_a_text(pattern: Pattern) -> None:
    assert parse_pattern(str(pattern)) == pattern


@given(texts.filter(bool))
def test_every_text_is_a_pattern(text: str) -> None:
    pattern = parse_pattern(text)
    assert parse_pattern(str(pattern)) == pattern


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("foo", Exact("foo")),
        ("foo.>", Prefix("foo.")),
        ("foo>", Prefix("foo")),
        ("~foo", Contains("foo")),
        (">", Everything()),
        ("~", Everything()),
        ("=foo", Exact("foo")),
        ("=foo.>", Exact("foo.>")),
        ("=", Exact("")),
        ("^~foo>", Prefix("~foo")),
        ("^foo>", Prefix("^foo")),
        ("^foo", Exact("^foo")),
        ("*", Exact("*")),
    ],
)
def test_text_form(text: str, pattern: Pattern) -> None:
    assert parse_pattern(text) == pattern


def test_an_empty_text_is_refused_with_a_cure() -> None:
    with pytest.raises(UsageError) as caught:
        parse_pattern("")
    assert "'>'" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        (Exact("foo"), "foo", True),
        (Exact("foo"), "foo.bar", False),
        (Exact("foo"), "Foo", False),
        (Exact(""), "", True),
        (Exact(""), "a", False),
        (Exact("foo.*"), "foo.bar", False),
        (Prefix("foo.bar."), "foo.bar.baz", True),
        (Prefix("foo.bar."), "foo.bar.", True),
        (Prefix("foo.bar."), "foo.bar", False),
        (Prefix("foo.bar."), "xfoo.bar.baz", False),
        (Contains("bar"), "foo.bar.baz", True),
        (Contains("bar"), "bar", True),
        (Contains("bar"), "BAR", False),
        (Contains("bar"), "ba.r", False),
        (Contains("é"), "café", True),
        (Everything(), "foo", True),
        (Everything(), "", True),
        (Everything(), "polycastle", True),
        (Everything(), "polycast", True),
        (Everything(), "Polycast/x", True),
        (Everything(), "a/polycast/x", True),
    ],
)
def test_matches(pattern: Pattern, topic: str, matches: bool) -> None:
    assert pattern.matches(topic) is matches


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (Everything(), False),
        (Contains("events"), False),
        (Contains("/"), False),
        (Contains("p"), False),
        (Contains("polycast"), False),
        (Contains("olycast/events"), False),
        (Contains("polycast/"), True),
        (Contains("polycast/events"), True),
        (Contains("polycast/traffic"), False),
        (Prefix("p"), False),
        (Prefix("polycast"), False),
        (Prefix("polycast/"), True),
        (Prefix("polycast/events/"), True),
        (Prefix("polycast/traffic/"), False),
        (Exact("polycast/events/open"), True),
        (Exact("polycast/events"), False),
    ],
)
def test_reserved_topics_need_a_text_that_begins_so(pattern: Pattern, matches: bool) -> None:
    assert pattern.matches("polycast/events/open") is matches


def test_a_reserved_text_in_the_middle_of_another_topic() -> None:
    assert Contains("polycast/").matches("a/polycast/b")


@given(texts, texts.filter(bool))
def test_matching_equals_string_operations(topic: str, value: str) -> None:
    if not topic.startswith("polycast/"):
        assert Exact(value).matches(topic) == (topic == value)
        assert Prefix(value).matches(topic) == (topic[: len(value)] == value)
        assert Contains(value).matches(topic) == (topic.find(value) >= 0)
        assert Everything().matches(topic)
