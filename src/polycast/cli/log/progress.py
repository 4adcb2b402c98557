"""A progress bar on a terminal, for commands that read or copy the whole log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polycast.cli import stdio

if TYPE_CHECKING:
    from rich.progress import Progress

    from polycast.log.backup.backup import Phase


class Report:
    """Does nothing if there is no bar."""

    def __init__(self, bar: Progress | None = None) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None) if bar else None

    def show(self, name: str, done: int, total: int) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=name, completed=done, total=total)

    def begin(self, phase: Phase) -> Callable[[int], None]:
        """Returns a function that takes the number of bytes done since its last call."""
        done = 0
        self.show(phase.name, 0, phase.total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.show(phase.name, done, phase.total)

        return advance


@contextmanager
def progress() -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield Report()
        return
    from rich.progress import Progress

    with Progress(console=stdio.to_console(sys.stderr), transient=True) as bar:
        yield Report(bar)
