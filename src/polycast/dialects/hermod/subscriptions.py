"""The subscriptions of a connection in `hermod`: patterns, start positions, offsets, window and batch."""

from __future__ import annotations

from functools import partial
from typing import Any

from polycast.dialects.guard import Guard
from polycast.dialects.hermod.batches import NEEDS_THE_LOG, NEEDS_THE_LOG_HERE
from polycast.dialects.hermod.block_events import BlockEvents
from polycast.dialects.hermod.encoders import (
    ENCODER,
    OFFSET_ENCODER,
    OK,
    PacedEncoder,
    to_error,
    to_handshake_ok,
)
from polycast.dialects.hermod.headers import (
    FORBIDDEN,
    Header,
    HermodError,
    to_flag,
    to_natural,
    to_pattern,
    to_text,
    to_topic,
)
from polycast.dialects.json_bodies import UNSET, shown
from polycast.dialects.session import SessionContext
from polycast.dialects.start_positions import LATEST, read_start_positions
from polycast.model import Encoder, Exact, Pattern, Refused, Reply, StartPosition, Subscribe

DELIVERIES = ("live", "committed")


class Subscriptions:
    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._limits = context.limits
        self._has_log = context.has_log
        self._patterns: dict[Pattern, None] = {}
        self._encoder: Encoder = ENCODER
        self._paced: PacedEncoder | None = None
        self._offsets = False

    @property
    def withheld_bytes(self) -> int:
        return self._paced.withheld_bytes if self._paced else 0

    def close(self) -> None:
        if self._paced:
            self._paced.close()

    def notify(self, notice: bytes) -> bytes:
        """What to send now: behind withheld messages, the notice is withheld, too."""
        return self._paced.notify(notice) if self._paced else notice

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
        self._check_log(header.log)
        committed = _to_committed(header.delivery) and self._has_log
        offsets = to_flag(header.offsets, "offsets") and self._has_log
        window, batch = _to_pace(header.window, "window"), _to_pace(header.batch, "batch")
        paces = window is not None or batch is not None
        for pattern, start in self._to_encoder(wanted, paces, offsets).items():
            events.add(Subscribe(pattern, self._encoder, start=start, committed=committed))
        log_id, log_next = self._context.log_id, self._context.log_next
        events.add(Reply(to_handshake_ok(log_id, log_next()) if offsets else OK))
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

    def _check_log(self, wanted: Any) -> None:
        """The peer has offsets of a log; those of another log would be other messages."""
        found = self._context.log_id
        if wanted is not UNSET and to_text(wanted, "log") != found:
            raise HermodError(
                412,
                f"log {shown(wanted)} is not the log of this broker, which is {found or 'none'}: its offsets do "
                "not apply here; subscribe anew, from earliest or latest",
            )

    def _to_encoder(
        self, wanted: dict[Pattern, StartPosition | None], paces: bool, offsets: bool
    ) -> dict[Pattern, StartPosition | None]:
        """All patterns to subscribe, so that a connection has one encoder."""
        before: dict[Pattern, StartPosition | None] = dict.fromkeys(self._patterns)
        self._patterns |= dict.fromkeys(wanted)
        self._offsets = self._offsets or offsets
        if paces and not self._paced:
            self._paced = PacedEncoder()
        if self._paced:
            self._paced.offsets = self._offsets
        encoder = self._paced or (OFFSET_ENCODER if self._offsets else ENCODER)
        if encoder is self._encoder:
            return wanted
        self._encoder = encoder
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


def _to_committed(value: Any) -> bool:
    if value is not UNSET and value not in DELIVERIES:
        raise HermodError(400, f"delivery is {shown(value)}, expected {' or '.join(DELIVERIES)}")
    return bool(value == "committed")
