"""Access to Java and Scala objects for the gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Java = Any
"""A py4j proxy of a Java object."""


def class_of(value: Java) -> str:
    return str(value.getClass().getName())


def fold_case(name: str) -> str:
    """The same text for all names that are equal by Java's `equalsIgnoreCase`, which Spark compares names with.

    Java converts each character to upper case, then to lower case. So `ſ` equals `s`, and `İ` and `ı` equal `i`.
    """
    return "".join(_fold_character(character) for character in name)


def _fold_character(character: str) -> str:
    upper = character.upper()
    return (upper if len(upper) == 1 else character).lower()[:1]


def items(sequence: Java) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _fields_of(product: Java) -> Iterator[Any]:
    for number in range(product.productArity()):
        yield product.productElement(number)


def elements_of(name: str, holder: Java) -> Iterator[Any]:
    return items(holder) if name.startswith("scala.collection.") else _fields_of(holder)


def members_of(node: Java) -> Iterator[Any]:
    """The fields of a node and its children. Every known version of Spark has the children among the fields."""
    yield from _fields_of(node)
    yield node.children()
    yield node.innerChildren()


def location_of(node: Java) -> tuple[int, int]:
    """Start and stop index in the query text; (0, 0) if Spark does not know them."""
    try:
        start, last = node.origin().startIndex(), node.origin().stopIndex()
    except Exception:  # not a tree node: it has no origin
        return 0, 0
    if not (start.isDefined() and last.isDefined()):
        return 0, 0
    return int(start.get()), int(last.get()) + 1
