"""Objects of Java and Scala, as the gate looks into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Java = Any
"""An object of Java."""


def class_of(value: Java) -> str:
    return str(value.getClass().getName())


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
    """What a node is made of, and what it calls its children: they are the same, in all versions so far."""
    yield from _fields_of(node)
    yield node.children()
    yield node.innerChildren()


def location_of(node: Java) -> tuple[int, int]:
    """Where in the text it is; (0, 0) where Spark does not say."""
    try:
        begin, end = node.origin().startIndex(), node.origin().stopIndex()
    except Exception:  # no node of a tree: it has no origin
        return 0, 0
    if not (begin.isDefined() and end.isDefined()):
        return 0, 0
    return int(begin.get()), int(end.get()) + 1
