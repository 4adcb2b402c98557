"""Settings of the broker's own features that stand in the table of a dialect: mesh, requests, staging."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """In the table `simplest`."""

    peers: list[str] = setting([], "brokers to link to, as HOST:PORT or tls://HOST:PORT")
    forward: bool = setting(False, "forward messages that arrive over one link to the other links, under //fwd/")
    announce: str = setting("", "publish this broker's address as ORG/NAME, or ORG/NAME=HOST:PORT")
    discover: list[str] = setting([], "link to the brokers that announce themselves in these ORGs")
    discover_networks: list[str] = setting(
        [], "networks in which announced brokers are dialled, as 10.0.0.0/8; empty: no announced broker is dialled"
    )
    discover_tls: bool = setting(False, "dial announced brokers over TLS; needs tls.ca")
    forward_memory_seconds: float = setting(
        10.0, "how long identical forwarded messages are dropped as duplicates", low=0.1
    )
    forward_memory_messages: int = setting(
        65_536, "maximum number of forwarded messages remembered to find duplicates", low=1
    )
    announce_seconds: float = setting(60.0, "time between two announcements", low=0.1)
    links: int = setting(64, "maximum number of links to discovered brokers", low=0)


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """In the table `ubre`."""

    request_seconds: float = setting(30.0, "time limit for a response", low=0.001)
    requests: int = setting(100_000, "maximum number of requests without a response", low=1)


@dataclass(frozen=True, slots=True)
class StagingSettings:
    """In the table `hermod`."""

    batch_topics: int = setting(
        100_000,
        "most topics in a batch with a batch_id, staged or not; the broker looks all of them up in one step, in "
        "about 20 µs each, and serves nothing else meanwhile",
        low=1,
    )
    stage_bytes: int = setting(
        1024 * 1024 * 1024,
        "bytes staged at a time, for all uncommitted batches; a row counts as its payload, its topic and about "
        "100 bytes",
        low=1,
    )
    identity_stage_bytes: int = setting(512 * 1024 * 1024, "bytes that one identity may stage at a time", low=1)
    identity_stages: int = setting(10_000, "maximum number of stages per identity", low=1)
    stage_seconds: float = setting(600.0, "drop a stage to which nothing is added for this long", low=0.001)
