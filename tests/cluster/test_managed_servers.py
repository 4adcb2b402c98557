"""Nodes with a nats-server of their own: started, watched and stopped by the broker."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.trio import LISTEN, NAMES, PATIENCE, read_table
from kit.broker import Broker
from kit.certificates import Authority
from kit.program import polycast
from kit.replay import publish
from kit.subscribers import send_request
from kit.wire import wait_for
from polycast.cluster import nats_server
from polycast.cluster.local_server import free_ports
from polycast.cluster.managed_server import to_plan
from polycast.cluster.nats_server import StoreLock, find_program, responds, write_configuration
from polycast.errors import StartError
from polycast.log.settings import LogSettings
from polycast.server.settings import ClusterSettings, Settings


def send(node: Broker, topic: str, *payloads: bytes) -> None:
    with node.connect("hermod.pub") as peer:
        peer.socket.settimeout(PATIENCE)
        publish(peer, [(topic, payload) for payload in payloads])


def to_flags(folder: Path) -> list[list[str]]:
    places = [f"127.0.0.1:{port}" for port in free_ports(2 * len(NAMES))]
    listen, routes = places[: len(NAMES)], places[len(NAMES) :]
    authority = Authority(folder)
    return [
        [
            "--set=cluster.manage=true", f"--node={name}", f"--set=cluster.listen={listen[index]}",
            f"--set=cluster.route={routes[index]}", f"--set=cluster.credentials={folder / 'password'}",
            f"--set=cluster.routes={','.join(each for each in routes if each != routes[index])}",
            "--set=cluster.tls=true", f"--set=tls.ca={authority.file}",
            f"--set=tls.certificate={authority.issue(f'{name}.pem')}",
        ]
        for index, name in enumerate(NAMES)
    ]  # fmt: skip


def pid_of(folder: Path, name: str) -> int:
    file = folder / name / "nats" / "nats.pid"
    text = file.read_text() if file.exists() else ""
    return int(text) if text else 0


def test_a_single_broker_becomes_the_first_of_three_nodes_with_managed_servers(tmp_path: Path) -> None:
    with Broker(listen=LISTEN, data=tmp_path / "a") as single:
        send(single, "news", b"before")
    flags = to_flags(tmp_path)
    nodes = [Broker(*flags[i], listen=LISTEN, data=tmp_path / name) for i, name in enumerate(NAMES)]
    with ExitStack() as running, ThreadPoolExecutor(3) as starting:
        first = starting.submit(running.enter_context, nodes[0])
        wait_for(lambda: pid_of(tmp_path, "a") or first.done(), "the server of the first node", PATIENCE)
        others = [starting.submit(running.enter_context, node) for node in nodes[1:]]
        wait_for(lambda: first.done() and all(each.done() for each in others), "three nodes", PATIENCE)
        send(nodes[1], "news", b"after")
        check_files(tmp_path)
        check_restart_of_a_server(tmp_path, nodes)
        check_kill_of_a_node(tmp_path, nodes[2])
    tables = [read_table(tmp_path / name / "log") for name in NAMES]
    assert tables[0]["payload"].to_pylist() == [b"before", b"after", b"killed"]
    assert tables[0].equals(tables[1])
    assert not any(responds(flag.partition("=")[2].partition("=")[2]) for flag in [each[2] for each in flags])


def check_files(folder: Path) -> None:
    assert stat.S_IMODE((folder / "a" / "nats").stat().st_mode) == 0o700
    for file in (folder / "a" / "nats" / "nats.conf", folder / "password"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def check_restart_of_a_server(folder: Path, nodes: list[Broker]) -> None:
    before = pid_of(folder, "b")
    os.kill(before, signal.SIGKILL)
    send(nodes[1], "news", b"killed")
    wait_for(lambda: pid_of(folder, "b") not in (0, before), "another server", PATIENCE)
    nodes[1].wait_for_log("nats-server ended with -9")
    found = wait_for(lambda: to_level(nodes[0]), "three nodes at one sequence", PATIENCE)
    assert found["stream"]["replicas"] == list(NAMES)


def to_level(node: Broker) -> dict[str, Any]:
    found: dict[str, Any] = send_request(node, "polycast/cluster")
    return found if [row["lag"] for row in found["nodes"]] == [0, 0, 0] else {}


def check_kill_of_a_node(folder: Path, node: Broker) -> None:
    """The server of a broker that was killed ends as well."""
    pid = pid_of(folder, "c")
    node.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of its server", PATIENCE)


def test_one_server_writes_to_a_store(tmp_path: Path) -> None:
    """Another start with the same folder starts no server, and leaves the configuration as it is."""
    listen, other = [f"--set=cluster.listen=127.0.0.1:{port}" for port in free_ports(2)]
    data = tmp_path / "a"
    with Broker("--set=cluster.manage=true", "--node=a", listen, listen=LISTEN, data=data) as node:
        before = (data / "nats" / "nats.conf").read_text(), (data / "nats" / "nats.log").read_text()
        for wanted in (listen, other):
            flags = ["--set=cluster.manage=true", "--node=b", wanted, "--listen=simplest=tcp://127.0.0.1:0"]
            refused = polycast("serve", f"--data={data}", *flags)
            assert refused.code == 1
            text = f"the nats-server in {data / 'nats'} was started by process {node.process.pid}, and runs"
            assert text in refused.err
        assert ((data / "nats" / "nats.conf").read_text(), (data / "nats" / "nats.log").read_text()) == before
        send(node, "news", b"1")
    with Broker("--set=cluster.manage=true", "--node=a", other, listen=LISTEN, data=data) as node:
        send(node, "news", b"2")
    assert read_table(data / "log")["payload"].to_pylist() == [b"1", b"2"]


def test_a_store_is_locked_until_its_server_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the process that started the server was killed."""
    monkeypatch.setattr(nats_server, "LOCK_SECONDS", 0.0)
    lock = StoreLock(tmp_path)
    server = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lock.descriptor])
    lock.release()
    (tmp_path / "lock").write_text("0\n")
    with pytest.raises(StartError, match="was started by"):
        StoreLock(tmp_path)
    server.communicate()
    StoreLock(tmp_path).release()


def test_the_name_of_the_cluster_of_servers(tmp_path: Path) -> None:
    """As far as nats-server itself accepts the configuration."""
    assert ClusterSettings().name == "polycast"
    for name, routes in (("orders_2", ["b:6222"]), ("alone", [])):
        wanted = ClusterSettings(manage=True, node="a", routes=routes, name=name)
        plan = to_plan(Settings(cluster=wanted, log=LogSettings(data=str(tmp_path))))
        file = write_configuration(plan, "a-password-for-all")
        assert (f'name: "{name}"' in file.read_text()) == bool(routes)
        checked = subprocess.run([find_program(), "-t", "-c", str(file)], capture_output=True, text=True)
        assert checked.returncode == 0, checked
    refused = polycast("serve", "--set=cluster.name=a b", "--check")
    assert refused.code == 2
    assert "cluster.name" in refused.err


def test_a_password_that_is_none_and_a_route_without_a_port(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("short\n")
    flags = ["serve", f"--data={tmp_path / 'a'}", "--node=a", "--listen=simplest=tcp://127.0.0.1:0",
             "--set=cluster.manage=true", f"--set=cluster.credentials={password}"]  # fmt: skip
    refused = polycast(*flags)
    assert refused.code == 1
    assert "has no password of 12 to 200 letters" in refused.err
    wrong = polycast(*flags, "--set=cluster.routes=b")
    assert wrong.code == 2
    assert "cluster.routes: 'b': expected HOST:PORT" in wrong.err
