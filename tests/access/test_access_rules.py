"""Rules: their syntax, and what they allow."""

from __future__ import annotations

import tracemalloc
from itertools import product

import pytest

from polycast.errors import UsageError
from polycast.model import Contains, Everything, Exact, Pattern, Prefix, parse_pattern
from polycast.server.access.rules import CACHE_BYTES, Rights, Rule, covers, parse_rule, rights_of

VALUES = (
    "",
    "a",
    "b",
    "ab",
    "aba",
    "poly",
    "polycast/",
    "polycast/a",
    "x/polycast/a",
    "cast/",
    "polycast/polycast/a",
)
ENDS = ("", "x", "a", "ab", "polycast/")
TOPICS = sorted({f"{before}{value}{after}" for before, value, after in product(ENDS, VALUES, ENDS)})
PATTERNS: list[Pattern] = [Everything(), *(kind(value) for kind in (Exact, Prefix, Contains) for value in VALUES)]


@pytest.mark.parametrize("rule", PATTERNS, ids=str)
def test_covers_matches_brute_force(rule: Pattern) -> None:
    for requested in PATTERNS:
        received = [topic for topic in TOPICS if requested.matches(topic)]
        missed = [topic for topic in received if not rule.matches(topic)]
        assert received, requested
        assert covers(rule, requested) == (not missed), (str(rule), str(requested), missed[:3])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a may everything", Rule("a", frozenset({"everything"}))),
        ("a may admin over http", Rule("a", frozenset({"admin"}), None, frozenset({"http"}))),
        ("a may publish b.>", Rule("a", frozenset({"publish"}), Prefix("b."))),
        ("a may serve+query b", Rule("a", frozenset({"serve", "query"}), Exact("b"))),
        ("a may publish b c", Rule("a", frozenset({"publish"}), Exact("b c"))),
        (
            "spiffe://x/y may publish+subscribe ~b over ubre+hermod",
            Rule(
                "spiffe://x/y", frozenset({"publish", "subscribe"}), Contains("b"), frozenset({"ubre", "hermod"})
            ),
        ),
    ],
)
def test_valid_rules(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a may",
        "a may fly",
        "a may publish",
        "a may publish over ubre",
        "a may admin x",
        "a may everything x",
        "a may publish+admin x",
        "a may query",
        "a may serve+everything x",
        "a may publish x over telepathy",
        "a b may publish x",
        "ä may admin",
        "a may subscribe ~ ",
        "a may subscribe ~\u00a0",
        "a may publish a.>\t",
        "a may publish a  over ubre",
    ],
)
def test_invalid_rules(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_rule(text)
    assert error.value.hint


def rights(*texts: str, identity: str = "a", dialect: str = "ubre") -> Rights | None:
    return rights_of(map(parse_rule, texts), identity, dialect)


def test_blanks_around_a_rule_are_ignored_if_they_cannot_belong_to_a_pattern() -> None:
    assert parse_rule(" a may everything \n") == parse_rule("a may everything")
    assert parse_rule("\ta may publish b over ubre ") == parse_rule("a may publish b over ubre")


def test_everything_without_a_rule_is_forbidden() -> None:
    held = rights("b may everything", "a may everything over hermod")
    assert held is not None
    assert held.none
    assert not held.admin
    assert not held.may_publish(b"x")
    assert not held.may_subscribe(Exact("x"))


def test_an_identity_with_all_rights_needs_no_rights_object() -> None:
    assert rights("a may publish x", "a may everything") is None
    assert rights("a may everything over ubre") is None


def test_rights_are_the_sum_of_rules() -> None:
    held = rights("a may publish x.>", "a may subscribe ~y", "a may publish z over ubre", "a may admin over http")
    assert held is not None
    assert not held.none
    assert not held.admin
    published = [
        topic for topic in (b"x.1", b"x", b"z", b"y", b"\xff", b"polycast/x.1") if held.may_publish(topic)
    ]
    assert published == [b"x.1", b"z"]
    assert [held.may_publish(topic) for topic in (b"x.1", b"y")] == [True, False]  # from the cache, too
    requested = [parse_pattern(text) for text in ("~y", "~ayb", "xyz", "y.>", ">", "x.>")]
    assert list(map(held.may_subscribe, requested)) == [True, True, True, True, False, False]


def test_an_implicit_subscription_is_narrowed_to_the_allowed_part() -> None:
    held = rights("a may subscribe b.>", "a may subscribe =c", "a may subscribe polycast/>")
    assert held is not None
    assert held.narrow(Everything()) == [Prefix("b."), Exact("c")]
    assert held.narrow(Prefix("b.d")) == [Prefix("b.d")]
    assert held.narrow(Exact("all")) == []


# -- the cache of decisions ------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [(), ("a may publish+subscribe x>",)], ids=["no rights", "rights"])
def test_denied_names_take_bounded_memory(rules: tuple[str, ...]) -> None:
    """A peer without a token may send any number of names, each as long as a topic can be."""
    held = rights_of(map(parse_rule, rules), "a", "hermod")
    assert held is not None
    tracemalloc.start()
    try:
        for number in range(20_000):
            assert not held.may_publish(b"%01024d" % number)
            assert not held.may_subscribe(Exact(f"{number:01024}"))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2.5 * CACHE_BYTES
