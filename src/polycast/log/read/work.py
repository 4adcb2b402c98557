"""Resumable work: a generator that yields between two steps, and returns the result.

A scheduler alternates the steps of several such generators, and closes a generator whose result is no longer
needed. A step is small: some batches of rows, or one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


def once(act: Callable[..., T], *args: Any) -> Work[T]:
    """A function as one step."""
    yield from ()
    return act(*args)


def finish(work: Work[T]) -> T:
    """Runs all steps."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
