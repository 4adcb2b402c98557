"""The page of nodes in a real browser."""

from __future__ import annotations

import pytest

from kit.broker import Broker
from kit.browser import Browser
from kit.console import Console
from kit.nats import Servers
from kit.replay import publish

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_the_nodes_of_a_cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("nodes")
    with Servers(folder / "nats", 1) as servers:
        flags = f"--cluster={servers.urls}"
        first = Broker(flags, "--node=left", listen=("http", "hermod.pub"), data=folder / "left")
        second = Broker(flags, "--node=right", listen=("http",), data=folder / "right")
        with first, second, Console(browser, first.ports["http"]) as console:
            console.wait_until_live()
            console.wait_for_text("nav a", "Nodes")
            console.press("Nodes")
            with first.connect("hermod.pub") as peer:
                publish(peer, [("news", b"%d" % number) for number in range(3)])
            for name in ("left", "right"):
                row = console.wait_for_row("Nodes", name, "ready", "3")
                assert row[3:5] == ["0", "0"]
            console.wait_for_text(".tile", "POLYCAST")
            console.wait_for_text(".tile", "left")
