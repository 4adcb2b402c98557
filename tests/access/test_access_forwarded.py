"""The right to the original topic decides, under whatever name a message is forwarded."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.broker.mesh import FORWARDED, to_forwarded
from polycast.model import Contains, Everything, Exact, Pattern, Prefix, parse_pattern
from polycast.server.access.rules import Rights, parse_rule, rights_of

BEGINS = ("", "/", "//", "x", "//x", "//fwd", "polycast/")
VALUES = ("", "a", "ab", "/a", "fwd/a", "d/a", "//a")
ENDS = ("", "b", "/a", "a")
DIRECT = sorted({"".join(parts) for parts in product(BEGINS, VALUES, ENDS)})
DIRECT = [name for name in DIRECT if not name.startswith(FORWARDED)]
"""Topics as clients publish them."""
COPIES = sorted({to_forwarded(name.encode()).decode() for name in DIRECT if not name.startswith("polycast/")})
PATTERNS: list[Pattern] = [
    Everything(),
    *(
        kind(value)
        for kind in (Exact, Prefix, Contains)
        for value in (
            "a", "ab", "/", "//", "/a", "//a", "//x", "x", "//f", "//fwd", "//fwd/", "//fwd/a", "//fwd//a",
            "//fwd/x", "d/a", "wd/", "fwd/", "/fwd/a", "polycast/", "//fwd/polycast/a", "//fwd/fwd/a",
        )
    ),
]  # fmt: skip


def rights(*texts: str) -> Rights:
    held = rights_of(map(parse_rule, texts), "a", "simplest")
    assert held is not None
    return held


def published_as(topic: str) -> list[str]:
    """All topics that the mesh may have forwarded under this name, by the mesh's own rule."""
    if topic not in COPIES:
        return [topic]
    rest = topic.removeprefix(FORWARDED)
    made = [name for name in (rest, "//" + rest) if to_forwarded(name.encode()) == topic.encode()]
    return [name for name in made if name[:9] != "polycast/" and not name.startswith(FORWARDED)]


@pytest.mark.parametrize("rule", PATTERNS, ids=str)
def test_a_subscription_delivers_no_message_whose_original_topic_is_forbidden(rule: Pattern) -> None:
    held = rights(f"a may subscribe {rule}")
    allowed = {
        name for topic in (*DIRECT, *COPIES) for name in published_as(topic) if held.may_subscribe(Exact(name))
    }
    for requested in PATTERNS:
        if held.may_subscribe(requested):
            received = [topic for topic in (*DIRECT, *COPIES) if requested.matches(topic)]
            leaked = [topic for topic in received if not allowed.issuperset(published_as(topic))]
            assert not leaked, (str(rule), str(requested), leaked[:3])


@pytest.mark.parametrize("rule", PATTERNS, ids=str)
def test_no_right_is_wider_than_its_rule(rule: Pattern) -> None:
    """Except topics with one slash, which are ambiguous with copies of two."""
    held = rights(f"a may subscribe {rule}", f"a may publish {rule}", f"a may query {rule}")
    for name in DIRECT:
        slashed = isinstance(rule, Contains) and rule.value[:2] == "//" and len(rule.value) > 2
        copied = slashed and name.startswith(rule.value[1:])
        assert held.may_subscribe(Exact(name)) == (rule.matches(name) or copied), name
        assert held.may_publish(name.encode()) == rule.matches(name), name
    assert all(held.may_subscribe(pattern) for pattern in held.query_patterns)
    assert all(held.may_subscribe(pattern) for pattern in held.narrow(Everything()))


@given(st.lists(st.sampled_from(PATTERNS), max_size=4), st.sampled_from(DIRECT))
def test_the_right_to_a_copy_needs_the_right_to_every_possible_original(rules: list[Pattern], name: str) -> None:
    """`//fwd/fwd/a` also goes to subscribers of `//fwd/a`, and needs more than the right to `fwd/a`."""
    held = rights(*(f"a may publish+subscribe {rule}" for rule in rules))
    copy = to_forwarded(name.encode())
    sources = published_as(copy.decode())
    publishes = all(held.may_publish(source.encode()) for source in sources)
    subscribes = all(held.may_subscribe(Exact(source)) for source in sources)
    nested = copy.startswith(b"//fwd/fwd/")
    assert held.may_publish(copy) == publishes or (nested and publishes)
    assert held.may_subscribe(Exact(copy.decode())) == subscribes or (nested and subscribes)


@pytest.mark.parametrize(
    ("rules", "allowed", "refused"),
    [
        (("open.>",), ("open.1", "open.a.>"), ("//fwd/open.1", "//fwd/>", "//open.1")),
        (("open.>", "//open.>"), ("//fwd/open.1", "//fwd/open.a.>"), ("//fwd/ope>", "~//fwd/open.", "//fwd/x")),
        (("~open",), ("~open", "//fwd/open.1", "//fwd/open.>", "~//fwd/open"), ("//fwd/>", "~ope")),
        (("~//org/",), ("~//org/", "//org/>", "~//org/a"), ("//fwd/org/x", "~/org/")),
        (("//>",), ("//org/>", "//x"), ("//>", "//f>", "//fwd/>", "//fwd/x")),
        (("//fwd/>", "~//fwd/", "//fwd/secret.x"), (), ("//fwd/>", "~//fwd/", "//fwd/secret.x", "secret.x")),
        (("~/secret",), ("a/secret",), ("~/secret", "secret.x", "//fwd/secret.x")),
        ((">",), (">", "~", "//>", "//fwd/>", "~//fwd/", "//fwd//x", "//fwd/" * 100 + "x"), ("polycast/x",)),
        (("~secret",), ("//fwd/fwd/secret",), ("//fwd/" * 100 + "secret",)),
    ],
    ids=lambda texts: " ".join(texts) if isinstance(texts, tuple) else None,
)
def test_allowed_patterns(rules: tuple[str, ...], allowed: tuple[str, ...], refused: tuple[str, ...]) -> None:
    held = rights(*(f"a may subscribe {rule}" for rule in rules))
    assert [text for text in allowed if not held.may_subscribe(parse_pattern(text))] == []
    assert [text for text in refused if held.may_subscribe(parse_pattern(text))] == []


def test_an_implicit_subscription_excludes_copies_of_forbidden_topics() -> None:
    held = rights("a may subscribe //>", "a may subscribe //fwd/>", "a may subscribe open.>")
    assert held.narrow(Everything()) == [Prefix("open.")]


def test_the_empty_topic_is_forwarded_under_a_name_that_a_right_to_two_slashes_does_not_cover() -> None:
    held = rights("a may publish+subscribe //")
    assert to_forwarded(b"") == to_forwarded(b"//") == FORWARDED.encode()
    assert held.may_publish(b"//") and not held.may_publish(b"") and not held.may_publish(FORWARDED.encode())
    assert held.may_subscribe(Exact("//")) and not held.may_subscribe(Exact(FORWARDED))
    assert rights("a may publish+subscribe >").may_subscribe(Exact(FORWARDED))
