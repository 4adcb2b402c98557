"""The UBRE library from npm, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.program import Program, need

FOLDER = Path(__file__).parent.parent / "interop" / "node"


def need_node(*packages: str) -> str:
    """Where node is; where it or a package is missing, the test is skipped with the cure."""
    node = need("node", "nodejs npm")
    for package in packages:
        if not (FOLDER / "node_modules" / package).is_dir():
            pytest.skip(f"{package} from npm is not installed: make peers")
    return node


class UbreClient(Program):
    """`with UbreClient("ws://...") as client: client.send_command(subscribe="news"); client.read_event()`"""

    def __init__(self, url: str) -> None:
        super().__init__(need_node("ubre", "ws"), str(FOLDER / "client.js"), url)

    def __enter__(self) -> UbreClient:
        super().__enter__()
        return self

    def send_command(self, **command: object) -> None:
        """Its first word is what to do: subscribe, unsubscribe, publish, request, handle."""
        self.type(json.dumps(command).encode() + b"\n")

    def read_event(self) -> dict[str, Any]:
        """What it says next."""
        words: dict[str, Any] = json.loads(self.read_line())
        return words

    def expect_event(self, **words: object) -> None:
        received = self.read_event()
        assert received == words, f"expected {words}, got {received}"

    def flush(self) -> None:
        """Returns when the broker has handled all earlier commands: a response comes after them."""
        self.send_command(request="nobody/answers/this")
        self.expect_event(route="nobody/answers/this", fail="NotFound")
