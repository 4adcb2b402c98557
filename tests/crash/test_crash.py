"""A broker is killed at random moments while publishers wait for acknowledgements.

Afterwards, whatever the settings: every message that was acknowledged is in the log, once and as it was sent;
every batch with an id is there as a whole and once; each publisher's messages are in its order; offsets and
sequences rise and are never used again, not even those that only a live subscriber has seen; every jump is on
record. With `sync = interval` and `never` that is so because a killed process loses nothing that was written; a
power failure may.
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
