"""Dialled brokers have an identity and its rights, like any peer."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from access.gate import write_config
from access.test_access_reload import reload
from kit.broker import ALL, Broker
from kit.frames import pub
from kit.hermod import topics
from kit.nanomsg import PUB, SUB, Listening, TakenPeer, message
from kit.room import Room
from kit.ubre import UbrePeer, line
from kit.wire import GUARD_SECONDS, Peer, wait_for
from polycast.dialects.guard import SHOWN_CHARACTERS
from polycast.server.dispatch.mesh_links import ADDRESSES_PER_HOST

LISTEN = (*ALL, "simplest.peer")
ANNOUNCER = "guest may publish //peers/acme/>"
LOCAL = '[simplest]\ndiscover = ["acme"]\ndiscover_networks = ["127.0.0.0/8"]\n'
ELSEWHERE = '[simplest]\ndiscover = ["acme"]\ndiscover_networks = ["10.0.0.0/8"]\n'


@contextmanager
def attacker() -> Iterator[socket.socket]:
    """A listening port to announce."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(GUARD_SECONDS)
        yield listening


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def is_dialled(listening: socket.socket) -> bool:
    listening.setblocking(False)
    try:
        listening.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@contextmanager
def meshed(
    folder: Path, *rules: str, more: str = "", networks: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> Iterator[Broker]:
    """Peers over tcp are `guest`; peers over the files of the folder are `loopback`."""
    guests = ("guest=127.0.0.1/32", *networks)
    config = write_config(folder, "loopback may everything", *rules, networks=guests, more=more)
    file = f"--listen=simplest=ipc://{folder}/simplest"
    names = ("simplest", "ubre", "hermod.sub")
    with Broker(f"--config={config}", file, *flags, listen=names, data=folder / "data") as broker:
        yield broker


def announce(broker: Broker, port: int, name: str = "//peers/acme/evil", host: str = "127.0.0.1") -> None:
    with broker.connect("simplest") as guest:
        guest.send(pub(name, b"%b %d" % (host.encode(), port)))


# -- announced brokers -----------------------------------------------------------------------------------


def test_an_announced_address_outside_of_the_networks_is_not_dialled(tmp_path: Path) -> None:
    with attacker() as evil, meshed(tmp_path, ANNOUNCER, "dialled may everything", more=ELSEWHERE) as broker:
        announce(broker, port_of(evil))
        assert "127.0.0.1 is in none of simplest.discover_networks" in broker.wait_for_log(
            "'acme/evil': not linked"
        )
        assert not is_dialled(evil)


def test_without_networks_nothing_is_dialled_and_the_start_logs_it(tmp_path: Path) -> None:
    more = '[simplest]\ndiscover = ["acme"]\n'
    with attacker() as evil, meshed(tmp_path, ANNOUNCER, "dialled may everything", more=more) as broker:
        broker.wait_for_log("no announced broker is dialled: set simplest.discover_networks")
        announce(broker, port_of(evil))
        broker.wait_for_log("'acme/evil': not linked")
        assert not is_dialled(evil)


def test_an_announced_address_without_a_rule_is_not_dialled_and_logged_once(tmp_path: Path) -> None:
    """With the default rules, too: an announced local address is not trusted as `loopback`."""
    config = tmp_path / "polycast.toml"
    config.write_text(LOCAL)
    with attacker() as evil, Broker(f"--config={config}", listen=LISTEN) as broker, Room(broker) as room:
        for _ in range(3):
            room.simplest(pub("//peers/acme/evil", b"127.0.0.1 %d" % port_of(evil)))
        reported = broker.wait_for_log("'acme/evil': not linked").splitlines()
        assert len(reported) == 1
        assert "dialled has no rights; add a rule such as 'dialled may publish+subscribe a.>'" in reported[0]
        assert not is_dialled(evil)


def test_a_dialled_attacker_has_no_more_rights_than_its_rules(tmp_path: Path) -> None:
    more = LOCAL.replace("127.0.0.0/8", "127.0.0.2/32")
    with (
        meshed(tmp_path, ANNOUNCER, "dialled may publish+subscribe open.>", more=more) as broker,
        socket.create_server(("127.0.0.2", 0)) as evil,
        broker.connect_file("simplest") as local,
    ):
        evil.settimeout(GUARD_SECONDS)
        local.send(b"sub valve\nsub open\nsub fence\n")
        announce(broker, port_of(evil), host="127.0.0.2")
        with TakenPeer(evil.accept()[0]) as link:
            link.read_until(b"sub fence\n")
            link.send(b"sub \nsub secret\nsub open.\n" + pub("valve.open", b"!"))
            link.send(pub("open.valve", b"1") + pub("//fwd/valve.open", b"!") + pub("open.2"))
            local.expect(pub("open.valve", b"1") + pub("open.2"))
            local.send(pub("secret.x", b"42") + pub("//fwd/secret.x") + pub("open.secret", b"ok"))
            assert link.read_until(pub("open.secret", b"ok")) == pub("open.secret", b"ok")
            broker.wait_for_log("dialled may not publish to 'valve.open'")


@pytest.mark.parametrize("name", ["//fwd/peers/acme/evil", "//peers/other/evil", "peers/acme/evil"])
def test_announcements_need_the_right_to_their_name(name: str, tmp_path: Path) -> None:
    with (
        attacker() as evil,
        meshed(tmp_path, ANNOUNCER, "dialled may everything", more=LOCAL) as broker,
        broker.connect("simplest") as guest,
    ):
        guest.send(pub(name, b"127.0.0.1 %d" % port_of(evil)))
        guest.expect_closed()
        assert not is_dialled(evil)


def test_an_announced_broker_may_have_the_identity_of_its_network(tmp_path: Path) -> None:
    """Its rights are those of the network."""
    more = LOCAL.replace("127.0.0.0/8", "127.0.0.2/32")
    with (
        meshed(
            tmp_path, ANNOUNCER, "friend may subscribe news", more=more, networks=("friend=127.0.0.2/32",)
        ) as broker,
        socket.create_server(("127.0.0.2", 0)) as found,
        broker.connect_file("simplest") as local,
    ):
        found.settimeout(GUARD_SECONDS)
        announce(broker, port_of(found), host="127.0.0.2")
        with TakenPeer(found.accept()[0]) as link:
            link.send(b"sub news\nsub other\n" + pub("polycast/x"))
            broker.wait_for_log("friend may not publish to 'polycast/x'")
            local.send(pub("other") + pub("news", b"1"))
            link.read_until(pub("news", b"1"))


def closes_what_leads_to_itself(broker: Broker) -> bool:
    log = broker.log()
    return log.count("it leads to this broker") == log.count("announced at")


def test_announced_addresses_of_this_broker_itself_use_up_no_links(tmp_path: Path) -> None:
    """The broker listens on all addresses, so that only a connection shows where an address leads."""
    more = LOCAL + "links = 2\n"
    listen = "--listen=simplest.peer=tcp://0.0.0.0:0"
    with (
        meshed(
            tmp_path, ANNOUNCER, "dialled may publish+subscribe open.>", more=more, flags=(listen, "-v")
        ) as broker,
        attacker() as honest,
    ):
        for number in range(3):
            announce(broker, broker.ports["simplest.peer"], f"//peers/acme/{number}", f"127.0.0.{20 + number}")
            broker.wait_for_log(f"peer 'acme/{number}': announced at")
            wait_for(lambda: closes_what_leads_to_itself(broker), "a link to itself to end")
        announce(broker, port_of(honest), "//peers/acme/honest")
        honest.accept()[0].close()


def test_one_address_is_dialled_at_few_ports_only(tmp_path: Path) -> None:
    with meshed(tmp_path, ANNOUNCER, "dialled may everything", more=LOCAL) as broker, ExitStack() as stack:
        ports = [stack.enter_context(attacker()) for _ in range(ADDRESSES_PER_HOST)]
        for number, port in enumerate(ports):
            announce(broker, port_of(port), f"//peers/acme/{number}", "::ffff:127.0.0.1")
            stack.enter_context(port.accept()[0])
        evil = stack.enter_context(attacker())
        announce(broker, port_of(evil))
        reported = broker.wait_for_log("'acme/evil': not linked")
        assert f"127.0.0.1 is linked at {ADDRESSES_PER_HOST} ports already, the limit for one address" in reported
        assert not is_dialled(evil)


def test_announcements_are_logged_escaped_and_truncated(tmp_path: Path) -> None:
    with meshed(tmp_path, ANNOUNCER, more=ELSEWHERE) as broker:
        announce(broker, 9, "//peers/acme/x\x1b[2J" + "y" * 150)
        reported = broker.wait_for_log("not linked: 127.0.0.1")
        assert r"peer 'acme/x\x1b[2Jyyy" in reported
        assert "\x1b" not in reported
        assert "y" * SHOWN_CHARACTERS not in reported


# -- configured peers ------------------------------------------------------------------------------------


@contextmanager
def linked(flags: tuple[str, ...], listening: socket.socket) -> Iterator[tuple[Broker, Peer]]:
    listening.settimeout(GUARD_SECONDS)
    with Broker(*flags, listen=LISTEN) as broker, TakenPeer(listening.accept()[0]) as link:
        link.read_until(b"\n")
        yield broker, link


def rules(*texts: str) -> str:
    return f"--set=access.rules={','.join(texts)}"


def test_a_configured_peer_may_do_everything_where_no_rules_are_set() -> None:
    with (
        attacker() as other,
        linked((f"--peer=127.0.0.1:{port_of(other)}",), other) as (broker, link),
        Room(broker) as room,
    ):
        client = room.simplest(b"sub x\n")
        room.send_commands(link, b"sub y\n" + pub("x", b"1"))
        client.expect(pub("x", b"1"))
        room.simplest(pub("y", b"2"))
        link.read_until(pub("y", b"2"))


def test_with_rules_a_configured_peer_has_the_rights_of_its_identity() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        flags = (
            f"--peer=127.0.0.2:{port_of(other)}",
            "--set=access.networks=partner=127.0.0.2/32",
            rules("loopback may everything", "partner may publish+subscribe a.>"),
        )
        with linked(flags, other) as (broker, link), Room(broker) as room:
            client = room.simplest(b"sub \n")
            link.send(b"sub \n" + pub("b", b"no") + pub("a.1", b"1") + pub("xa.1") + pub("a.2", b"2"))
            client.expect(pub("a.1", b"1") + pub("a.2", b"2"))
            room.simplest(pub("b", b"3") + pub("a.3", b"4"))
            assert pub("b", b"3") not in link.read_until(pub("a.3", b"4"))


def test_a_configured_peer_without_rights_is_logged_at_start() -> None:
    flags = (
        "--peer=127.0.0.1:9",
        "--peer=localhost:9",
        "--connect=nanomsg.sub=tcp://192.0.2.1:9",
        "--peer=[::1]:9",
    )
    with Broker(
        *flags, rules("guest may everything", "loopback may publish x over hermod"), listen=("simplest",)
    ) as broker:
        reported = broker.wait_for_log("has no rights").splitlines()
        assert len(reported) == 4
        assert "127.0.0.1:9: loopback has no rights; add a rule such as 'loopback may everything'" in reported[0]
        assert "tcp://192.0.2.1:9: dialled has no rights" in reported[3]
    with Broker(*flags, rules("loopback may everything", "dialled may publish x"), listen=("simplest",)) as broker:
        assert "may do nothing" not in broker.log()


def test_forbidden_messages_of_a_remote_pub_are_refused() -> None:
    allowed = rules("loopback may publish a", "loopback may subscribe >", "loopback may publish polycast/fence")
    with (
        Listening() as remote,
        Broker(f"--connect=nanomsg.sub={remote.address}", allowed) as broker,
        remote.accept() as peer,
        broker.connect("simplest") as client,
    ):
        peer.expect(SUB)
        peer.send(PUB)
        client.send(b"sub a\nsub b\n")
        broker.wait_for_log(": connected")
        wait_for(lambda: _publishes(peer, client), "what is published to come")


def _publishes(peer: Peer, client: Peer) -> bool:
    peer.send(message(b"b|1") + message(b"a|2"))
    client.socket.settimeout(0.1)
    try:
        client.expect(pub("a", b"2"))
    except TimeoutError:
        return False
    finally:
        client.socket.settimeout(GUARD_SECONDS)
    return True


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_a_remote_sub_receives_only_allowed_topics(scheme: str) -> None:
    allowed = rules("loopback may subscribe a.>", "loopback may publish >", "loopback may publish polycast/>")
    with (
        Listening(f"{scheme}://127.0.0.1:0") as remote,
        Broker(f"--connect=nanomsg.pub={remote.address}", allowed) as broker,
        remote.accept_websocket("sub.sp.nanomsg.org") if scheme == "ws" else remote.accept() as peer,
        broker.connect("simplest") as client,
    ):
        if scheme == "tcp":
            peer.expect(PUB)
            peer.send(SUB)
        broker.wait_for_log(": connected")
        peer.socket.settimeout(0.1)

        def received() -> bytes:
            client.send(pub("b.1", b"no") + pub("a.1", b"yes"))
            try:
                return peer.socket.recv(65536)
            except TimeoutError:
                return b""

        found = wait_for(received, "what it may have")
        assert scheme == "ws" or found.startswith(message(b"a.1|yes"))
        assert b"b.1" not in found


def test_rules_that_change_change_what_a_link_carries(tmp_path: Path) -> None:
    networks = ("partner=127.0.0.2/32",)
    with socket.create_server(("127.0.0.2", 0)) as other:
        config = write_config(tmp_path, "loopback may everything", "partner may subscribe a", networks=networks)
        flags = (f"--config={config}", f"--peer=127.0.0.2:{port_of(other)}")
        with linked(flags, other) as (broker, link), Room(broker) as room:
            link.send(b"sub \n" + pub("z"))
            broker.wait_for_log("partner may not publish to 'z'")
            room.simplest(pub("b", b"1") + pub("a", b"2"))
            assert pub("b", b"1") not in link.read_until(pub("a", b"2"))
            write_config(tmp_path, "loopback may everything", "partner may subscribe b", networks=networks)
            reload(broker, "reloaded")
            room.simplest(pub("a", b"3") + pub("b", b"4"))
            assert pub("a", b"3") not in link.read_until(pub("b", b"4"))
            write_config(tmp_path, "loopback may everything", "guest may publish x", networks=networks)
            reload(broker, "reloaded")
            link.expect_closed()


# -- broker ids ------------------------------------------------------------------------------------------


def test_a_guest_that_claims_the_id_of_another_broker_does_not_close_its_link() -> None:
    """With the smallest id: two honest brokers keep the link that the one with the smaller id dialled."""
    with socket.create_server(("127.0.0.2", 0)) as other:
        flags = (
            f"--peer=127.0.0.2:{port_of(other)}",
            "--set=access.networks=partner=127.0.0.2/32,guest=127.0.0.5/32",
            rules("loopback may everything", "partner may everything", "guest may publish open.>"),
            "-v",
        )
        with (
            linked(flags, other) as (broker, link),
            connect_from("127.0.0.5", broker.ports["simplest.peer"]) as guest,
            Room(broker) as room,
        ):
            client = room.simplest(b"sub news\nsub open\n")
            link.read_until(b"sub open\n")
            room.send_commands(link, b"sub polycast/node/0\nsub news\n")
            guest.send(b"sub polycast/node/0\n" + pub("open.1", b"1"))
            assert b"sub polycast/node/" in guest.read_until(b"unsub open\n")
            client.expect(pub("open.1", b"1"))
            room.send_commands(link, pub("news", b"2"))
            client.expect(pub("news", b"2"))
            room.simplest(pub("news", b"3"))
            assert link.read_until(pub("news", b"3")) == pub("news", b"3")
            assert "leads to the same broker" not in broker.log()


@contextmanager
def connect_from(host: str, port: int) -> Iterator[Peer]:
    with TakenPeer(socket.create_connection(("127.0.0.1", port), GUARD_SECONDS, (host, 0))) as peer:
        yield peer


# -- forwarded topics ------------------------------------------------------------------------------------


def test_with_forwarding_a_forbidden_topic_is_forbidden_under_its_forwarded_name(tmp_path: Path) -> None:
    """Live, from the log, and to publish. Rules that name `//fwd/` alone grant nothing."""
    more = "[simplest]\nforward = true\n"
    granted = ("guest may publish+subscribe //fwd/>", "guest may subscribe ~//fwd/", "guest may subscribe open.>")
    with (
        meshed(tmp_path, *granted, more=more) as broker,
        broker.connect_file("simplest") as local,
        broker.connect_file("simplest") as publisher,
    ):
        local.send(b"sub valve\nsub fence\n")
        wait_for(lambda: _receives(local, publisher), "a subscription to be there")
        publisher.send(pub("//fwd/secret.x", b"43"))
        for text in (b"//fwd/secret", b"//fwd/", b"fwd/secret.x", b""):
            with broker.connect("simplest") as guest:
                guest.send(b"sub %b\n" % text)
                assert guest.expect_closed() == b""
        with broker.connect("simplest") as guest:
            guest.send(pub("//fwd/valve.open", b"!"))
            guest.expect_closed()
        publisher.send(pub("fence", b"last"))
        assert b"valve" not in local.read_until(pub("fence", b"last"))
        with broker.connect("ubre") as peer:
            for pattern, allowed in (
                ("//fwd/>", False),
                ("//fwd/secret.x", False),
                ("~d/", False),
                ("open.>", True),
            ):
                peer.send(line(request="polycast/history", id=1, body={"pattern": pattern}))
                assert (b"Forbidden" not in peer.read_until(b"\n")) == allowed, pattern
        for name in ("//fwd/secret.x", "//fwd/>"):
            with broker.connect("hermod.sub") as subscriber:
                subscriber.send(topics(name, **{"from": "earliest"}))
                assert b'"code": 403' in subscriber.read_until(b"\n")


def _receives(local: Peer, publisher: Peer) -> bool:
    publisher.send(pub("fence"))
    return bool(select.select([local.socket], [], [], 0.1)[0])


@pytest.mark.parametrize("delivery", ["live", "committed"])
def test_a_copy_is_delivered_to_subscribers_with_the_right_to_both_original_names(
    delivery: str, tmp_path: Path
) -> None:
    """`//fwd/plan` was published as `plan` or as `//plan`, by a client of a broker further away."""
    rules = (
        "one may subscribe plan",
        "both may subscribe plan",
        "both may subscribe //plan",
        "mesh may publish >",
    )
    networks = ("one=127.0.0.1/32", "both=127.0.0.2/32", "mesh=127.0.0.3/32")
    config = write_config(tmp_path, *rules, networks=networks)
    flags = (f"--config={config}", "--forward", f"--set=log.delivery={delivery}")
    with (
        Broker(*flags, listen=("ubre", "simplest.peer"), data=tmp_path / "data") as broker,
        UbrePeer(broker.ports["ubre"]) as one,
        UbrePeer(broker.ports["ubre"], source="127.0.0.2") as both,
        Peer(broker.ports["simplest.peer"], source="127.0.0.3") as link,
    ):
        for peer in (one, both):
            peer.send_message(subscribe="plan")
            assert peer.refusal("nobody", None) == "Forbidden"
        link.send(pub("//fwd/plan", b"1") + pub("plan", b"2"))
        both.expect_message(publish="plan", body="1")
        both.expect_message(publish="plan", body="2")
        one.expect_message(publish="plan", body="2")
