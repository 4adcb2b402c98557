"""The settings of `hermod`."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting
from polycast.dialects.settings import StagingSettings


@dataclass(frozen=True, slots=True)
class HermodSettings(StagingSettings):
    require_checksum: bool = setting(False, "refuse messages with an empty checksum, which means unchecked")
    batch_bytes: int = setting(
        64 * 1024 * 1024,
        "largest batch with a batch_id; a message counts as its payload, its topic and 100 bytes",
        low=1,
    )
