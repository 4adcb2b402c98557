"""Three brokers in a row: A - B - C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.frames import pub
from kit.net import Net
from kit.wire import wait_for


def chain(net: Net, *forwarding: str) -> Net:
    for name, peers in (("A", ""), ("B", "A"), ("C", "B")):
        net.start(name, peers, *(["--forward"] if name in forwarding else []))
    return net


@pytest.fixture(scope="module")
def forwarding() -> Iterator[Net]:
    with Net() as net:
        yield chain(net, "A", "B", "C")


def wait_until_subscribed(net: Net, text: str) -> None:
    """Until C has subscribed at B, and B, which has two links, to everything at A."""
    net.links["CB"].wait_until_carried(f"sub {text}\n".encode())
    net.links["BA"].wait_until_carried(b"sub \n")
    net.flush()


@pytest.mark.parametrize("text", ["//x1", "//fwd/x2"])
def test_messages_cross_brokers_without_subscribers(forwarding: Net, text: str) -> None:
    name = "//" + text[-2:]
    client = forwarding.rooms["C"].simplest(f"sub {text}\n".encode())
    wait_until_subscribed(forwarding, name)
    wait_until_subscribed(forwarding, name.replace("//", "//fwd/"))
    forwarding.publish("A", pub(name, b"1") + pub(name, b"2"))
    client.expect(pub(text, b"1") + pub(text, b"2"))
    forwarding.publish("B", pub(name, b"3"))
    client.expect(pub(text, b"3"))
    forwarding.rooms["C"].expect_quiet(client)


def test_both_dialects_at_both_ends(forwarding: Net) -> None:
    rooms = forwarding.rooms
    first, last = rooms["A"].client(b"subscribe chat.>\n"), rooms["C"].client(b"subscribe chat.>\n")
    wait_for(lambda: b"sub chat.\n" in forwarding.links["BA"].from_target, "A to subscribe at B")
    wait_until_subscribed(forwarding, "chat.")
    rooms["A"].send_as_controller(rooms["A"].controller(), b"chat.a from A\n")
    last.expect(b"chat.a!from A\n")
    rooms["C"].simplest(pub("chat.c", b"from C"))
    first.expect(b"chat.a!from A\nchat.c!from C\n")


def test_a_subscription_that_ends_is_taken_back(forwarding: Net) -> None:
    client = forwarding.rooms["C"].simplest(b"sub //ends\n")
    wait_until_subscribed(forwarding, "//ends")
    client.close()
    forwarding.links["CB"].wait_until_carried(b"unsub //ends\n")
    forwarding.links["CB"].wait_until_carried(b"unsub //fwd/ends\n")


def test_a_subscription_comes_back_with_the_link(forwarding: Net) -> None:
    client = forwarding.rooms["C"].simplest(b"sub //back\n")
    wait_until_subscribed(forwarding, "//back")
    forwarding.links["CB"].cut()
    forwarding.links["BA"].wait_until_carried(b"unsub \n")
    forwarding.links["BA"].forget()
    forwarding.links["CB"].restore()
    wait_until_subscribed(forwarding, "//back")
    wait_until_subscribed(forwarding, "//fwd/back")
    forwarding.publish("A", pub("//back", b"again"))
    client.expect(pub("//back", b"again"))
    forwarding.brokers["C"].wait_for_log("connection lost; dialling again")


def test_only_the_broker_in_the_middle_must_forward() -> None:
    with Net() as net:
        chain(net, "B")
        forwarded = net.rooms["C"].simplest(b"sub //fwd/x\n")
        substring = net.rooms["C"].simplest(b"sub x\n")
        fanout = net.rooms["C"].client(b"subscribe //fwd/x\n")
        wait_until_subscribed(net, "//fwd/x")
        wait_until_subscribed(net, "x")
        net.publish("A", pub("//x", b"1") + pub("//x", b"2"))
        for client in (forwarded, substring):
            client.expect(pub("//fwd/x", b"1") + pub("//fwd/x", b"2"))
        fanout.expect(b"//fwd/x!1\n//fwd/x!2\n")


def test_without_forwarding_nothing_is_passed_on() -> None:
    with Net() as net:
        chain(net)
        far = net.rooms["C"].simplest(b"sub x\nsub //fwd/x\n")
        near = net.rooms["B"].simplest(b"sub x\n")
        net.links["CB"].wait_until_carried(b"sub x\n")
        net.links["BA"].wait_until_carried(b"sub x\n")
        net.flush()
        net.publish("A", pub("//x", b"1") + pub("//fwd/x", b"2"))
        near.expect(pub("//x", b"1") + pub("//fwd/x", b"2"))
        net.publish("B", pub("//x", b"3"))
        far.expect(pub("//x", b"3"))
