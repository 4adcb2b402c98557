"""Tokens: their file, and how dialects send them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from access.gate import BASE, counted, gated
from kit.broker import Broker
from kit.hermod import OK, message
from kit.http import get, read_response
from kit.program import polycast
from kit.ubre import UbrePeer, line
from kit.websocket import TEXT, frame, upgrade, welcome
from kit.wire import wait_for
from polycast.client import connect
from polycast.errors import RefusedError, RemoteError, StartError, UsageError
from polycast.log.files import permissions
from polycast.model import Exact, Message
from polycast.server.access.tokens import FILE, add_token, digest_of, find, read_tokens, revoke_token

RULES = ["sensors may publish sensors.>", "sensors may subscribe sensors.>"]


# -- the token file --------------------------------------------------------------------------------------


def test_only_digests_are_written_to_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    token = add_token(folder, "sensors", RULES)
    text = (folder / FILE).read_text()
    assert token not in text
    [entry] = json.loads(text)["tokens"]
    assert (entry["name"], entry["rules"]) == ("sensors", RULES)
    assert entry["sha256"] == hashlib.sha256(token.encode()).hexdigest()
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_tokens_differ_and_are_found(tmp_path: Path) -> None:
    tokens = {name: add_token(tmp_path, name, []) for name in ("a", "b", "c")}
    assert len(set(tokens.values())) == 3
    known = read_tokens(tmp_path / FILE)
    for name, token in tokens.items():
        found = find(known, digest_of(token))
        assert found is not None
        assert found.name == name
    assert find(known, digest_of("d")) is None
    assert find([], digest_of("d")) is None
    revoke_token(tmp_path, "b")
    assert [token.name for token in read_tokens(tmp_path / FILE)] == ["a", "c"]


def test_a_file_of_another_account_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could grant any right."""
    add_token(tmp_path, "a", [])
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(permissions, "ROOT", 4322)
    with pytest.raises(StartError, match=f"belongs to another account, with the uid {os.getuid()}"):
        read_tokens(tmp_path / FILE)


def test_a_pipe_is_not_a_token_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE, 0o600)
    with pytest.raises(StartError, match="is not a regular file"):
        read_tokens(tmp_path / FILE)


@pytest.mark.parametrize("name", ["loopback", "anonymous", "a b", ""])
def test_names_that_no_token_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        add_token(tmp_path, name, [])
    assert read_tokens(tmp_path / FILE) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tokens": [{"name": 1}]}', "\xff"])
