"""Shapes of JSON values: their fields and types.

A shape is a JSON value with each scalar replaced by its type. The messages of a topic have few distinct shapes, so
each is analysed once. Field paths are written as in Spark's functions: `$.order.items[].price`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

OBJECT, ARRAY, STRING, NUMBER, BOOLEAN, NULL = "object", "array", "string", "number", "boolean", "null"
PLAIN: dict[type, str] = {str: STRING, int: NUMBER, float: NUMBER, bool: BOOLEAN, type(None): NULL}
"""Integers and floats are one type: 1 and 1.0 often occur in the same field."""
ROOT = "$"


def shape_of(value: Any) -> Hashable:
    kind = type(value)
    if kind is dict:
        return (OBJECT, tuple([(name, shape_of(each)) for name, each in value.items()]))
    if kind is list:
        return (ARRAY, frozenset([shape_of(each) for each in value]))
    return PLAIN[kind]


def fields_of(shape: Any, path: str = ROOT) -> Iterator[tuple[str, str]]:
    """Each field with its type. A field of array elements may have several types."""
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
