"""TLS below every dialect: valid and invalid certificates."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from access.gate import counted, write_config
from kit.broker import Broker
from kit.certificates import Authority
from kit.http import get
from kit.program import polycast
from kit.wire import GUARD_SECONDS, wait_for
from polycast.client import connect, connect_async
from polycast.client.connect import DIALECTS
from polycast.errors import RemoteError, UsageError
from polycast.model import Exact, Message

LISTENERS = (
    "simplest",
    "hermod.pub",
    "hermod.sub",
    "fanout.client",
    "fanout.controller",
    "nanomsg.pub",
    "nanomsg.sub",
    "http",
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    listen = [f"--listen={name}=tls://127.0.0.1:0" for name in LISTENERS]
    certificate = authority.issue("broker.pem")
    with Broker(f"--set=tls.certificate={certificate}", *listen, listen=()) as started:
        yield started


def at(broker: Broker, listener: str, authority: Authority, scheme: str = "tls", more: str = "") -> str:
    [place] = [where for name, where in broker.addresses if (name, where[:3]) == (listener, "tls")]
    return f"{place.replace('tls', scheme, 1)}?ca={authority.file}{more}"


def test_the_start_lines_print_the_real_addresses(broker: Broker) -> None:
    assert [name for name, _ in broker.addresses] == list(LISTENERS)
    assert all(where.startswith("tls://127.0.0.1:") and not where.endswith(":0") for _, where in broker.addresses)


@pytest.mark.parametrize("publisher", DIALECTS)
@pytest.mark.parametrize("hearer", ["hermod", "ubre"])
def test_messages_between_all_dialects_over_tls(
    publisher: str, hearer: str, broker: Broker, authority: Authority
) -> None:
    payload = b"x" * 300_000
    subscribers, publishers = DIALECTS[hearer].subscribers, DIALECTS[publisher].publishers
    topic = f"{publisher}-{hearer}"
    with connect(hearer, at(broker, subscribers, authority)) as client:
        client.subscribe([Exact(topic)])
        messages = [
            Message(topic, payload[:size]) for size in (0, 1, 300_000 if publisher != "fanout" else 60_000)
        ]
        with connect(publisher, at(broker, publishers, authority), publishing=True) as other:
            other.publish(messages)
        received: list[bytes] = []
        for batch in client.messages():
            received += [message.payload for message in batch]
            if len(received) == 3:
                break
        assert received == [message.payload for message in messages]


@pytest.mark.parametrize(("dialect", "listener"), [("ubre", "http"), ("nanomsg", "http")])
def test_websockets_over_tls(dialect: str, listener: str, broker: Broker, authority: Authority) -> None:
    with connect("hermod", at(broker, "hermod.sub", authority)) as client:
        client.subscribe([Exact(f"wss-{dialect}")])
        with connect(dialect, at(broker, listener, authority, "wss"), publishing=True) as other:
            other.publish([Message(f"wss-{dialect}", b"1")])
        [message] = next(client.messages())
        assert message.payload == b"1"


def test_the_asyncio_client(broker: Broker, authority: Authority) -> None:
    async def talk() -> bytes:
        async with await connect_async("hermod", at(broker, "hermod.sub", authority)) as subscriber:
            await subscriber.subscribe([Exact("async")])
            async with await connect_async("simplest", at(broker, "simplest", authority)) as client:
                await client.publish([Message("async", b"1")])
            async for batch in subscriber.messages():
                return batch[0].payload
        return b""

    assert asyncio.run(talk()) == b"1"


def test_commands_read_the_authority_from_the_environment(broker: Broker, authority: Authority) -> None:
    place = at(broker, "hermod.pub", authority).partition("?")[0]
    assert polycast("pub", "x", "y", "--at", place, env={"POLYCAST_CA": str(authority.file)}).code == 0
    with pytest.raises(RemoteError, match="certificate verify failed") as failed:
        connect("hermod", place, publishing=True)
    assert "ca=FILE" in failed.value.hint
    with pytest.raises(UsageError, match=r"cannot use /nowhere\.pem"):
        connect("hermod", f"{place}?ca=/nowhere.pem", publishing=True)


def test_a_failed_handshake_is_counted_and_affects_no_other_connection(
    broker: Broker, authority: Authority
) -> None:
    port = int(at(broker, "simplest", authority).partition("?")[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), GUARD_SECONDS) as plain:
        plain.sendall(get("/"))
        assert plain.recv(100) == b""
    broker.wait_for_log("TLS failed: http request")
    with connect("simplest", at(broker, "simplest", authority), publishing=True) as client:
        client.publish([Message("x", b"y")])


def test_a_certificate_for_another_host_is_refused(broker: Broker, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with pytest.raises(RemoteError, match="certificate verify failed"):
        connect("simplest", at(broker, "simplest", other))


def test_addresses_that_a_client_cannot_use() -> None:
    with pytest.raises(UsageError, match="hermod cannot use wss addresses"):
        connect("hermod", "wss://127.0.0.1:1/")
    with pytest.raises(UsageError, match="unknown option cafile"):
        connect("hermod", "tls://127.0.0.1:1?cafile=x")


# -- client certificates ---------------------------------------------------------------------------------


def tls_of(certificate: Path, authority: Authority, required: bool) -> str:
    wanted = "required" if required else "optional"
    return (
        f'[tls]\ncertificate = "{certificate}"\nclient_ca = "{authority.file}"\nclient_certificates = "{wanted}"\n'
    )


def has_failed(broker: Broker, times: int) -> bool:
    return counted(broker, "polycast_connections_closed_total", reason="tls") == times


def test_a_required_client_certificate_is_missing(authority: Authority, tmp_path: Path) -> None:
    good, old = authority.issue("client.pem", "sensors"), authority.issue("old.pem", "sensors", expired=True)
    other = Authority(tmp_path, "other").issue("other.pem", "sensors")
    tls = tls_of(authority.issue("broker.pem"), authority, required=True)
    config = write_config(tmp_path, "sensors may publish x", "loopback may everything", networks=(), more=tls)
    listen = ("--listen=hermod.pub=tls://127.0.0.1:0", f"--listen=http=ipc://{tmp_path}/http")
    with Broker(f"--config={config}", *listen, listen=()) as broker:
        with connect("hermod", at(broker, "hermod.pub", authority, more=f"&certificate={good}"), True) as client:
            client.publish([Message("x", b"y")])
            with pytest.raises(RemoteError, match="403"):
                client.publish([Message("z", b"y")])
        for number, shown in enumerate(("", f"&certificate={old}", f"&certificate={other}"), 1):
            with pytest.raises(RemoteError):
                connect("hermod", at(broker, "hermod.pub", authority, more=shown), publishing=True)
            wait_for(partial(has_failed, broker, number), "it to be counted")
        assert "TLS failed: certificate verify failed" in broker.log()
        assert "TLS failed: peer did not return a certificate" in broker.log()


def test_identities_with_and_without_an_optional_client_certificate(authority: Authority, tmp_path: Path) -> None:
    shown = authority.issue("client.pem", "sensors")
    tls = tls_of(authority.issue("broker.pem"), authority, required=False)
    config = write_config(tmp_path, "sensors may publish x", "guest may publish y", more=tls)
    with Broker(f"--config={config}", "--listen=hermod.pub=tls://127.0.0.1:0", listen=()) as broker:
        for more, topic, forbidden in ((f"&certificate={shown}", "x", "y"), ("", "y", "x")):
            with connect("hermod", at(broker, "hermod.pub", authority, more=more), publishing=True) as client:
                client.publish([Message(topic, b"")])
                with pytest.raises(RemoteError, match="403"):
                    client.publish([Message(forbidden, b"")])


# -- invalid certificates --------------------------------------------------------------------------------


def start(*settings: str) -> str:
    flags = [f"--set={text}" for text in settings]
    done = polycast("serve", "--no-log", "--listen=simplest=tls://127.0.0.1:0", *flags)
    assert "Traceback" not in done.err
    assert done.code == 1
    return done.err


def test_a_start_without_a_certificate() -> None:
    done = polycast("serve", "--no-log", "--listen=simplest=tls://127.0.0.1:0")
    assert (done.code, "needs a certificate" in done.err) == (2, True)


def test_certificates_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.issue("good.pem"), authority.issue("other.pem")
    nonsense, locked = tmp_path / "nonsense.pem", tmp_path / "locked.pem"
    nonsense.write_text("nonsense")
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGb\n-----END ENCRYPTED PRIVATE KEY-----\n")
    assert "cannot read tls.certificate /nowhere.pem" in start("tls.certificate=/nowhere.pem")
    assert f"{nonsense}: is not a PEM certificate" in start(f"tls.certificate={nonsense}")
    assert f"does not match the key {other}" in start(f"tls.certificate={good}", f"tls.key={other}")
    assert "has no PEM certificates" in start(f"tls.certificate={good}", f"tls.client_ca={nonsense}")
    expired = authority.issue("expired.pem", expired=True)
    assert f"tls.certificate {expired} has expired" in start(f"tls.certificate={expired}")


# -- reload ----------------------------------------------------------------------------------------------


def serial_of(broker: Broker, authority: Authority) -> object:
    context = ssl.create_default_context(cafile=str(authority.file))
    port = int(broker.addresses[0][1].rpartition(":")[2])
    plain = socket.create_connection(("127.0.0.1", port), GUARD_SECONDS)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
        return (wrapped.getpeercert() or {})["serialNumber"]


def test_a_new_certificate_is_used_after_sighup(authority: Authority, tmp_path: Path) -> None:
    certificate = tmp_path / "broker.pem"
    certificate.write_bytes(authority.issue("one.pem").read_bytes())
    flags = (f"--set=tls.certificate={certificate}", "--listen=simplest=tls://127.0.0.1:0")
    with Broker(*flags, f"--data={tmp_path}", listen=()) as broker:
        first = serial_of(broker, authority)
        with connect("simplest", at(broker, "simplest", authority), publishing=True) as client:
            certificate.write_bytes(authority.issue("two.pem").read_bytes())
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_for_log("INFO reloaded")
            second = serial_of(broker, authority)
            client.publish([Message("x", b"y")])  # other connections are not affected
        certificate.write_bytes(authority.issue("old.pem", expired=True).read_bytes())
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for_log("not reloaded, all stays as it was: tls.certificate")
        assert first != second == serial_of(broker, authority)


def test_queued_messages_are_sent_before_a_broker_stops(authority: Authority) -> None:
    certificate = authority.issue("stop.pem")
    listen = [f"--listen={name}=tls://127.0.0.1:0" for name in ("simplest", "hermod.sub", "hermod.pub")]
    with Broker(f"--set=tls.certificate={certificate}", *listen, listen=()) as broker:
        subscriber = connect("hermod", at(broker, "hermod.sub", authority), reconnect=False)
        subscriber.subscribe([Exact("x")])
        with connect("hermod", at(broker, "hermod.pub", authority), publishing=True) as client:
            client.publish([Message("x", b"y" * 1_000_000)] * 20)
        broker.begin_to_stop()
        received = 0
        for batch in subscriber.messages():
            received += len(batch)
        assert received == 20
        subscriber.close()
