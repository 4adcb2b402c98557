"""The brokers of the option `at`: an operation uses the first that responds, and moves on to the next if that one
fails. Several brokers are nodes of one cluster: they have the same log, but one may be behind.

While no broker responds, an operation is repeated with growing pauses, for up to `retrySeconds` after its first
failure, so that a query survives the restart of a broker.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from polycast.address import split_addresses
from polycast.client.resume import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, PAUSE_SHARES
from polycast.errors import RefusedError, RemoteError

log = logging.getLogger("polycast.spark")

T = TypeVar("T")

NOT_DURABLE, NO_STAGE, STOPPING = 500, 404, 503
PASSING = (NOT_DURABLE, STOPPING)
"""Transient refusals: the disk of the broker is full, or the broker stops."""


class Brokers:
    def __init__(
        self,
        at: str,
        retry_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        first: int = 0,
    ) -> None:
        """`first`: the index of the broker to try first; tasks have different ones."""
        self._addresses = split_addresses(at)
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._sleep = sleep
        self._current = first % len(self._addresses)

    @property
    def are_several(self) -> bool:
        return len(self._addresses) > 1

    @property
    def current(self) -> str:
        """The address of the broker that responded last, or the first one to try."""
        return self._addresses[self._current]

    def run(self, attempt: Callable[[str], T]) -> T:
        """The result of `attempt` at the first broker that responds. Raises the last error when time is up."""
        failed_since: float | None = None
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._try_each(attempt)
            except RemoteError as error:
                now = self._clock()
                failed_since = now if failed_since is None else failed_since
                left = failed_since + self._retry_seconds - now
                if left <= 0 or not self._passes(error):
                    raise self._explain(error, now - failed_since) from error
                log.warning("%s; trying again for %.0f s (retrySeconds)", error, left)
            self._sleep(min(left, pause * random.uniform(*PAUSE_SHARES)))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _try_each(self, attempt: Callable[[str], T]) -> T:
        for number in range(len(self._addresses)):
            try:
                return attempt(self.current)
            except RemoteError as error:
                if not self._passes(error):
                    raise
                self._current = (self._current + 1) % len(self._addresses)
                if number == len(self._addresses) - 1:
                    raise
        raise AssertionError("there is at least one address")

    def _passes(self, error: RemoteError) -> bool:
        """Whether the operation may succeed later, or at another broker, which may have the stage."""
        if not isinstance(error, RefusedError):
            return True
        return error.code in PASSING or (error.code == NO_STAGE and self.are_several)

    def _explain(self, error: RemoteError, seconds: float) -> RemoteError:
        if not self._passes(error):
            return error
        shown = ", ".join(address.partition("?")[0] for address in self._addresses)  # without a token
        hint = "; ".join(filter(None, (error.hint, "retrySeconds sets how long to try")))
        return RemoteError(f"{error}; tried {shown} for {seconds:.0f} s", hint)
