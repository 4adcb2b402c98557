"""A broker is killed at random moments while publishers wait for acknowledgements.

Afterwards, with any settings: every acknowledged message is in the log, once and unchanged; every batch with an id
is complete and durable once; the messages of each publisher are in order; offsets and sequences rise and are never
reused, not even those that only a live subscriber has seen; every gap is recorded. With `sync = interval` and
`never` this holds because a killed process loses no written data; a power failure may.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from crash.episode import Episode

ROUNDS = int(os.environ.get("POLYCAST_CRASH", "10"))
SEED = os.environ.get("POLYCAST_CRASH_SEED") or str(random.randrange(10**9))
SYNCS = ("always", "interval", "always", "never")
EPISODES = max(len(SYNCS), ROUNDS // 10)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(EPISODES))
def test_a_broker_is_killed(tmp_path: Path, number: int) -> None:
    sync = SYNCS[number % len(SYNCS)]
    rounds = (ROUNDS + number) // EPISODES
    print(f"POLYCAST_CRASH_SEED={SEED}, episode {number}: sync {sync}, {rounds} rounds")  # noqa: T201
    print(Episode(tmp_path, f"{SEED}-{number}", sync).play(rounds))  # noqa: T201
