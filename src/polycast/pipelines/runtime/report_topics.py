"""Topics that pipelines publish reports to: a prefix and the topic that the report is about."""

from __future__ import annotations

import hashlib

from polycast.model import Limits

DIGEST_DIGITS = 16
LIMIT_BYTES = Limits().topic_bytes


def to_topic(prefix: str, topic: str) -> str:
    """A topic that exceeds the length limit is cut and ends in a digest."""
    whole = (prefix + topic).encode()
    if len(whole) <= LIMIT_BYTES:
        return prefix + topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:DIGEST_DIGITS]
    return whole[: LIMIT_BYTES - DIGEST_DIGITS - 1].decode(errors="ignore") + "~" + digest
