"""The lifecycle of one part: its state, since when, and its restarts.

    waiting ─▶ starting ─▶ running          process started; process printed `ready`
                 ▲   │        │
                 │   ▼        ▼
                 └─ resting ◀─┘             exited; restarts after a delay
                     off, failed            exited; a restart would not help

The delay grows with each early exit, and starts over after a long run. Times come in as arguments, in seconds.
"""

from __future__ import annotations

from enum import StrEnum

from polycast.pipelines.service import SPARK_UNAVAILABLE
from polycast.pipelines.service.backoff import Backoff

USAGE_ERROR = 2
PERMANENT_EXIT_CODES = (USAGE_ERROR, SPARK_UNAVAILABLE)
"""A restart would end with the same exit code."""


class PartState(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    RESTING = "resting"
    OFF = "off"
    FAILED = "failed"
    STOPPED = "stopped"


class PartEvent(StrEnum):
    BEGIN = "begin"
    READY = "ready"
    REST = "rest"
    GIVE_UP = "give up"
    FAIL = "fail"
    STOP = "stop"


TABLE: dict[tuple[PartState, PartEvent], PartState] = {
    (PartState.WAITING, PartEvent.BEGIN): PartState.STARTING,
    (PartState.WAITING, PartEvent.GIVE_UP): PartState.OFF,
    (PartState.RESTING, PartEvent.BEGIN): PartState.STARTING,
    (PartState.STARTING, PartEvent.READY): PartState.RUNNING,
    (PartState.STARTING, PartEvent.REST): PartState.RESTING,
    (PartState.STARTING, PartEvent.GIVE_UP): PartState.OFF,
    (PartState.STARTING, PartEvent.FAIL): PartState.FAILED,
    (PartState.RUNNING, PartEvent.REST): PartState.RESTING,
    (PartState.RUNNING, PartEvent.GIVE_UP): PartState.OFF,
    **{(state, PartEvent.STOP): PartState.STOPPED for state in PartState},
}


class Lifecycle:
    def __init__(self, essential: bool = False) -> None:
        """`essential`: if the first start fails, `polycast up` fails."""
        self.essential = essential
        self.state = PartState.WAITING
        self.since = 0.0
        self.restarts = 0
        self.reason = ""
        """Why the part is not running."""
        self.due = 0.0
        """Time of the next start, while resting."""
        self._backoff = Backoff()
        self._was_ready = False

    def begin(self, now: float) -> None:
        self.restarts += self.state is PartState.RESTING
        self._go(PartEvent.BEGIN, now)

    def ready(self, now: float) -> None:
        self._was_ready = True
        self._go(PartEvent.READY, now)

    def end(self, now: float, code: int, reason: str) -> None:
        """The process exited with `code`."""
        if self.essential and not self._was_ready:
            self._go(PartEvent.FAIL, now, reason)
        elif code in PERMANENT_EXIT_CODES and not self.essential:
            self._go(PartEvent.GIVE_UP, now, reason)
        else:
            uptime = now - self.since if self.state is PartState.RUNNING else 0.0
            self.due = now + self._backoff.after(uptime)
            self._go(PartEvent.REST, now, reason)

    def disable(self, now: float, reason: str) -> None:
        """The part cannot run here."""
        self._go(PartEvent.GIVE_UP, now, reason)

    def stop(self, now: float) -> None:
        self._go(PartEvent.STOP, now)

    def _go(self, event: PartEvent, now: float, reason: str = "") -> None:
        self.state = TABLE[self.state, event]
        self.since = now
        self.reason = reason
