"""A node that joins and leaves all the time: each time with another name and an empty folder."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random

from chaos.fleet import Node
from kit.nats import Servers

STAY_SECONDS = 3.0
AWAY_SECONDS = 6.0


class Guests(threading.Thread):
    """No client connects to it. A start without a leader, or with its servers killed, may fail."""

    def __init__(self, folder: Path, servers: Servers, random: Random) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._servers = servers
        self._random = random
        self.ending = threading.Event()
        self.joined = self.failed = 0
        self.problems: list[str] = []

    def run(self) -> None:
        while not self.ending.wait(self._random.uniform(0, AWAY_SECONDS)):
            with ExitStack() as stack:
                name = f"visitor{self.joined + self.failed}"
                node = Node(name, self._folder, self._servers, stack)
                stack.callback(shutil.rmtree, node.folder, ignore_errors=True)
                stack.callback(node.end)
                self._visit(node)

    def _visit(self, node: Node) -> None:
        node.launch()
        try:
            node.wait_until_ready()
            self.joined += 1
        except AssertionError:
            self.failed += 1
        self.ending.wait(self._random.uniform(0, STAY_SECONDS))
        if self._random.random() < 0.5:
            node.kill()
        else:
            node.interrupt()
        if "Traceback" in node.log() or "CRITICAL" in node.log():
            self.problems.append(node.log()[-3000:])
