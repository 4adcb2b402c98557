"""The stages of `hermod`: rows that many connections bring, and that one commit publishes as a batch.

    {"batch_type": "Stage", "batch_id": I, "stage": S, "count": B, "payload_size": N, "checksum": sha1}PAYLOAD
    {"batch_type": "Commit", "batch_id": I, "stages": [S, ...], "count": R}
    {"batch_type": "Abort", "batch_id": I, "stages": [S, ...]}

The payload is an Arrow IPC stream; nobody looks into it here. `count` may be missing: B is how many rows were
staged under that name before, R how many there must be in all. Stages belong to the identity of the peer at the
moment of its header.
"""

from __future__ import annotations

from typing import Any

from polycast.dialects.hermod.batches import NOT_STORED, to_batch_id
from polycast.dialects.hermod.encoders import OK, to_error, to_ok
from polycast.dialects.hermod.headers import Header, HermodError, to_natural, to_size, to_text
from polycast.dialects.json_values import UNSET, shown
from polycast.model import Abort, BatchKey, Commit, Limits, Stage

NEEDS_THE_LOG = "a stage needs the log"
"""What it is counted under."""
NEEDS_THE_LOG_HERE = NEEDS_THE_LOG + ", which this broker does not keep; start it without --no-log"
NAME_BYTES = 256
SPARE_BYTES = 64 * 1024
"""What a frame may have besides one payload and its topic."""


def to_frame_limits(limits: Limits) -> Limits:
    """A message that may be published alone may be staged alone."""
    return Limits(limits.payload_bytes + limits.topic_bytes + SPARE_BYTES, limits.topic_bytes, limits.line_bytes)


def frame_size(header: Header, limits: Limits) -> int:
    """Raises what stands against a stage before any of its payload is read."""
    _to_name(header.stage, "stage")
    to_batch_id(header.batch_id)
    to_text(header.checksum, "checksum")
    _to_count(header)
    return to_size(header.payload_size, to_frame_limits(limits))


def to_stage(header: Header, data: bytes, unchecked: bool, owner: str) -> Stage | Abort:
    """A frame that is not checked where all must be costs its stage."""
    batch, name = BatchKey(owner, to_batch_id(header.batch_id)), _to_name(header.stage, "stage")
    checksum = to_text(header.checksum, "checksum").lower()
    if not checksum and not unchecked:
        required = to_error(422, "a checksum is required here (hermod.require_checksum)")
        return Abort(batch, (name,), required, to_error)
    return Stage(batch, name, data, checksum, _to_count(header), to_ok, to_error)


def to_commit(header: Header, owner: str) -> Commit:
    names = _to_names(header.stages)
    batch = BatchKey(owner, to_batch_id(header.batch_id))
    return Commit(batch, names, _to_count(header), to_ok, _refuse, to_error)


def to_abort(header: Header, owner: str) -> Abort:
    names = None if header.stages is UNSET else _to_names(header.stages)
    return Abort(BatchKey(owner, to_batch_id(header.batch_id)), names, OK, to_error)


def _refuse(reason: str, kept: int) -> bytes:
    return to_error(500, NOT_STORED % reason, 0)


def _to_count(header: Header) -> int | None:
    return None if header.count is UNSET else to_natural(header.count, "count")


def _to_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise HermodError(400, f"stages is {shown(value)}, expected a list of strings")
    names = tuple(_to_name(name, "one of the stages") for name in value)
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    if twice:
        raise HermodError(400, f"the stage {shown(min(twice))} is named twice; its rows can be in a batch once")
    return names


def _to_name(value: Any, key: str) -> str:
    size = len(value.encode()) if isinstance(value, str) else 0
    if not isinstance(value, str) or not 0 < size <= NAME_BYTES:
        found = f"has {size:,} bytes" if size else f"is {shown(value)}"
        raise HermodError(400, f"{key} {found}, expected a string of 1 to {NAME_BYTES} bytes")
    return value
