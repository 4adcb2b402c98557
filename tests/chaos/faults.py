"""What happens to nodes, servers, the ways between them, disks and clocks. Every fault is over when it returns."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random

from chaos.fleet import NAMES, SERVERS, Fleet, Node
from kit.proxy import Proxy

HOLD_SECONDS = 2.5
STOP_SECONDS = 6.0
CLOCK_SECONDS = 3600.0
SYNC_SECONDS = 0.3
GUEST = "guest"


class Faults:
    def __init__(self, fleet: Fleet, random: Random) -> None:
        self._fleet = fleet
        self._random = random
        self._guests = 0

    def kinds(self) -> dict[str, Callable[[], None]]:
        found = {
            name.removeprefix("do_").replace("_", "-"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }
        if self._fleet.disk is None:
            del found["full-disk"]
        return found

    def _hold(self, seconds: float = HOLD_SECONDS) -> None:
        threading.Event().wait(self._random.uniform(0, seconds))

    # -- nodes -------------------------------------------------------------------------------------------

    def do_kill_node(self) -> None:
        self._kill_nodes(1)

    def do_kill_two_nodes(self) -> None:
        self._kill_nodes(2)

    def do_kill_all_nodes(self) -> None:
        self._kill_nodes(3)

    def _kill_nodes(self, count: int) -> None:
        nodes = self._choose(count)
        for node in nodes:
            node.kill()
        self._hold()
        self._start(nodes)

    def do_kill_node_while_it_starts(self) -> None:
        [node] = self._choose(1)
        node.kill()
        node.launch()
        self._hold(1.0)
        node.kill()
        self._start([node])

    def do_restart_node(self) -> None:
        [node] = self._choose(1)
        node.stop()
        self._hold()
        self._start([node])

    def do_pause_node(self) -> None:
        self._pause_nodes(1)

    def do_pause_two_nodes(self) -> None:
        self._pause_nodes(2)

    def do_pause_all_nodes(self) -> None:
        self._pause_nodes(3)

    def _pause_nodes(self, count: int) -> None:
        nodes = self._choose(count)
        for node in nodes:
            node.signal(signal.SIGSTOP)
        self._hold(STOP_SECONDS)
        for node in nodes:
            node.signal(signal.SIGCONT)

    def do_join_and_leave(self) -> None:
        """A node with an empty folder."""
        self._guests += 1
        node = self._fleet.add(f"{GUEST}{self._guests}")
        self._start([node])
        self._hold()
        if self._random.random() < 0.5:
            node.stop()
        else:
            node.kill()
        self._fleet.remove(node.name)

    # -- servers -----------------------------------------------------------------------------------------

    def do_kill_leader(self) -> None:
        self._kill_servers([self._fleet.leader()])

    def do_kill_follower(self) -> None:
        self._kill_servers([self._follower()])

    def do_kill_two_servers(self) -> None:
        self._kill_servers(self._random.sample(range(SERVERS), 2))

    def do_kill_all_servers(self) -> None:
        self._kill_servers(range(SERVERS))

    def _kill_servers(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._fleet.servers.kill(index)
        self._hold()
        for index in indexes:
            self._fleet.servers.start(index)

    def do_pause_leader(self) -> None:
        self._pause_servers([self._fleet.leader()])

    def do_pause_follower(self) -> None:
        self._pause_servers([self._follower()])

    def do_pause_two_servers(self) -> None:
        self._pause_servers(self._random.sample(range(SERVERS), 2))

    def do_pause_all_servers(self) -> None:
        self._pause_servers(range(SERVERS))

    def _pause_servers(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._fleet.servers.signal(index, signal.SIGSTOP)
        self._hold(STOP_SECONDS)
        for index in indexes:
            self._fleet.servers.signal(index, signal.SIGCONT)

    # -- the ways between them ---------------------------------------------------------------------------

    def do_cut_node(self) -> None:
        [node] = self._choose(1)
        self._cut(node.links)

    def do_stall_node(self) -> None:
        [node] = self._choose(1)
        self._stall(node.links)

    def do_cut_leader(self) -> None:
        self._cut(self._fleet.servers.links_of(self._fleet.leader()))

    def do_stall_leader(self) -> None:
        self._stall(self._fleet.servers.links_of(self._fleet.leader()))

    def do_cut_follower(self) -> None:
        self._cut(self._fleet.servers.links_of(self._follower()))

    def do_cut_all_servers(self) -> None:
        """From each other."""
        self._cut(list(self._fleet.servers.links.values()))

    def _cut(self, links: list[Proxy]) -> None:
        for link in links:
            link.cut()
        self._hold(STOP_SECONDS)
        for link in links:
            link.restore()

    def _stall(self, links: list[Proxy]) -> None:
        for link in links:
            link.stall()
        self._hold(STOP_SECONDS)
        for link in links:
            link.flow()

    # -- disks and clocks --------------------------------------------------------------------------------

    def do_full_disk(self) -> None:
        """The node stops by itself."""
        node, disk = self._fleet.nodes[NAMES[-1]], self._fleet.disk
        assert disk
        with ExitStack() as stack:
            stack.callback(disk.empty)
            disk.fill()
            assert node.wait_for_end() > 0
        self._start([node])

    def do_clock(self) -> None:
        self._odd_node(clock=CLOCK_SECONDS)

    def do_slow_disk(self) -> None:
        self._odd_node(sync=SYNC_SECONDS)

    def _odd_node(self, clock: float = 0.0, sync: float = 0.0) -> None:
        [node] = self._choose(1)
        node.kill()
        node.launch(clock, sync)
        node.wait_until_ready()
        threading.Event().wait(HOLD_SECONDS)
        node.kill()
        self._start([node])

    # -- which -------------------------------------------------------------------------------------------

    def _choose(self, count: int) -> list[Node]:
        return [self._fleet.nodes[name] for name in self._random.sample(NAMES, count)]

    def _follower(self) -> int:
        leader = self._fleet.leader()
        return self._random.choice([index for index in range(SERVERS) if index != leader])

    def _start(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
