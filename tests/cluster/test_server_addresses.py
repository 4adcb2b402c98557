"""Addresses of servers that are none: an error of the configuration, and nothing is started or changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.place import Place, send
from cluster.test_connecting import settings_for
from cluster.trio import LISTEN, PATIENCE
from kit.broker import Broker
from kit.certificates import Authority
from kit.nats import Servers
from kit.program import Finished, polycast_here
from kit.replay import publish
from kit.subscribers import send_request
from polycast.cluster import connecting
from polycast.cluster.connecting import open_stream
from polycast.errors import StartError
from polycast.server.access.settings import TlsSettings
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


@pytest.mark.parametrize("flag", ["--cluster=tls://127.0.0.1:1", "--set=cluster.tls=true"])
def test_an_authority_that_cannot_be_used(tmp_path: Path, flag: str) -> None:
    file = tmp_path / "ca.pem"
    flags = ["--cluster=nats://127.0.0.1:1", flag, "--node=a", f"--set=tls.ca={file}"]
    for check in ([], ["--check"]):
        refused = start(tmp_path / "a", *flags, *check)
        assert refused.code == 1, refused
        assert f"tls.ca {file}" in refused.err
    file.write_text("no certificate\n")
    assert "has no PEM certificates" in start(tmp_path / "a", *flags).err


def test_a_certificate_of_another_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 0.5)
    known, other = Authority(tmp_path, "known"), Authority(tmp_path, "other")
    file = known.issue("server.pem")
    with Servers(tmp_path / "servers", 1, more=f'tls {{ cert_file: "{file}", key_file: "{file}" }}') as servers:
        settings = settings_for(servers.ports[0], "nats", tls=True)
        with pytest.raises(StartError, match="has a certificate that is not valid") as raised:
            asyncio.run(open_stream(replace(settings, tls=TlsSettings(ca=str(other.file)))))
        assert raised.value.hint.startswith("tls.ca names the authority")


@pytest.mark.parametrize(
    ("greeting", "reason"), [(b"", "nothing came within"), (b"220 mail\r\n", "expecting INFO")]
)
def test_what_responds_is_no_server_of_nats(monkeypatch: pytest.MonkeyPatch, greeting: bytes, reason: str) -> None:
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(connecting, "RESPONSE_SECONDS", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            await open_stream(settings_for(server.sockets[0].getsockname()[1], "nats"))

    with pytest.raises(StartError, match=reason) as raised:
        asyncio.run(run())
    assert str(raised.value).startswith("no nats-server responds at 127.0.0.1")
    assert "where it accepts clients" in raised.value.hint


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
