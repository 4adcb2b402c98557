"""Topics that pipelines report on: each below the pipeline's own."""

from __future__ import annotations

import hashlib

from polycast.model import Limits

DIGEST_DIGITS = 16
LIMIT_BYTES = Limits().topic_bytes


def to_topic(below: str, topic: str) -> str:
    """A topic that would be too long with this in front ends in a digest of all of it."""
    whole = (below + topic).encode()
    if len(whole) <= LIMIT_BYTES:
        return below + topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:DIGEST_DIGITS]
    return whole[: LIMIT_BYTES - DIGEST_DIGITS - 1].decode(errors="ignore") + "~" + digest
