"""The broker dials over TLS: other brokers, and nanomsg sockets."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.certificates import Authority
from kit.frames import pub
from kit.links import expect_delivered, free_port
from kit.nanomsg import publish_until_received
from kit.nng import NngSocket
from kit.program import polycast
from kit.room import Room
from kit.wire import wait_for
from polycast.server.access.settings import TlsSettings
from polycast.server.io.tls import to_dial_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.issue("broker.pem")


@contextmanager
def listening(
    certificate: Path, *names: str, host: str = "127.0.0.1", flags: tuple[str, ...] = ()
) -> Iterator[Broker]:
    """These listeners use TLS; the others are plain."""
    secure = [f"--listen={name}=tls://{host}:0" for name in names]
    with Broker(f"--set=tls.certificate={certificate}", *secure, *flags) as broker:
        yield broker


def port_of(broker: Broker, name: str) -> int:
    [place] = [where for listener, where in broker.addresses if listener == name and where.startswith("tls:")]
    return int(place.rpartition(":")[2])


def believing(authority: Authority) -> str:
    return f"--set=tls.ca={authority.file}"


def peer(broker: Broker, host: str = "127.0.0.1") -> str:
    return f"--peer=tls://{host}:{port_of(broker, 'simplest.peer')}"


# -- brokers ---------------------------------------------------------------------------------------------


def test_two_brokers_over_tls(authority: Authority, certificate: Path) -> None:
    with listening(certificate, "simplest.peer") as first, Broker(peer(first), believing(authority)) as second:
        expect_delivered(first, second, "x", b"there")
        expect_delivered(second, first, "x", b"and back")
        second.wait_for_log(f"simplest.peer tls://127.0.0.1:{port_of(first, 'simplest.peer')}: connected")


def test_a_server_that_another_authority_signed_is_refused_until_that_is_believed(
    authority: Authority, certificate: Path, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    config = tmp_path / "polycast.toml"
    config.write_text(f'[tls]\nca = "{stranger.file}"\n')
    with listening(certificate, "simplest.peer") as first, Broker(f"--config={config}", peer(first)) as second:
        reported = second.wait_for_log("certificate verification failed")
        assert "unable to get local issuer certificate (tls.ca sets the authorities)" in reported
        wait_for(lambda: first.log().count("TLS failed: ") >= 3, "it to be dialled again")
        assert ": connected" not in second.log()
        config.write_text(f'[tls]\nca = "{authority.file}"\n')
        second.process.send_signal(signal.SIGHUP)
        expect_delivered(first, second, "x", b"1")


def test_a_certificate_for_another_host_is_refused(authority: Authority, certificate: Path) -> None:
    with (
        listening(certificate, "simplest.peer", host="127.0.0.2") as first,
        Broker(peer(first, "127.0.0.2"), believing(authority)) as second,
    ):
        assert "IP address mismatch" in second.wait_for_log("certificate verification failed")
        assert ": connected" not in second.log()


def test_a_peer_that_does_not_speak_tls(authority: Authority) -> None:
    with Broker(listen=("fanout.client",)) as first:  # fanout greets
        flag = f"--peer=tls://127.0.0.1:{first.ports['fanout.client']}"
        with Broker(flag, believing(authority)) as second:
            second.wait_for_log("TLS failed: wrong version number; retrying until it succeeds")
            assert ": connected" not in second.log()


def test_both_ends_are_known_by_their_certificates(authority: Authority, tmp_path: Path) -> None:
    """By their certificates, the dialled broker is `localhost`, and the dialling one is `branch`."""
    shown = authority.issue("branch.pem", "branch")
    flags = (
        f"--set=tls.client_ca={authority.file}",
        "--set=tls.client_certificates=required",
        "--set=access.rules=loopback may everything,branch may publish+subscribe a.>",
    )
    dialling = (
        f"--set=tls.dial_certificate={shown}",
        "--set=access.rules=loopback may everything,localhost may publish+subscribe b.>",
    )
    with (
        listening(authority.issue("head.pem"), "simplest.peer", flags=flags) as head,
        Broker(peer(head), believing(authority), *dialling) as branch,
        Room(head) as here,
        Room(branch) as there,
    ):
        there.simplest(b"sub \n")
        branch.wait_for_log(": connected")

        def carried() -> bool:
            here.simplest(pub("c.1") + pub("a.1") + pub("b.1"))
            return "localhost may not publish to 'a.1'" in branch.log()

        wait_for(carried, "what branch may have, and head may not publish")
        assert "may not publish to 'c.1'" not in branch.log()  # the message was not sent
        here.simplest(b"sub \n")

        def carried_back() -> bool:
            there.simplest(pub("c.2") + pub("a.2") + pub("b.2"))
            return "branch may not publish to 'b.2'" in head.log()

        wait_for(carried_back, "what head may have, and branch may not publish")
        assert "may not publish to 'a.2'" not in head.log()


def test_a_broker_without_the_certificate_that_is_required(authority: Authority, certificate: Path) -> None:
    flags = (f"--set=tls.client_ca={authority.file}", "--set=tls.client_certificates=required")
    with (
        listening(certificate, "simplest.peer", flags=flags) as first,
        Broker(peer(first), believing(authority)) as second,
    ):
        first.wait_for_log("TLS failed: peer did not return a certificate")
        second.wait_for_log("dialling")


def test_announced_brokers_are_dialled_over_tls(authority: Authority, certificate: Path) -> None:
    flags = ("--set=access.rules=loopback may everything,localhost may everything",)
    discover = (
        "--discover=org",
        "--set=simplest.discover_networks=127.0.0.0/8",
        "--set=simplest.discover_tls=true",
    )
    with (
        listening(certificate, "simplest.peer") as found,
        Broker(*flags, *discover, believing(authority)) as broker,
        Room(broker) as room,
    ):
        room.simplest(pub("//peers/org/a", b"127.0.0.1 %d" % port_of(found, "simplest.peer")))
        expect_delivered(found, broker, "x", b"1")
        expect_delivered(broker, found, "x", b"2")


# -- nanomsg ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tls", "tls+tcp"])
def test_nanomsg_over_tls(scheme: str, authority: Authority, certificate: Path) -> None:
    with listening(certificate, "nanomsg.pub", "nanomsg.sub") as first:
        flags = [f"--connect=nanomsg.{ours}={scheme}://localhost:{port_of(first, f'nanomsg.{theirs}')}"
                 for ours, theirs in (("sub", "pub"), ("pub", "sub"))]  # fmt: skip
        for flag in flags:
            with Broker(flag, believing(authority)) as second, Room(first) as here, Room(second) as there:
                source, target = (here, there) if "nanomsg.sub=" in flag else (there, here)
                client = target.simplest(b"sub x\n")
                publish_until_received(source, client, name="x")
                source.simplest(pub("x", b"after"))
                client.read_until(pub("x", b"after"))


@pytest.mark.parametrize(("ours", "theirs"), [("sub", "pub"), ("pub", "sub")])
def test_nanomsg_over_a_secure_websocket(ours: str, theirs: str, authority: Authority, certificate: Path) -> None:
    with listening(certificate, "http") as first:
        flag = f"--connect=nanomsg.{ours}=wss://localhost:{port_of(first, 'http')}/{theirs}"
        with Broker(flag, believing(authority)) as second, Room(first) as here, Room(second) as there:
            source, target = (here, there) if ours == "sub" else (there, here)
            client = target.simplest(b"sub x\n")
            publish_until_received(source, client, name="x")


def nng_tls(authority: Authority, certificate: Path, server: bool) -> dict[str, object]:
    own = {"own_key_string": certificate.read_text(), "own_cert_string": certificate.read_text()}
    return {"mode": "server", **own} if server else {"mode": "client", "ca_string": authority.file.read_text()}


def test_the_broker_dials_a_pub_of_nng(authority: Authority, certificate: Path) -> None:
    port = free_port()
    with NngSocket("Pub0", tls=nng_tls(authority, certificate, server=True)) as remote:
        remote.listen(f"tls+tcp://127.0.0.1:{port}")
        flag = f"--connect=nanomsg.sub=tls+tcp://127.0.0.1:{port}"
        with Broker(flag, believing(authority)) as broker, Room(broker) as room:
            client = room.simplest(b"sub x\n")
            wait_for(lambda: remote.pipes() == 1, "the broker to dial")
            remote.send(b"x|hello")
            client.expect(pub("x", b"hello"))


def test_the_broker_dials_a_sub_of_nng(authority: Authority, certificate: Path) -> None:
    port = free_port()
    with NngSocket("Sub0", topics=[b""], tls=nng_tls(authority, certificate, server=True)) as remote:
        remote.listen(f"tls+tcp://127.0.0.1:{port}")
        flag = f"--connect=nanomsg.pub=tls+tcp://127.0.0.1:{port}"
        with Broker(flag, believing(authority)) as broker, Room(broker) as room:
            broker.wait_for_log(": connected")

            def received() -> bool:
                room.simplest(pub("x", b"hello"))
                return remote.recv_now() is not None

            wait_for(received, "the socket to receive")


# -- required settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--set=tls.ca=/nowhere.pem",), "cannot read tls.ca /nowhere.pem"),
        (("--set=tls.ca={key}",), "has no PEM certificates"),
        (("--set=tls.dial_certificate=/nowhere.pem",), "cannot read tls.dial_certificate"),
        (("--set=tls.dial_certificate={ca}",), "is not a PEM certificate with its key"),
        (("--set=simplest.discover_tls=true", "--discover=org"), "simplest.discover_tls needs tls.ca"),
    ],
)
def test_files_that_cannot_be_used(
    flags: tuple[str, ...], problem: str, authority: Authority, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("no certificate\n")
    filled = [flag.format(key=key, ca=authority.file) for flag in flags]
    ended = polycast(
        "serve", "--no-log", "--listen=simplest=tcp://127.0.0.1:0", "--peer=tls://127.0.0.1:9", *filled
    )
    assert ended.code != 0
    assert problem in ended.err


def test_the_context_for_dialling_requires_certificates() -> None:
    context = to_dial_context(TlsSettings())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