def test_an_invalid_token_file(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(StartError, match="is not a token file"):
        read_tokens(tmp_path / FILE)


def test_a_file_writable_by_other_accounts_is_refused(tmp_path: Path) -> None:
    add_token(tmp_path, "a", [])
    (tmp_path / FILE).chmod(0o622)
    with pytest.raises(StartError, match="is writable by other accounts"):
        read_tokens(tmp_path / FILE)
    done = polycast("serve", "--no-log", "--listen=simplest=tcp://127.0.0.1:0", f"--data={tmp_path}")
    assert (done.code, "chmod 600" in done.err) == (1, True)


def test_the_command(tmp_path: Path) -> None:
    data = f"--data={tmp_path}"
    made = polycast("token", "new", "a", "--publish=x.>", "--subscribe=y", "--admin", "--dialect=ubre", data)
    assert made.code == 0
    [known] = read_tokens(tmp_path / FILE)
    assert known.sha256 == digest_of(made.out.decode().strip())
    rules = ["a may publish x.> over ubre", "a may subscribe y over ubre", "a may admin over ubre"]
    listed = json.loads(polycast("token", "list", "--json", data).out)
    assert listed == {"name": "a", "created": known.created, "rules": rules}
    assert "a may publish x.> over ubre" in polycast("token", "list", data).out.decode()
    assert polycast("token", "new", "a", data).code == 2
    assert polycast("token", "new", "b", "--publish=", data).code == 2
    assert polycast("token", "revoke", "a", data).code == 0
    assert polycast("token", "revoke", "a", data).code == 2
    assert polycast("token", "list", data).out == b""


# -- authentication --------------------------------------------------------------------------------------


def status_of(broker: Broker, request: bytes) -> int:
    with broker.connect("http") as peer:
        peer.send(request)
        return read_response(peer).status


def test_http(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "chief", ["chief may admin"])
    other = add_token(tmp_path / "data", "sensors", RULES)
    with gated(tmp_path, *BASE) as broker:
        assert status_of(broker, get("/metrics", f"Authorization: Bearer {token}")) == 200
        assert status_of(broker, get("/metrics", f"authorization: bearer {token}")) == 200
        assert status_of(broker, get(f"/metrics?token={token}")) == 200
        assert status_of(broker, get("/metrics", f"Authorization: Bearer {other}")) == 403
        assert status_of(broker, get("/metrics", f"Authorization: Basic {token}")) == 403
        assert status_of(broker, get("/metrics", "Authorization: Bearer wrong")) == 401
        assert status_of(broker, get("/metrics?token=")) == 403
        assert status_of(broker, get("/healthz?token=wrong")) == 200
        assert status_of(broker, upgrade(f"/ubre?token={other[:-1]}")) == 401
        assert counted(broker, "polycast_inputs_refused_total", listener="http", reason="Unauthorized") == 2


def test_a_token_is_for_one_request(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "chief", ["chief may admin"])
    with gated(tmp_path, *BASE) as broker, broker.connect("http") as peer:
        peer.send(get("/metrics", f"Authorization: Bearer {token}") + get("/metrics"))
        assert [read_response(peer).status for _ in range(2)] == [200, 403]


def test_the_error_for_a_missing_token_has_a_hint(tmp_path: Path) -> None:
    with gated(tmp_path, networks=("anonymous=127.0.0.0/8",)) as broker, broker.connect("http") as peer:
        peer.send(get("/metrics"))
        response = read_response(peer)
        assert (response.status, response.headers["www-authenticate"], response.body) == (
            401,
            "bearer",
            b"Unauthorized\n",
        )


def test_ubre(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "sensors", RULES)
    with gated(tmp_path) as broker:
        for handshake in (upgrade(f"/ubre?token={token}"), upgrade(extra=f"Authorization: Bearer {token}\r\n")):
            with broker.connect("http") as peer:
                peer.send(
                    handshake + frame(TEXT, b'{"subscribe":"sensors.x"}') + frame(TEXT, b'{"publish":"sensors.x"}')
                )
                peer.expect(welcome() + frame(TEXT, b'{"publish":"sensors.x"}', mask=b""))
        assert status_of(broker, upgrade()) == 403


def test_hermod(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "sensors", RULES)
    shown = message("sensors.x", b"1").replace(b"{", b'{"token": "%b", ' % token.encode(), 1)
    wrong = message("sensors.x", b"1").replace(b"{", b'{"token": "wrong", ', 1)
    with gated(tmp_path) as broker:
        with broker.connect("hermod.pub") as peer:
            for cut in range(0, len(shown), 7):  # the header is read again until its payload is complete
                peer.send(shown[cut : cut + 7])
            peer.send(message("sensors.y", b"2") + message("x", b"3"))
            peer.expect(OK + OK)
            assert json.loads(peer.read_until(b"\n"))["code"] == 403
        with broker.connect("hermod.pub") as peer:
            peer.send(wrong + message("sensors.x", b"1"))
            output = json.loads(peer.expect_closed())
            assert (output["code"], output["message"]) == (401, "Unauthorized")
        assert counted(broker, "polycast_connections_closed_total", listener="hermod.pub", reason="token") == 1


def test_a_wrong_token_is_refused_on_loopback_too() -> None:
    with Broker(listen=("http",)) as broker:
        assert status_of(broker, get("/metrics?token=wrong")) == 401


@pytest.mark.parametrize(
    ("dialect", "listener", "scheme"),
    [("hermod", "hermod.pub", "tcp"), ("ubre", "http", "tcp"), ("ubre", "http", "ws"), ("nanomsg", "http", "ws")],
)
def test_the_clients_send_their_token(dialect: str, listener: str, scheme: str, tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "sensors", RULES)
    with gated(tmp_path, listen=(listener,)) as broker:
        at = f"{scheme}://127.0.0.1:{broker.ports[listener]}"
        with connect(dialect, f"{at}?token={token}", publishing=True) as client:
            client.publish([Message("sensors.x", b"1")])
            assert token not in str(client.address)
        assert counted(broker, "polycast_messages_in_total", dialect=dialect) == 1
        with pytest.raises(RemoteError) as error, connect(dialect, f"{at}?token=wrong", publishing=True):
            pass
        assert "401" in str(error.value)


def test_a_refusal_is_an_error_in_the_clients(tmp_path: Path) -> None:
    token = add_token(tmp_path / "data", "sensors", RULES)
    with gated(tmp_path, listen=("hermod.sub",)) as broker:
        at = f"tcp://127.0.0.1:{broker.ports['hermod.sub']}?token={token}"
        with connect("hermod", at) as client:
            with pytest.raises(RefusedError, match="403"):
                client.subscribe([Exact("secret")])
            client.subscribe([Exact("sensors.x")])


def test_a_running_broker_notices_new_and_revoked_tokens(tmp_path: Path) -> None:
    with gated(tmp_path, listen=("hermod.pub",)) as broker:
        token = add_token(tmp_path / "data", "sensors", RULES)
        broker.wait_for_log("tokens reread")
        peer = broker.connect("hermod.pub")
        peer.send(b'{"batch_type": "End", "token": "%b"}' % token.encode())
        peer.read_until(b"\n")
        peer.send(message("sensors.x", b"1"))
        peer.expect(OK)
        revoke_token(tmp_path / "data", "sensors")
        assert json.loads(peer.expect_closed())["code"] == 403
        peer.close()
        wait_for(lambda: broker.log().count("tokens reread") == 2, "the file to be read again")
        (tmp_path / "data" / FILE).write_text("nonsense")
        broker.wait_for_log("the tokens stay as they were")


def test_a_token_is_revoked_while_requests_of_a_half_closed_peer_time_out(tmp_path: Path) -> None:
    """One sweep rereads the tokens and expires requests: an error in one must not end the other."""
    token = add_token(tmp_path / "data", "sensors", RULES)
    rules, more = ("guest may publish+serve slow",), "[ubre]\nrequest_seconds = 0.001"
    with (
        gated(tmp_path, *rules, listen=("ubre", "hermod.sub"), more=more) as broker,
        broker.connect("hermod.sub") as peer,
        UbrePeer(broker.ports["ubre"]) as server,
    ):
        peer.send(b'{"topics": ["sensors.x"], "token": "%b"}' % token.encode())
        peer.expect(OK)
        server.send_message(subscribe="slow", body={"serve": True})
        assert server.refusal("nobody", None) == "Forbidden"
        with UbrePeer(broker.ports["ubre"]) as requester:
            requester.send(line(request="slow", id=1) + line(request="slow", id=2))
            requester.shut()
            requester.expect_closed()
        revoke_token(tmp_path / "data", "sensors")
        assert json.loads(peer.expect_closed())["code"] == 403
