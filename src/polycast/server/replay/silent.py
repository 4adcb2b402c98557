"""The form of a subscription that is being served from the log: what is live comes from there, too."""

from __future__ import annotations

from polycast.model import Burst, Encoded, Encoder, Slices


class SilentEncoder(Encoder):
    name = "silent"
    takes_precedence = True

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        return Encoded([], 0)


SILENT = SilentEncoder()
