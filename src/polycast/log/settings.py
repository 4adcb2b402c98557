"""The settings of the log."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting
from polycast.log.files.permissions import OWNER, UMASKS
from polycast.text import parse_size

MIB = 1024 * 1024
AUTO = "auto"
AUTO_SHARE, AUTO_BYTES = 0.1, 2048 * MIB
"""The free space for `keep_free = "auto"`: a share of the file system, with a limit in bytes."""


def keep_free_bytes(keep_free: str, capacity: int) -> int:
    """The bytes to keep free on a file system of that size. Raises ValueError for an invalid size."""
    if keep_free.strip().lower() == AUTO:
        return min(int(capacity * AUTO_SHARE), AUTO_BYTES)
    return parse_size(keep_free)


@dataclass(frozen=True, slots=True)
class LogSettings:
    enabled: bool = setting(True, "store accepted messages in the data folder")
    data: str = setting("polycast-data", "the data folder")
    sync: str = setting(
        "always",
        "when written messages are fsynced: before they are acknowledged, every sync_seconds, or never "
        "(the operating system decides)",
        choices=("always", "interval", "never"),
    )
    sync_seconds: float = setting(1.0, "seconds between two fsyncs, with sync = interval", low=0.001)
    gather_seconds: float = setting(
        0.005,
        "time for which messages gather before they are written, if neither a publisher nor a subscriber waits "
        "until they are durable",
        low=0,
    )
    delivery: str = setting(
        "live", "whether messages are delivered at once, or when they are durable", choices=("live", "committed")
    )
    pending_bytes: int = setting(
        64 * MIB, "bytes that wait to become durable before publishers are paused", low=65_536
    )
    segment_bytes: int = setting(64 * MIB, "size of a hot segment", low=65_536)
    segment_seconds: float = setting(
        3600.0, "age at which a hot segment is closed, when the next message arrives; 0: never", low=0
    )
    seal: bool = setting(True, "seal full segments: convert them to Parquet")
    seal_share: float = setting(0.25, "share of one core for sealing, from 0.01 to 1", low=0.01)
    retain_bytes: int = setting(0, "remove the oldest segments while the log is larger; 0: never", low=0)
    retain_seconds: float = setting(0.0, "remove segments whose messages are all older; 0: never", low=0)
    keep_free: str = setting(
        "auto",
        "remove the oldest segments while less than this is free on the file system of the log: bytes, or a size "
        "such as 2GiB; auto: 10 % of the file system, 2GiB at most; 0: never",
        parse=lambda text: keep_free_bytes(text, 0),
    )
    access: str = setting(
        OWNER,
        "accounts of this machine that may read the data folder and its files",
        choices=tuple(UMASKS),
    )
    batch_ids: int = setting(100_000, "number of batch ids that are remembered", low=0)
    batch_id_seconds: float = setting(86_400.0, "time for which a batch id is remembered", low=0)
