from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting
from polycast.dialects.base import Role

NAME = "ubre"


@dataclass(frozen=True, slots=True)
class UbreSettings:
    request_seconds: float = setting(30.0, "how long a request may wait for its answer", low=0.001)
    requests: int = setting(100_000, "how many requests may wait for an answer at a time", low=1)


ROLES: tuple[Role, ...] = ()
