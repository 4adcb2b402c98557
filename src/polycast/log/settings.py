"""The settings of the log."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogSettings:
    enabled: bool = setting(True, "keep what was accepted in the data folder")
    data: str = setting("polycast-data", "the data folder")
    sync: str = setting(
        "always",
        "when what was written is made safe against a power failure: before it is acknowledged, "
        "every sync_seconds, or when the system likes",
        choices=("always", "interval", "never"),
    )
    sync_seconds: float = setting(1.0, "the time between two syncs, with sync = interval", low=0.001)
    delivery: str = setting(
        "live", "whether subscribers get messages at once, or when they are kept", choices=("live", "committed")
    )
    pending_bytes: int = setting(64 * MIB, "what may wait to be kept; past it publishers are not read", low=65_536)
    segment_bytes: int = setting(64 * MIB, "how large a hot segment grows", low=65_536)
    segment_seconds: float = setting(3600.0, "how old a hot segment grows while messages come; 0: any age", low=0)
    seal: bool = setting(True, "turn full segments into Parquet")
    seal_share: float = setting(0.25, "how much of one core sealing may take, from 0.01 to 1", low=0.01)
    retain_bytes: int = setting(0, "remove the oldest segments past this size; 0: never", low=0)
    retain_seconds: float = setting(0.0, "remove segments whose messages are all older; 0: never", low=0)
    batch_ids: int = setting(100_000, "how many batch ids are remembered", low=0)
    batch_id_seconds: float = setting(86_400.0, "how long a batch id is remembered", low=0)
