"""The names in the source use the words of docs/concepts/words.md, and a class name is defined once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kit.pages import ROOT

PACKAGE = ROOT / "src" / "polycast"
INSTEAD = {
    "answer": "response, reply or ack",
    "ask": "request or subscribe",
    "hear": "receive",
    "keeping": "housekeeping",
    "kept": "durable or buffered",
    "neighbour": "link",
    "receipt": "ack",
    "said": "sent",
    "say": "publish, send or report",
    "settle": "acknowledge",
    "tell": "send or report",
    "told": "sent",
    "wish": "subscription or request",
}
"""Words that the glossary replaces, in their simplest form, and the words to use."""
ENDINGS = ("", "s", "es", "d", "ed", "er", "ing")
INFLECTED = {
    "heard": "hear", "settling": "settle", **{f"{word}{ending}": word for word in INSTEAD for ending in ENDINGS}
}  # fmt: skip
FOREIGN = {"tell"}
"""Names that an interface of Python requires: `tell` of a file."""
DEFINED_TWICE: dict[str, str] = {}
"""Names of classes that may be defined more than once, each with the reason."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(), str(path))


def names_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a module defines: classes, functions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def words_of(name: str) -> list[str]:
    """`_readAnswer`, `READ_ANSWER` and `ReadAnswer` are the words read and answer."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def replaced_words(name: str) -> set[str]:
    return set() if name in FOREIGN else {INFLECTED[word] for word in words_of(name) if word in INFLECTED}


def test_words_are_found_in_names() -> None:
    assert words_of("_readAnswer2") == words_of("READ_ANSWER") == words_of("ReadAnswer") == ["read", "answer"]
    wrong = "asker Answers _told NEIGHBOURS settled settling wishes heard_from is_kept"
    for name in wrong.split():
        assert replaced_words(name), name
    for name in ["task", "mask", "housekeeping", "tell", "essay", "shear", "keep_alive"]:
        assert not replaced_words(name), name


def test_names_use_the_words_of_the_glossary() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: use {INSTEAD[word]}"
        for path, tree in trees()
        for name, line in ((path.stem, 1), *names_of(tree))
        for word in replaced_words(name)
    ]
    assert found == []


def test_a_class_name_is_defined_once() -> None:
    """Two classes of one name are two meanings of one word; rename one, or list the name with its reason."""
    defined = Counter(
        node.name for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in defined.items() if count > 1} == set(DEFINED_TWICE)
