"""Addresses of servers that are none: an error of the configuration, and nothing is started or changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.place import Place, send
from cluster.trio import LISTEN, PATIENCE
from kit.broker import Broker
from kit.nats import Servers
from kit.program import Finished, polycast_here
from kit.replay import publish
from kit.subscribers import send_request
from polycast.server.settings import parse_server


def start(folder: Path, *flags: str) -> Finished:
    return polycast_here("serve", f"--data={folder}", "--listen=simplest=tcp://127.0.0.1:0", *flags)


@pytest.mark.parametrize(
    "wrong",
    [
        "", ",", "127.0.0.1:4222", "nats://", "nats:127.0.0.1:4222", "nats://127.0.0.1:port", "nats://[::1",
        "nats://127.0.0.1:99999", "nats://127.0.0.1:0", "http://127.0.0.1:4222", "nats://user:se/cret@127.0.0.1:1",
        "nats://127.0.0.1:4222,nats://",
    ],
)  # fmt: skip
def test_an_address_that_is_none(tmp_path: Path, wrong: str) -> None:
    refused = start(tmp_path / "a", f"--cluster={wrong}", "--node=a")
    assert refused.code == 2, refused
    assert "expected nats://HOST:PORT" in refused.err
    assert "cret" not in refused.err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "text", ["nats://h", "nats://h:4222", "tls://u:p%2Fq@h:1", "nats://[::1]:4222", "nats://token@h:1"]
)
def test_an_address(text: str) -> None:
    parse_server(text)


def test_a_password_in_one_address_is_for_all_servers(tmp_path: Path) -> None:
    """Also for those that the servers name themselves. Characters may be percent-encoded, as in any address."""
    users = 'authorization { user: "no:de", password: "p@ss/word" }'
    with Servers(tmp_path / "servers", 3, more=users) as servers:
        url = f"nats://no%3Ade:p%40ss%2Fword@127.0.0.1:{servers.ports[0]}"
        with Broker(f"--cluster={url}", "--node=a", listen=LISTEN, data=tmp_path / "a") as node:
            servers.kill(0)
            with node.connect("hermod.pub") as peer:
                peer.socket.settimeout(PATIENCE)
                publish(peer, [("t", b"1")])
            assert send_request(node, "polycast/cluster")["stream"]["replicas"] == ["s0", "s1", "s2"]


def test_a_node_without_servers_does_not_become_a_single_broker(place: Place) -> None:
    """Its folder would belong to no cluster any more."""
    with place.node("a") as node:
        send(node, "t", b"1")
    refused = start(place.folder / "a", "--node=a")
    assert refused.code == 2, refused
    assert "cluster.node = 'a', and no servers are named" in refused.err
    with place.node("a"):
        pass
