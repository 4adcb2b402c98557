"""Credentials files and permissions: what a node needs, and what it says without."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import nkeys

from cluster.trio import LISTEN
from kit import hermod
from kit.broker import Broker
from kit.nats import Servers
from kit.program import polycast
from kit.replay import publish

KINDS = (
    nkeys.PREFIX_BYTE_OPERATOR,
    nkeys.PREFIX_BYTE_ACCOUNT,
    nkeys.PREFIX_BYTE_ACCOUNT,
    nkeys.PREFIX_BYTE_USER,
)
USERS = """
authorization {
  users: [
    { user: node, password: pw, permissions: {
        publish: ["POLYCAST.>", "_INBOX.>", "$JS.API.>"], subscribe: ["POLYCAST.>", "_INBOX.>"] } },
    { user: reader, password: pw, permissions: { publish: { deny: "POLYCAST.log" } } }
  ]
}
"""


def refusal(folder: Path, *flags: str) -> str:
    finished = polycast("serve", "--node=a", "--listen=simplest=tcp://127.0.0.1:0", f"--data={folder}", *flags)
    assert finished.code == 1, finished
    return finished.err


def test_a_credentials_file_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    file, other = tmp_path / "node.creds", tmp_path / "other.creds"
    other.write_text("secret\n")
    for check in ([], ["--check"]):
        flags = ["--cluster=nats://127.0.0.1:1", *check]
        said = refusal(tmp_path / "a", *flags, f"--set=cluster.credentials={file}")
        assert f"cluster.credentials: cannot read {file}: No such file" in said
        assert "hint: nsc generate creds" in said
        assert "is not a credentials file of NATS" in refusal(
            tmp_path / "a", *flags, f"--set=cluster.credentials={other}"
        )


class Account:
    """An operator, an account and a user of NATS, as `nsc` creates them. JetStream needs a system account, too."""

    def __init__(self) -> None:
        operator, account, system, user = (to_key(kind) for kind in KINDS)
        self._seed = user.seed.decode()
        self._user = to_jwt(account, user, {"type": "user", "subs": -1, "data": -1, "payload": -1})
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
        self._accounts = {
            key.public_key.decode(): to_jwt(operator, key, {"type": "account", "limits": {**unlimited, **limits}})
            for key, limits in ((account, storage), (system, {}))
        }
        self._system = system.public_key.decode()
        self._operator = to_jwt(operator, operator, {"type": "operator", "system_account": self._system})

    def to_configuration(self) -> str:
        accounts = "\n".join(f"{key}: {jwt}" for key, jwt in self._accounts.items())
        return (
            f"operator: {self._operator}\nsystem_account: {self._system}\n"
            f"resolver: MEMORY\nresolver_preload: {{\n{accounts}\n}}"
        )

    def to_credentials(self) -> str:
        return (
            f"-----BEGIN NATS USER JWT-----\n{self._user}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self._seed}\n------END USER NKEY SEED------\n"
        )


def to_key(kind: int) -> Any:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), kind)))


def to_jwt(issuer: Any, subject: Any, claims: dict[str, Any]) -> str:
    body = {"iss": issuer.public_key.decode(), "sub": subject.public_key.decode(), "iat": 0, "name": "polycast"}
    claims = {**claims, "version": 2}
    digest = hashlib.sha256(json.dumps({**body, "nats": claims}).encode()).digest()
    full = {"jti": base64.b32encode(digest).rstrip(b"=").decode(), **body, "nats": claims}
    parts = [to_text(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, full)]
    return ".".join([*parts, to_text(issuer.sign(".".join(parts).encode()))])


def to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_node_with_a_credentials_file(tmp_path: Path) -> None:
    account, file = Account(), tmp_path / "node.creds"
    file.write_text(account.to_credentials())
    with Servers(tmp_path / "nats", 1, more=account.to_configuration()) as servers:
        flags = [f"--cluster={servers.urls}", "--node=a"]
        given = Broker(*flags, f"--set=cluster.credentials={file}", listen=LISTEN, data=tmp_path / "a")
        with given as node, node.connect("hermod.pub") as peer:
            publish(peer, [("t", b"1")])
        assert "refuse the credentials" in refusal(tmp_path / "b", *flags)


def test_a_user_without_the_permission_to_publish(tmp_path: Path) -> None:
    with Servers(tmp_path / "nats", 1, more=USERS) as servers:
        address = servers.urls.removeprefix("nats://")
        with Broker(f"--cluster=nats://node:pw@{address}", "--node=a", listen=LISTEN, data=tmp_path / "a") as node:
            with node.connect("hermod.pub") as peer:
                publish(peer, [("t", b"1")])
            assert "the servers refuse" not in node.log()
        reader = Broker(f"--cluster=nats://reader:pw@{address}", "--node=b", listen=LISTEN, data=tmp_path / "b")
        with reader as node, node.connect("hermod.pub") as peer:
            peer.send(hermod.message("t", b"2"))
            said = node.wait_for_log("the servers refuse this node")
            assert 'publish to "polycast.log"' in said.lower()
            assert "to publish and subscribe to POLYCAST.> and _INBOX.>, and to publish to $JS.API.>" in said
            node.kill()
