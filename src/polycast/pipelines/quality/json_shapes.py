"""What JSON looks like, apart from what it says: which fields there are, and of which type.

A shape is a value with the types in place of the contents. Messages of one topic have few of them, so that each
has to be taken apart only once. Fields are named as in Spark's functions: `$.order.items[].price`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

OBJECT, ARRAY, STRING, NUMBER, BOOLEAN, NULL = "object", "array", "string", "number", "boolean", "null"
PLAIN: dict[type, str] = {str: STRING, int: NUMBER, float: NUMBER, bool: BOOLEAN, type(None): NULL}
"""Whether a number is a whole one is often an accident."""
ROOT = "$"


def shape_of(value: Any) -> Hashable:
    kind = type(value)
    if kind is dict:
        return (OBJECT, tuple([(name, shape_of(each)) for name, each in value.items()]))
    if kind is list:
        return (ARRAY, frozenset([shape_of(each) for each in value]))
    return PLAIN[kind]


def fields_of(shape: Any, path: str = ROOT) -> Iterator[tuple[str, str]]:
    """Each field with its type; a field of the elements of an array may come with several."""
    if isinstance(shape, str):
        yield path, shape
        return
    kind, inner = shape
    yield path, kind
    if kind == OBJECT:
        for name, each in inner:
            yield from fields_of(each, f"{path}.{name}")
    else:
        for each in inner:
            yield from fields_of(each, f"{path}[]")
