"""`python -m polycast` with a low limit on the messages that a commit can name."""

from __future__ import annotations

from polycast.cli import main
from polycast.cluster.sequencer import JetStreamSequencer

LIMIT = 4

if __name__ == "__main__":
    JetStreamSequencer.commit_messages = LIMIT
    main()
