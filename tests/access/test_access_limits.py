"""Limits for peers without rights: memory, connection slots, time."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import ssl
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from access.gate import EVERY, counted, write_config
from kit.broker import Broker
from kit.certificates import Authority
from kit.flow import KIB, MIB, Reading, Sending, resident_bytes, wait_until_held_up
from kit.hermod import OK, count, expect_error, message, read_error, stage
from kit.http import get, read_response
from kit.nanomsg import PUB
from kit.wire import GUARD_SECONDS, Peer, wait_for
from polycast.server.access.tokens import add_token

RULES = ("sensors may publish sensors.>",)
PUBLISHERS = 24
SILENT_PEERS = 1_100
PATIENT = "[limits]\nhandshake_seconds = 3600.0\n"
"""No silent peer is closed within the time of a test."""


def closed_doors(folder: Path, *rules: str, more: str = "", fresh: bool = False, logged: bool = False) -> Broker:
    """Peers over tcp have the rights of the rules, none by default; peers over the file may do everything."""
    config = write_config(folder, "loopback may everything", *rules, more=more)
    files = (f"--listen={name}=ipc://{folder}/{name}" for name in ("http", "simplest"))
    data = folder / "data"
    flags = () if logged else (f"--data={data}",)
    return Broker(
        f"--config={config}",
        *files,
        *flags,
        listen=EVERY,
        data=data if logged else None,
        events=logged,
        fresh=fresh,
    )


def with_token(token: str, topic: str = "sensors.1", payload: bytes = b"x") -> bytes:
    header = {"token": token, "topic": topic, "payload_size": len(payload), "checksum": ""}
    return json.dumps(header).encode() + payload


def bytes_in(broker: Broker, listener: str = "hermod.pub") -> float:
    return counted(broker, "polycast_bytes_in_total", listener=listener)


def subscribe(broker: Broker, peer: Peer, words: bytes) -> None:
    """Send as the first simplest peer, and wait until its subscription is in place."""
    peer.send(words)
    wait_for(lambda: bytes_in(broker, "simplest") >= len(words), "it to be read")


def connect_from(broker: Broker, listener: str, host: str) -> socket.socket:
    peer = socket.socket()
    peer.settimeout(GUARD_SECONDS)
    peer.bind((host, 0))
    peer.connect(("127.0.0.1", broker.ports[listener]))
    return peer


def tls_port(broker: Broker) -> int:
    [port] = [int(address.rpartition(":")[2]) for _, address in broker.addresses if address.startswith("tls:")]
    return port


# -- memory ----------------------------------------------------------------------------------------------


def test_payloads_of_peers_without_rights_are_not_buffered(tmp_path: Path) -> None:
    header, part = message("sensors.1", b"x" * 16 * MIB, "")[: -16 * MIB], b"x" * 8 * MIB
    with closed_doors(tmp_path, more=PATIENT, fresh=True) as broker, ExitStack() as peers:
        strangers = [peers.enter_context(broker.connect("hermod.pub")) for _ in range(16)]
        before = resident_bytes(broker.process.pid)
        for stranger in strangers:
            stranger.send(header)
            expect_error(stranger, 403)
            stranger.send(part)
        sent = len(strangers) * len(part)
        wait_for(lambda: bytes_in(broker) >= sent, "all of it to be read")
        assert resident_bytes(broker.process.pid) - before < sent / 4


def test_a_forbidden_payload_is_skipped(tmp_path: Path) -> None:
    """The error follows the header, and the connection stays open."""
    payload = b"no" * MIB
    frame = message("secret", payload)
    header = frame[: -len(payload)]
    with closed_doors(tmp_path, "guest may publish open.>", fresh=True) as broker, ExitStack() as peers:
        guests = [peers.enter_context(broker.connect("hermod.pub")) for _ in range(16)]
        before = resident_bytes(broker.process.pid)
        for guest in guests:
            guest.send(header)
            expect_error(guest, 403)
            guest.send(payload[:-1])
        sent = len(guests) * (len(payload) - 1)
        wait_for(lambda: bytes_in(broker) >= sent, "all of it to be read")
        assert resident_bytes(broker.process.pid) - before < sent / 4
        for guest in guests:
            guest.send(payload[-1:] + message("open.a", b"yes"))
            guest.expect(OK)


def test_a_forbidden_message_in_a_batch(tmp_path: Path) -> None:
    large = b"no" * 10 * KIB
    rule = "guest may publish open.>"
    with closed_doors(tmp_path, rule, logged=True) as broker, broker.connect("hermod.pub") as guest:
        guest.send(count(2) + message("open.a", b"yes") + message("secret", large)[:-1])
        expect_error(guest, 403, count=1)
        guest.send(large[-1:] + count(2, batch_id="all") + message("secret", large) + message("open.a", b"no"))
        expect_error(guest, 403, count=0)
        guest.send(message("open.a", b"yes"))
        guest.expect(OK)


def test_stages_of_peers_without_rights_are_refused_on_their_header(tmp_path: Path) -> None:
    large = stage("batch", "stage", b"x" * MIB)
    with closed_doors(tmp_path, more=PATIENT) as broker, broker.connect("hermod.pub") as stranger:
        stranger.send(large[: 100 * KIB])
        expect_error(stranger, 403)
        stranger.send(large[100 * KIB :] + message("secret", b""))
        expect_error(stranger, 403)


def test_replies_that_a_peer_without_rights_does_not_read(tmp_path: Path) -> None:
    with closed_doors(tmp_path, more=PATIENT) as broker, broker.connect("hermod.pub", 4096) as stranger:
        sending = Sending(stranger, message("secret", b"") * 200_000)
        assert "without rights" in broker.wait_for_log("too slow")
        stranger.expect_closed()
        assert not sending.done


BEGUN = {
    "simplest": ("simplest", b"pub secret %d " % MIB),
    "nanomsg": ("nanomsg.sub", PUB + MIB.to_bytes(8, "big") + b"secret|"),
    "ubre": ("ubre", struct.pack("!BHI", ord("P"), len("secret"), MIB) + b"secret"),
}


@pytest.mark.parametrize("dialect", BEGUN)
def test_a_large_frame_with_a_forbidden_topic_closes_the_connection_early(dialect: str, tmp_path: Path) -> None:
    listener, begun = BEGUN[dialect]
    allowed = begun.replace(b"secret", b"open.a")
    with closed_doors(tmp_path, "guest may publish open.>") as broker:
        with broker.connect(listener) as good, broker.connect(listener) as bad:
            good.send(allowed + b"x" * 10 * KIB)
            bad.send(begun + b"x" * 10 * KIB)
            bad.expect_closed()
            good.send(b"x" * (MIB // 2))
            wait_for(lambda: bytes_in(broker, listener) >= MIB // 2, "the other one to be read")
        assert "guest may not publish to 'secret'" in broker.log()
        assert counted(broker, "polycast_connections_closed_total", listener=listener, reason="forbidden") == 1


def test_incomplete_frames_share_a_limit_and_all_complete(tmp_path: Path) -> None:
    """These peers have rights; there is not enough memory for all frames at once."""
    payload = b"x" * 4 * MIB
    frame = b"pub open %d %b\n" % (len(payload), payload)
    limits = f"[limits]\ntotal_receive_bytes = {8 * MIB}\nqueue_bytes = {PUBLISHERS * len(frame)}\n"
    with closed_doors(tmp_path, more=limits, fresh=True) as broker, ExitStack() as peers:
        subscribers = peers.enter_context(broker.connect_file("simplest"))
        subscribe(broker, subscribers, b"sub open\n")
        received = Reading(subscribers, len(frame) * PUBLISHERS)
        before = resident_bytes(broker.process.pid)
        publishers = [peers.enter_context(broker.connect_file("simplest")) for _ in range(PUBLISHERS)]
        sendings = [Sending(publisher, frame[:-1]) for publisher in publishers]
        wait_until_held_up(sendings)
        assert resident_bytes(broker.process.pid) - before < len(publishers) * len(payload) / 3
        waiting = list(zip(sendings, publishers, strict=True))
        while waiting:
            sent = wait_for(lambda: [pair for pair in waiting if pair[0].done], "one of them to go on")
            for pair in sent:
                pair[1].send(b"\n")
                waiting.remove(pair)
        assert received.finish() == frame * len(publishers)


def test_a_frame_without_progress_closes_its_connection(tmp_path: Path) -> None:
    with closed_doors(tmp_path, more="[limits]\nframe_seconds = 0.2\n") as broker, ExitStack() as peers:
        calm, slow = (peers.enter_context(broker.connect_file("simplest")) for _ in range(2))
        subscribe(broker, calm, b"sub x\npub x 100 begun")
        slow.send(b"pub x 1000000 " + b"x" * 10 * KIB)
        line = broker.wait_for_log("nothing of an incomplete frame was received for 0.2 s")
        assert "limits.frame_seconds" in line
        assert slow.expect_closed() == b""
        with broker.connect_file("simplest") as other:
            other.send(b"pub x 1 y\n")
            calm.expect(b"pub x 1 y\n")


# -- connection slots ------------------------------------------------------------------------------------


def accepted(broker: Broker, listener: str) -> float:
    """Connections that the listener accepted, rejected ones included."""
    names = ("polycast_connections_accepted_total", "polycast_connections_turned_away_total")
    return sum(counted(broker, name, listener=listener) for name in names)


@pytest.mark.parametrize("hosts", [1, 7])
@pytest.mark.parametrize(("listener", "words"), [("hermod.pub", b""), ("hermod.sub", b""), ("http", b"/healthz")])
def test_silent_peers_cannot_lock_out_a_token(listener: str, words: bytes, hosts: int, tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "sensors", list(RULES))
    limits = PATIENT + "connections = 40\n"
    with closed_doors(tmp_path, more=limits) as broker, ExitStack() as peers:
        for number in range(100):
            peer = peers.enter_context(connect_from(broker, listener, f"127.0.0.{number % hosts + 1}"))
            if words:
                peer.sendall(get(words.decode()))
                assert peer.recv(100)
        wait_for(lambda: accepted(broker, listener) >= 100, "all silent peers to be accepted")
        for _ in range(30):
            client = peers.enter_context(broker.connect("hermod.pub"))
            client.send(with_token(token))
            client.expect(OK)
        peers.enter_context(broker.connect_file("simplest"))
        assert counted(broker, "polycast_connections_closed_total", reason="displaced") > 0
        assert "limits.connections" in broker.wait_for_log("displaced by a new connection")


def test_a_peer_without_rights_is_closed_in_time_and_others_stay(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "sensors", list(RULES))
    limits = "[limits]\nhandshake_seconds = 0.5\n"
    with closed_doors(tmp_path, "guest may publish open.> over simplest", more=limits) as broker:
        subscribers, guest = broker.connect_file("simplest"), broker.connect("simplest")
        with subscribers, guest, broker.connect("hermod.pub") as known:
            subscribe(broker, subscribers, b"sub open\n")
            known.send(with_token(token))
            known.expect(OK)
            with broker.connect("hermod.pub") as stranger:
                error = read_error(stranger)
                assert error["code"] == 503
                assert "no token with rights within 0.5 s" in str(error["message"])
                assert stranger.expect_closed() == b""
            known.send(message("sensors.2", b"still here"))
            known.expect(OK)
            guest.send(b"pub open.a 1 x\n")
            subscribers.expect(b"pub open.a 1 x\n")


def test_a_peer_that_lost_its_rights_must_show_a_token_in_time(tmp_path: Path) -> None:
    limits = "[limits]\nhandshake_seconds = 0.5\n"
    started = closed_doors(tmp_path, "guest may publish open.>", more=limits)
    with started as broker, broker.connect("hermod.pub") as guest:
        guest.send(message("open.a", b"yes"))
        guest.expect(OK)
        write_config(tmp_path, "loopback may everything", more=limits)
        broker.process.send_signal(signal.SIGHUP)
        assert read_error(guest)["code"] == 503
        assert guest.expect_closed() == b""


def test_an_unauthorized_http_peer_without_requests_is_closed(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "boss", ["boss may admin"])
    limits = "[limits]\nhandshake_seconds = 0.5\n"
    with closed_doors(tmp_path, more=limits) as broker, broker.connect("http") as boss:
        boss.send(get("/metrics", f"Authorization: Bearer {token}"))
        assert read_response(boss).status == 200
        with broker.connect("http") as stranger:
            for _ in range(3):
                stranger.send(get("/healthz"))
                assert read_response(stranger).status == 200
            assert stranger.expect_closed() == b""
        boss.send(get("/metrics", f"Authorization: Bearer {token}"))
        assert read_response(boss).status == 200


def test_an_idle_http_connection_is_closed(tmp_path: Path) -> None:
    with Broker("--set=limits.http_idle_seconds=0.2", listen=("http",)) as broker:
        with broker.connect("http") as peer:
            peer.send(get("/healthz"))
            assert read_response(peer).status == 200
            assert peer.expect_closed() == b""
        assert "WARNING" not in broker.log()


# -- TLS handshakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 9])
def test_silent_tcp_connections_do_not_delay_a_tls_client(hosts: int, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SILENT_PEERS:
        pytest.skip(f"{SILENT_PEERS:,} connections need more open files than this system allows: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SILENT_PEERS), hard))
    authority = Authority(tmp_path)
    certificate = authority.issue("broker.pem")
    flags = (f"--set=tls.certificate={certificate}", "--set=limits.handshake_seconds=3600")
    with Broker(*flags, "--listen=simplest=tls://127.0.0.1:0", listen=("http",)) as broker, ExitStack() as peers:
        broker.ports["tls"] = tls_port(broker)
        for number in range(SILENT_PEERS):
            peers.enter_context(connect_from(broker, "tls", f"127.0.0.{number % hosts + 1}"))
        context = ssl.create_default_context(cafile=authority.file)
        for host in ("127.0.0.1", "127.0.0.200"):
            client = connect_from(broker, "tls", host)
            with context.wrap_socket(client, server_hostname="localhost") as secure:
                secure.sendall(b"pub x 1 y\n")
        assert "are pending" in broker.wait_for_log("handshake displaced by a new one")


def test_a_refused_tls_peer_holds_no_file_descriptor(tmp_path: Path) -> None:
    """The broker does not wait for the peer's close_notify."""
    authority = Authority(tmp_path)
    config = write_config(tmp_path, "loopback may everything")
    flags = (f"--config={config}", f"--data={tmp_path}/data", f"--set=tls.certificate={authority.issue('b.pem')}")
    context = ssl.create_default_context(cafile=authority.file)
    with Broker(*flags, "--listen=simplest=tls://127.0.0.1:0", listen=("hermod.pub",)) as broker:
        broker.ports["tls"] = tls_port(broker)
        files = len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir())) + 16
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (files, files))
        with ExitStack() as peers:
            for _ in range(64):
                peer = connect_from(broker, "tls", "127.0.0.1")
                peers.enter_context(context.wrap_socket(peer, server_hostname="localhost"))
            assert os.strerror(errno.EMFILE) not in broker.log()


