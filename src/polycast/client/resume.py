"""Reconnect: order of addresses, back-off, and messages to send again. No I/O, no clock.

After a disconnect a client tries its other addresses at once, then all of them in turn, with growing pauses.
Pauses start again from the shortest one after a connection that did its work: something was received or
acknowledged, or it lasted for `STABLE_SECONDS`. So there is no busy loop at a broker that accepts and closes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from polycast.client.failures import passes
from polycast.client.states import OnState, State, StateChange
from polycast.dialects.client_session import ClientSession, Command, Missed
from polycast.errors import RefusedError, RemoteError

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
PAUSE_SHARES = (0.5, 1.0)
"""Clients that lost the same broker do not return at the same moment."""
STABLE_SECONDS = 5.0

Dial = Callable[[], ClientSession]
"""Makes the session for one address. It may read files and, for an http address, send a request to the broker."""


class Resume:
    def __init__(
        self,
        dials: list[Dial],
        reconnect: bool = True,
        on_state: OnState = lambda change: None,
        dials_block: bool = False,
        share: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.reconnect = reconnect
        self.reconnects = 0
        self.error: RemoteError | None = None
        """Why the last attempt failed, or the last connection ended."""
        self.dials_block = dials_block
        """Whether making a session takes time, for a request to a broker."""
        self._dials = dials
        self._on_state = on_state
        self._share = share
        self._current = -1
        self._attempts = 0
        """Attempts since the last connection that did its work."""
        self._connected_at = 0.0
        self._recognized = False
        """Whether a broker has ever sent something in this dialect."""
        self._session: ClientSession | None = None
        """The last session that took over the subscriptions of this client."""
        self._text = ""

    # -- where, and when ---------------------------------------------------------------------------------

    @property
    def addresses(self) -> int:
        return len(self._dials)

    def pause(self) -> float:
        """Seconds before the next attempt."""
        turn, rest = divmod(self._attempts - (self.addresses - 1), self.addresses)
        if turn < 0 or rest:
            return 0.0
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(turn, 16), LONGEST_PAUSE_SECONDS)
        return longest * self._share(*PAUSE_SHARES)

    def next_dial(self) -> Dial:
        """Advances to the next address."""
        self._attempts += 1
        self._current = (self._current + 1) % self.addresses
        return self._dials[self._current]

    def begin(self, session: ClientSession) -> None:
        """The client dials for this session."""
        session.resumes = self.reconnect
        session.on_missed = self._miss
        self._text = str(session.address)
        self._report(State.CONNECTING, f"connecting to {self._text}")

    def may_return(self, session: ClientSession, error: RemoteError) -> bool:
        """Whether another connection may succeed where this one failed."""
        self._recognized = self._recognized or session.recognized
        wrong_address = session.failure is not None and not self._recognized
        return self.reconnect and passes(error) and not wrong_address

    def fail(self, error: RemoteError) -> None:
        """An attempt to connect failed."""
        self._report(State.DISCONNECTED, str(error), error)

    def lose(self, session: ClientSession, error: RemoteError, now: float) -> bool:
        """Whether the client drops the connection, to reconnect: not after a refusal that leaves it open.

        What the session has not read yet is read again after a reconnect, or lost.
        """
        if isinstance(error, RefusedError) and not session.closing:
            return False
        if self.reconnect:
            session.failure = session.failure or error
        if session.progressed or now - self._connected_at >= STABLE_SECONDS:
            self._attempts = 0
        self._report(State.DISCONNECTED, str(error), error)
        return self.reconnect

    def close(self) -> None:
        self._report(State.CLOSED, "closed")

    # -- what is sent again ------------------------------------------------------------------------------

    def commands(self, session: ClientSession) -> list[Command]:
        """For a session that has completed its handshake."""
        before, self._session = self._session, session
        return session.resume(before) if before else []

    def connected(self, session: ClientSession, now: float) -> None:
        """All commands are acknowledged."""
        again = self._connected_at > 0
        self._connected_at = now
        self.reconnects += again
        if not again:
            self._attempts = 0
            self._report(State.CONNECTED, f"connected to {self._text}")
        elif _is_resumed(session):
            self._report(State.RESUMED, f"connected again to {self._text}; nothing is lost")
        else:
            self._report(State.CONNECTED, f"connected again to {self._text}; messages in between may be lost")

    def _miss(self, missed: Missed) -> None:
        self._report(State.GAP, missed.text, None, missed.first, missed.next)

    def _report(
        self,
        state: State,
        text: str,
        error: RemoteError | None = None,
        first: int | None = None,
        after: int | None = None,
    ) -> None:
        self.error = error or self.error
        self._on_state(StateChange(state, self._text, error, first, after, text))


def _is_resumed(session: ClientSession) -> bool:
    """Whether the session continues where the last one ended, exactly."""
    if session.publishing:
        return session.resends
    subscriptions = list(session.subscriptions)
    return bool(subscriptions) and all(each.next is not None or each.alone for each in subscriptions)
