"""The subscriptions of a connection in `hermod`: patterns, start positions, window and batch."""

from __future__ import annotations

from functools import partial
from typing import Any

from polycast.dialects.guard import Guard
from polycast.dialects.hermod.batches import NEEDS_THE_LOG, NEEDS_THE_LOG_HERE
from polycast.dialects.hermod.block_events import BlockEvents
from polycast.dialects.hermod.encoders import ENCODER, OK, PacedEncoder, to_error
from polycast.dialects.hermod.headers import (
    FORBIDDEN,
    Header,
    HermodError,
    to_natural,
    to_pattern,
    to_text,
    to_topic,
)
from polycast.dialects.json_bodies import UNSET, shown
from polycast.dialects.start_positions import LATEST, read_start_positions
from polycast.model import Exact, Limits, Pattern, Refused, Reply, StartPosition, Subscribe


class Subscriptions:
    def __init__(self, limits: Limits, has_log: bool) -> None:
        self._limits = limits
        self._has_log = has_log
        self._shared: dict[Pattern, None] = {}
        """Patterns that are subscribed with the shared encoder."""
        self._paced: PacedEncoder | None = None

    @property
    def withheld_bytes(self) -> int:
        return self._paced.withheld_bytes if self._paced else 0

    def close(self) -> None:
        if self._paced:
            self._paced.close()

    def subscribe(self, header: Header, events: BlockEvents, guard: Guard) -> None:
        wanted = self._read_patterns(header)
        if wanted is None:
            events.add(Refused(NEEDS_THE_LOG % "from"))
            events.add(Reply(to_error(501, NEEDS_THE_LOG_HERE % "from")))
            return
        if guard.restricted and not all(map(guard.may_subscribe, wanted)):
            events.add(Refused(FORBIDDEN, detail=guard.denial_text("subscribe to", ", ".join(map(str, wanted)))))
            events.add(Reply(to_error(403, FORBIDDEN)))
            return
        window, batch = _to_pace(header.window, "window"), _to_pace(header.batch, "batch")
        paces = window is not None or batch is not None
        if paces and not self._paced:
            self._paced = PacedEncoder()
        for pattern, start in self._to_encoder(wanted).items():
            events.add(Subscribe(pattern, self._paced or ENCODER, start=start))
        events.add(Reply(OK))
        if self._paced and paces:
            events.defer(partial(self._paced.set, window, batch), self._paced)

    def _read_patterns(self, header: Header) -> dict[Pattern, StartPosition | None] | None:
        """Each pattern with its start position; None if that needs the log, and there is none."""
        topics = [to_topic(topic, "one of the topics", self._limits) for topic in _to_list(header, "topics")]
        patterns = [to_pattern(text, self._limits) for text in _to_list(header, "patterns")]
        if header.from_ is not UNSET and header.from_ != "latest" and not self._has_log:
            return None
        starts = LATEST if header.from_ is UNSET else read_start_positions(header.from_, set(topics))
        wanted: dict[Pattern, StartPosition | None] = {Exact(topic): starts.of(topic) for topic in topics}
        return wanted | {pattern: starts.all for pattern in patterns if pattern not in wanted}

    def _to_encoder(self, wanted: dict[Pattern, StartPosition | None]) -> dict[Pattern, StartPosition | None]:
        """All patterns to subscribe, so that a paced connection has one encoder."""
        if not self._paced:
            self._shared |= dict.fromkeys(wanted)
            return wanted
        before: dict[Pattern, StartPosition | None] = dict.fromkeys(self._shared)
        self._shared = {}
        return before | wanted

    def acknowledge(self, header: Header, events: BlockEvents) -> None:
        """An OK without a window is allowed and ignored."""
        encoder = self._paced
        if header.sequence is not UNSET:
            topic = to_text(header.topic, "topic").encode()
            sequence = to_natural(header.sequence, "sequence")
            if encoder:
                events.defer(partial(encoder.acknowledge_up_to, topic, sequence), encoder)
        elif encoder:
            events.defer(encoder.acknowledge, encoder)


def _to_list(header: Header, key: str) -> list[Any]:
    value = getattr(header, key)
    if value is UNSET:
        return []
    if not isinstance(value, list):
        raise HermodError(400, f"{key} is {shown(value)}, expected a list of strings")
    return value


def _to_pace(value: Any, key: str) -> int | None:
    """For all topics of the connection; None: unchanged."""
    return None if value is UNSET else to_natural(value, key)