@pytest.mark.parametrize("rules", [(), ("anonymous may subscribe news.>",)])
def test_a_client_with_a_token_does_not_wait_for_unknown_peers_that_flood(
    rules: tuple[str, ...], tmp_path: Path
) -> None:
    """Between two reads of a known identity, the broker reads little of one unknown peer."""
    token = add_token(tmp_path / "data", "sensors", list(RULES))
    config = write_config(tmp_path, "loopback may everything", *rules, networks=("anonymous=127.0.0.0/8",))
    flags = (f"--config={config}", f"--data={tmp_path}/data", f"--listen=http=ipc://{tmp_path}/http")
    flood = b'{"batch_type": "End"}' * (MIB // 21)
    with Broker(*flags, listen=("hermod.pub",)) as broker, ExitStack() as peers:
        strangers = [peers.enter_context(broker.connect("hermod.pub")) for _ in range(PUBLISHERS)]
        for stranger in strangers:
            Reading(stranger, MIB)
            Sending(stranger, flood)
        with broker.connect("hermod.pub") as client:
            client.send(with_token(token))
            client.expect(OK)
        assert bytes_in(broker) < PUBLISHERS * MIB / 8


def test_a_tls_peer_without_rights_uses_little_memory(tmp_path: Path) -> None:
    """TLS reads ahead of the dialect, into buffers of its own."""
    authority = Authority(tmp_path)
    config = write_config(tmp_path, "loopback may everything", more=PATIENT)
    flags = (f"--config={config}", f"--data={tmp_path}/data", f"--set=tls.certificate={authority.issue('b.pem')}")
    listen = ("--listen=hermod.pub=tls://127.0.0.1:0", f"--listen=http=ipc://{tmp_path}/http")
    context = ssl.create_default_context(cafile=authority.file)
    part = message("secret", b"x" * MIB, "")[: MIB // 2]
    with Broker(*flags, *listen, listen=(), fresh=True) as broker, ExitStack() as peers:
        broker.ports["tls"] = tls_port(broker)
        strangers = [
            peers.enter_context(
                context.wrap_socket(connect_from(broker, "tls", "127.0.0.1"), server_hostname="localhost")
            )
            for _ in range(64)
        ]
        before = resident_bytes(broker.process.pid)
        for stranger in strangers:
            stranger.sendall(part)
        wait_for(lambda: bytes_in(broker) >= len(strangers) * len(part), "the broker to read all input")
        assert resident_bytes(broker.process.pid) - before < len(strangers) * 256 * KIB
