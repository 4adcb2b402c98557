"""The life of one part: what it is doing, since when, how often it had to be started again.

    waiting ─▶ starting ─▶ running          it is started, it says that it is ready
                 ▲   │        │
                 │   ▼        ▼
                 └─ resting ◀─┘             it ended, and is started again after a while
                     off, failed            it ended, and that would not help

A part that ends soon after it was started rests longer each time; one that ran for a while begins anew. The time
comes in as an argument, in seconds.
"""

from __future__ import annotations

from enum import StrEnum

from polycast.pipelines.service import SPARK_UNAVAILABLE
from polycast.pipelines.service.backoff import Backoff

WRONG_USAGE = 2
HOPELESS = (WRONG_USAGE, SPARK_UNAVAILABLE)
"""Exit codes of parts that would end with them again."""


class State(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    RESTING = "resting"
    OFF = "off"
    FAILED = "failed"
    STOPPED = "stopped"


class Event(StrEnum):
    BEGIN = "begin"
    READY = "ready"
    REST = "rest"
    GIVE_UP = "give up"
    FAIL = "fail"
    STOP = "stop"


TABLE: dict[tuple[State, Event], State] = {
    (State.WAITING, Event.BEGIN): State.STARTING,
    (State.WAITING, Event.GIVE_UP): State.OFF,
    (State.RESTING, Event.BEGIN): State.STARTING,
    (State.STARTING, Event.READY): State.RUNNING,
    (State.STARTING, Event.REST): State.RESTING,
    (State.STARTING, Event.GIVE_UP): State.OFF,
    (State.STARTING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.REST): State.RESTING,
    (State.RUNNING, Event.GIVE_UP): State.OFF,
    **{(state, Event.STOP): State.STOPPED for state in State},
}


class Life:
    def __init__(self, essential: bool = False) -> None:
        """`essential`: if it never came up there is no use in going on."""
        self.essential = essential
        self.state = State.WAITING
        self.since = 0.0
        self.restarts = 0
        self.reason = ""
        """Why it is not running, where there is a reason."""
        self.due = 0.0
        """When it is started again, while it rests."""
        self._rest = Backoff()
        self._came_up = False

    def begin(self, now: float) -> None:
        self.restarts += self.state is State.RESTING
        self._go(Event.BEGIN, now)

    def ready(self, now: float) -> None:
        self._came_up = True
        self._go(Event.READY, now)

    def end(self, now: float, code: int, reason: str) -> None:
        """Its process has ended with this code."""
        if self.essential and not self._came_up:
            self._go(Event.FAIL, now, reason)
        elif code in HOPELESS and not self.essential:
            self._go(Event.GIVE_UP, now, reason)
        else:
            lived = now - self.since if self.state is State.RUNNING else 0.0
            self.due = now + self._rest.after(lived)
            self._go(Event.REST, now, reason)

    def leave_out(self, now: float, reason: str) -> None:
        """It is not even tried."""
        self._go(Event.GIVE_UP, now, reason)

    def stop(self, now: float) -> None:
        self._go(Event.STOP, now)

    def _go(self, event: Event, now: float, reason: str = "") -> None:
        self.state = TABLE[self.state, event]
        self.since = now
        self.reason = reason
