"""Gaps that the log recorded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segments
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.quarantine import read_lost
from polycast.log.files.sealed import SealedReader


def known_gaps(folder: Path) -> list[Gap]:
    """Sorted by offset. Reads only metadata of segments; skips segments that are removed or damaged."""
    gaps = set(read_lost(folder))
    for segment in segments(folder):
        with suppress(FileNotFoundError, LogDamageError):
            gaps.update(_gaps_of(segment))
    return sorted(gaps, key=lambda gap: gap.first)


def _gaps_of(segment: Segment) -> list[Gap]:
    if segment.sealed:
        with SealedReader(segment.path) as sealed:
            return sealed.metadata.gaps
    reader = HotReader(segment.path)
    try:
        return [header.gap for _, header in reader.headers() if header.gap]
    finally:
        reader.close()
