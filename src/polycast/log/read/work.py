"""Work that can pause: a generator that yields between two pieces of work, and returns the result.

A scheduler runs such work in turns with other work, and closes it where nobody waits for the result any more. A
piece is small: some batches of rows, or one segment that is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


def once(act: Callable[..., T], *args: Any) -> Work[T]:
    """A function as one piece of work."""
    yield from ()
    return act(*args)


def finish(work: Work[T]) -> T:
    """Runs all pieces at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
