"""Command lines of the parts."""

from __future__ import annotations

import pytest

from polycast.address import parse_address
from polycast.up.child import to_reason
from polycast.up.nodes import node_parts, to_cluster
from polycast.up.parts import Listening, UpOptions, broker_arguments, console_url, reachable_address, to_parts


def listening(**places: list[str]) -> Listening:
    return {name.replace("_", "."): [parse_address(text) for text in texts] for name, texts in places.items()}


OPEN = listening(http=["tcp://0.0.0.0:8080"], hermod_pub=["tcp://127.0.0.1:7878"])
LISTEN = {
    "simplest": ["tcp://127.0.0.1:0?policy=drop", "tcp://127.0.0.1:9014", "tcp://127.0.0.1:0"],
    "http": ["ipc:///h"],
}


def options(**more: bool) -> UpOptions:
    return UpOptions(["--data=D"], LISTEN, "D", ["traffic.late_seconds=5"], **more)


def test_the_broker_gets_the_flags_of_up() -> None:
    expected = [f"--listen={name}={text}" for name, texts in LISTEN.items() for text in texts]
    assert broker_arguments(options(), {}) == ["serve", "--data=D", *expected]


def test_a_restarted_broker_has_the_same_ports() -> None:
    was = listening(
        simplest=["tcp://127.0.0.1:4001", "tcp://127.0.0.1:9014", "tcp://127.0.0.1:4002"], http=["ipc:///h"]
    )
    assert broker_arguments(options(), was)[2:] == [
        "--listen=simplest=tcp://127.0.0.1:4001?policy=drop",
        "--listen=simplest=tcp://127.0.0.1:9014",
        "--listen=simplest=tcp://127.0.0.1:4002",
        "--listen=http=ipc:///h",
    ]


def test_only_the_named_parts_run() -> None:
    assert [part.name for part in to_parts(options())] == ["broker", "spark"]
    assert [part.name for part in to_parts(options(spark=False, demo=True))] == ["broker", "demo"]


def test_spark_gets_the_addresses_and_short_windows_in_the_demo() -> None:
    _, spark, demo = to_parts(options(demo=True))
    place = ["--data=D", "--hermod=tcp://127.0.0.1:7878", "--http=tcp://127.0.0.1:8080"]
    arguments = list(spark.arguments(OPEN))
    assert arguments[:3] == place
    assert "--set=traffic.window_seconds=10" in arguments
    assert arguments[-1] == "--set=traffic.late_seconds=5"  # the last setting wins
    assert demo.arguments(OPEN) == ["http=tcp://127.0.0.1:8080", "hermod.pub=tcp://127.0.0.1:7878"]


@pytest.mark.parametrize(
    ("data", "where", "why"),
    [
        ("D", OPEN, ""),
        ("", OPEN, "no log"),
        ("D", listening(http=["tcp://127.0.0.1:1"]), "hermod.pub"),
        ("D", listening(hermod_pub=["tcp://127.0.0.1:1"]), "http"),
    ],
)
def test_reasons_why_spark_is_unavailable(data: str, where: Listening, why: str) -> None:
    spark = to_parts(UpOptions([], LISTEN, data))[1]
    assert why in spark.unavailable(where)
    assert bool(why) == bool(spark.unavailable(where))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (["tcp://127.0.0.1:8080"], "http://127.0.0.1:8080/"),
        (["ipc:///h", "tcp://[::]:80"], "http://[::1]:80/"),
        (["tls://10.0.0.1:443"], "https://10.0.0.1:443/"),
        (["ipc:///h"], ""),
        ([], ""),
    ],
)
def test_console_url(places: list[str], expected: str) -> None:
    assert console_url(listening(http=places)) == expected


def test_a_part_prefers_an_address_without_tls() -> None:
    assert (
        reachable_address([parse_address("tls://0.0.0.0:1"), parse_address("tcp://0.0.0.0:2")])
        == "tcp://127.0.0.1:2"
    )
    assert reachable_address([parse_address("tls://[::]:1")]) == "tls://[::1]:1"
    assert reachable_address([]) == ""


def test_reason_of_an_exit() -> None:
    assert to_reason(3, "") == "ended with code 3"
    assert to_reason(-9, "") == "killed by signal 9"
    assert to_reason(1, "no room") == "no room"


def test_a_cluster_has_servers_and_nodes_with_ports_and_folders_of_their_own() -> None:
    listen = {"http": ["tcp://127.0.0.1:8080"], "hermod.pub": ["tcp://127.0.0.1:0"]}
    cluster = to_cluster(UpOptions(["--data=there", "--verbose"], listen, "there"), 3)
    servers, nodes = cluster.servers, node_parts(cluster)
    assert [part.name for part in (*servers, *nodes)] == ["nats-n1", "nats-n2", "nats-n3", "broker", "n2", "n3"]
    assert all(part.before_broker for part in servers)
    assert list(nodes[2].arguments({})) == [
        "serve", "--verbose", "--data=there/n3", "--node=n3",
        "--listen=http=tcp://127.0.0.1:8280", "--listen=hermod.pub=tcp://127.0.0.1:0",
    ]  # fmt: skip
    secret = servers[0].environment({})["POLYCAST_NATS_PASSWORD"]
    assert f":{secret}@" in nodes[1].environment({})["POLYCAST_CLUSTER_SERVERS"]
    assert not any(secret in text for part in (*servers, *nodes) for text in part.arguments({}))
