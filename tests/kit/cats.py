"""nanocat and nngcat, which speak nanomsg on the command line.

Both print a received message with its length in front as msgpack, so that a message may hold any
bytes. Neither reports its connection; tests wait for the first delivery.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from pathlib import Path

from kit.program import Program, need

SIZES = {b"\xc4": 1, b"\xc5": 2, b"\xc6": 4}
"""Bytes of the length behind each first byte of a msgpack binary."""


@dataclass(frozen=True, slots=True)
class Cat:
    program: str
    package: str
    interval: str
    """The shortest time between two of its publications."""
    patience: tuple[str, ...] = ()
    """What makes it dial again where nobody listens yet."""

    def __str__(self) -> str:
        return self.program

    def subscriber(self, end: str, url: str, *prefixes: str) -> Listener:
        """A SUB that prints what it gets. `end` is "connect" or "bind"."""
        flags = [f"--subscribe={prefix}" for prefix in prefixes]
        return Listener(need(self.program, self.package), "--sub", *self._at(end, url), "--msgpack", *flags)

    def publisher(self, end: str, url: str, file: Path) -> Program:
        """A PUB that sends what is in the file again and again."""
        repeat = ("--interval", self.interval, "--file", str(file))
        return Program(need(self.program, self.package), "--pub", *self._at(end, url), *repeat)

    def socket(self, kind: str, url: str, file: Path) -> Program:
        """One that connects: it says what is in the file if its kind has something to say, and listens if not."""
        if kind == "pub":
            return self.publisher("connect", url, file)
        return Program(need(self.program, self.package), f"--{kind}", *self._at("connect", url), "--raw")

    def _at(self, end: str, url: str) -> tuple[str, ...]:
        return (f"--{end}", url, *self.patience) if end == "connect" else (f"--{end}", url)


NANOCAT = Cat("nanocat", "nanomsg-utils", "0.05")
NNGCAT = Cat("nngcat", "nng-utils", "1", ("--async",))
CATS = (NANOCAT, NNGCAT)


class Listener(Program):
    def __enter__(self) -> Listener:
        super().__enter__()
        return self

    def received_something(self) -> bool:
        return bool(self.read) or bool(select.select([self.stdout], [], [], 0)[0])

    def receives(self) -> bytes:
        """The next message."""
        width = SIZES[self._take(1)]
        return self._take(int.from_bytes(self._take(width), "big"))

    def receives_after(self, prelude: bytes) -> bytes:
        """The next message that is not the prelude."""
        while (message := self.receives()) == prelude:
            pass
        return message

    def _take(self, size: int) -> bytes:
        while len(self.read) < size:
            more = self.receive()
            assert more, f"ended in the middle of a message; got {self.read!r}; {self.stderr.read().decode()}"
            self.read += more
        taken, self.read = self.read[:size], self.read[size:]
        return taken
