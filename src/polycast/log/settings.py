"""The settings of the log."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import parse_size, setting
from polycast.log.files.permissions import OWNER, UMASKS

MIB = 1024 * 1024
AUTO = "auto"
AUTO_SHARE, AUTO_BYTES = 0.1, 2048 * MIB
"""What `keep_free = "auto"` keeps free: that share of the file system, that many bytes at most."""


def keep_free_bytes(keep_free: str, capacity: int) -> int:
    """How many bytes stay free on a file system of that size. ValueError: it is no size."""
    if keep_free.strip().lower() == AUTO:
        return min(int(capacity * AUTO_SHARE), AUTO_BYTES)
    return parse_size(keep_free)


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
    keep_free: str = setting(
        "auto",
        "remove the oldest segments while less than this is free on the file system of the log: bytes, or a size "
        "such as 2GiB; auto: 10 % of the file system, 2GiB at most; 0: never",
        parse=lambda text: keep_free_bytes(text, 0),
    )
    access: str = setting(
        OWNER,
        "which accounts of this machine may read the data folder and all in it",
        choices=tuple(UMASKS),
    )
    batch_ids: int = setting(100_000, "how many batch ids are remembered", low=0)
    batch_id_seconds: float = setting(86_400.0, "how long a batch id is remembered", low=0)
