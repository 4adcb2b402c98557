"""`--at` with the address of a listener: which dialect `sub` speaks there, and a listener of another dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from access.gate import gated
from kit import hermod
from kit.broker import Broker
from kit.http import read_response
from kit.links import free_port
from kit.program import POLYCAST, Finished, Program, polycast, polycast_here
from kit.replay import publish
from kit.subscribers import LISTEN
from polycast.client.recognition import find_dialect

EVERY = (*LISTEN, "fanout.controller")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker("--no-log", listen=EVERY) as started:
        yield started


def at(broker: Broker, listener: str) -> str:
    return f"tcp://127.0.0.1:{broker.ports[listener]}"


# -- the http listener ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:{http}", "http://127.0.0.1:{dead}/,http://127.0.0.1:{http}/"]
)
@pytest.mark.parametrize("command", ["stats", "topics", "connections"])
def test_the_http_listener_is_enough_for_commands(broker: Broker, command: str, address: str) -> None:
    flags = ["--at", address.format(http=broker.ports["http"], dead=free_port())]
    done = polycast(command, *flags, *(["--json"] if command == "stats" else []))
    assert done.code == 0, done.err
    if command == "stats":
        assert json.loads(done.out)["version"]


# -- the dialect of a listener -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "dialect"),
    [
        ("tcp://a.invalid:7878,tcp://b.invalid:7878", "hermod"),
        ("a.invalid:8787", "hermod"),
        ("tls://a.invalid:8787?ca=x", "hermod"),
        ("tcp://a.invalid:9014", "simplest"),
        ("tcp://a.invalid:8880", "fanout"),
        ("tcp://a.invalid:5550", "nanomsg"),
        ("http://a.invalid:9014,tcp://b.invalid:9014", "hermod"),
        ("a.invalid,tcp://b.invalid:9014", "hermod"),
    ],
)
def test_default_ports_are_known(address: str, dialect: str) -> None:
    """Without a connection."""
    assert find_dialect(address) == dialect


@pytest.mark.parametrize(
    ("listener", "dialect"),
    [("hermod.sub", "hermod"), ("hermod.pub", "hermod"), ("simplest", "simplest"), ("fanout.client", "simplest")],
)
def test_other_ports_are_asked(broker: Broker, listener: str, dialect: str) -> None:
    assert find_dialect(f"tcp://127.0.0.1:{free_port()},{at(broker, listener)}") == dialect


def test_hermod_if_nothing_answers() -> None:
    assert find_dialect(f"tcp://127.0.0.1:{free_port()}") == "hermod"


def test_a_client_without_rights_is_told_in_hermod(tmp_path: Path) -> None:
    with gated(tmp_path, listen=("hermod.sub", "simplest")) as closed:
        assert find_dialect(at(closed, "hermod.sub")) == "hermod"
        assert find_dialect(at(closed, "simplest")) == "simplest"


@pytest.mark.parametrize("listener", ["hermod.sub", "hermod.pub", "simplest"])
def test_sub_at_the_address_of_a_listener(broker: Broker, listener: str) -> None:
    """The addresses that `polycast serve` prints; the first one does not answer."""
    addresses = f"tcp://127.0.0.1:{free_port()},{at(broker, listener)}"
    with Program(*POLYCAST, "sub", "t", "--count=1", "--at", addresses) as shown:
        assert b"subscribed to t at" in shown.stderr.readline()
        with broker.connect("hermod.pub") as publisher:
            publish(publisher, [("t", b"x")])
        done = shown.finish()
    assert (done.code, done.out) == (0, b"t x\n")


# -- a listener of another dialect ---------------------------------------------------------------------------


MISDIRECTED = "refused: 421 the first line is a header of hermod, and this listener is of another dialect"


@pytest.mark.parametrize("listener", ["simplest", "fanout.controller", "ubre"])
@pytest.mark.parametrize("command", ["sub", "pub"])
def test_hermod_at_a_listener_of_lines(broker: Broker, listener: str, command: str) -> None:
    failed = run(command, at(broker, listener))
    assert failed.code == 1
    assert MISDIRECTED in failed.err
    assert "'polycast serve' prints its listeners" in failed.err


@pytest.mark.parametrize("listener", ["http", "fanout.client", "nanomsg.pub"])
@pytest.mark.parametrize("command", ["sub", "pub"])
def test_hermod_at_a_listener_that_replies_otherwise(broker: Broker, listener: str, command: str) -> None:
    failed = run(command, at(broker, listener))
    assert failed.code == 1
    assert "is not hermod" in failed.err
    assert "'polycast serve' prints its listeners; --dialect D speaks another dialect" in failed.err


def run(command: str, address: str) -> Finished:
    arguments = ["t"] if command == "sub" else ["t", "x"]
    return polycast(command, *arguments, "--dialect=hermod", "--at", address)


def test_the_reply_comes_byte_by_byte_as_well(broker: Broker) -> None:
    with broker.connect("simplest") as peer:
        for byte in hermod.topics("a")[:9]:
            peer.send(bytes([byte]))
        assert hermod.read_error(peer)["code"] == 421
        peer.expect_closed()


def test_http_refuses_a_first_byte_that_begins_no_method(broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(b"{")
        assert read_response(peer).status == 400


def test_the_help_names_the_choice() -> None:
    shown = " ".join(polycast_here("sub", "--help").out.decode().replace("│", " ").split())
    assert "hermod, or with the address of a listener the dialect of that default port" in shown
