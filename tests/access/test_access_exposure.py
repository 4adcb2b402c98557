"""Security warnings: at start, by `serve --check`, by `doctor` and after SIGHUP."""

from __future__ import annotations

import json
import logging
import signal
import ssl
from pathlib import Path

import pytest

from access.gate import write_config
from kit.broker import Broker
from kit.certificates import Authority
from kit.hermod import OK, message
from kit.program import polycast, polycast_here
from polycast.errors import UsageError
from polycast.server import load
from polycast.server.access.settings import TlsSettings
from polycast.server.access.tokens import FILE, add_token
from polycast.server.exposure import find_warnings
from polycast.server.io.tls import to_context

OPEN = "tcp://0.0.0.0:0"
NO_TLS = "open to the network without TLS: simplest (tcp://0.0.0.0:0); "
NOBODY = "open to the network, but no remote peer has rights: simplest; "


def reported(tmp_path: Path, *flags: tuple[str, object]) -> list[tuple[int, str]]:
    settings = load(flags=[("log.data", str(tmp_path / "data")), *flags]).settings
    return [(warning.level, str(warning)) for warning in find_warnings(settings)]


@pytest.mark.parametrize("place", ["tcp://127.0.0.1:0", "tcp://127.0.0.2:0", "tcp://[::1]:0", "tcp://localhost:0"])
def test_loopback_addresses_are_not_remote(place: str, tmp_path: Path) -> None:
    assert reported(tmp_path, ("listen.simplest", place)) == []
    assert reported(tmp_path, ("listen.simplest", "ipc:///tmp/x")) == []
    assert reported(tmp_path) == []


@pytest.mark.parametrize("place", [OPEN, "tcp://[::]:0", "tcp://192.0.2.1:0", "tcp://nobody.invalid:0"])
def test_without_tls_and_rules(place: str, tmp_path: Path) -> None:
    plain, nobody = reported(tmp_path, ("listen.simplest", place))
    assert plain[0] == logging.WARNING and f"without TLS: simplest ({place}); tls://HOST:PORT" in plain[1]
    assert nobody[0] == logging.INFO and nobody[1].startswith(NOBODY)


def test_with_tls_and_a_rule_there_is_no_warning(tmp_path: Path) -> None:
    flags = [("listen.simplest", "tls://0.0.0.0:0"), ("tls.certificate", "cert.pem")]
    assert [level for level, _ in reported(tmp_path, *flags)] == [logging.INFO]
    rules = ["loopback may everything", "sensors may publish s.>"]
    assert reported(tmp_path, *flags, ("access.rules", rules)) == []
    add_token(tmp_path / "data", "sensors", ["sensors may publish s.>"])
    (tmp_path / "data").chmod(0o700)
    assert reported(tmp_path, *flags) == [], "a token is as good"


@pytest.mark.parametrize(
    ("rule", "networks"),
    [
        ("anonymous may publish in.>", []),
        ("world may everything", ["world=0.0.0.0/0"]),
        ("w6 may admin", ["w6=::/0"]),
    ],
)
def test_rules_for_all_peers(rule: str, networks: list[str], tmp_path: Path) -> None:
    rules = [("access.rules", ["loopback may everything", rule]), ("access.networks", networks)]
    tls = [("listen.simplest", "tls://0.0.0.0:0"), ("tls.certificate", "cert.pem")]
    [(level, text)] = reported(tmp_path, *rules, *tls)
    assert level == logging.WARNING
    assert text.startswith(f"open to everyone who can reach tls://0.0.0.0:0: {rule!r}; restrict the rule to ")
    assert reported(tmp_path, *rules) == [], "nobody can reach it"


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        (("access.hosts", ["*"]), "access.hosts accepts every name"),
        (("access.origins", ["*"]), "access.origins accepts the pages of every site"),
        (("simplest.peers", ["192.0.2.1:9"]), "dialled over the network without TLS: tcp://192.0.2.1:9"),
        (("connect.nanomsg.sub", "ws://192.0.2.1:9"), "dialled over the network without TLS: ws://192.0.2.1:9"),
        (
            ("listen.http", "ipc:///tmp/x?mode=666"),
            "every account of this machine can connect to /tmp/x as loopback",
        ),
    ],
)
def test_other_exposures(flag: tuple[str, object], text: str, tmp_path: Path) -> None:
    [(level, found)] = reported(tmp_path, flag)
    assert level == logging.WARNING and found.startswith(text)


def test_no_warning_for_verified_or_local_dialling(tmp_path: Path) -> None:
    assert reported(tmp_path, ("simplest.peers", ["127.0.0.1:9", "tls://192.0.2.1:9"])) == []


def test_announced_brokers_anywhere(tmp_path: Path) -> None:
    flags = (("simplest.discover", ["acme"]), ("simplest.discover_networks", ["0.0.0.0/0"]))
    [(_, found)] = reported(tmp_path, *flags)
    assert found.startswith("announced brokers are dialled anywhere")


def test_files_readable_by_other_accounts(tmp_path: Path) -> None:
    data, key = tmp_path / "data", tmp_path / "key.pem"
    add_token(data, "a", [])
    data.chmod(0o755)
    (data / FILE).chmod(0o644)
    key.touch(0o644)
    texts = [text for _, text in reported(tmp_path, ("tls.key", str(key)))]
    assert texts == [
        f"other accounts can read {data}: its mode is 0755; chmod 700 {data}, or set log.access",
        f"other accounts can read {data / FILE}: its mode is 0644; chmod 600 {data / FILE}",
        f"other accounts can read {key}: its mode is 0644; chmod 600 {key}",
    ]
    assert len(reported(tmp_path, ("tls.key", str(key)), ("log.access", "all"))) == 2
    for path, mode in ((data, 0o700), (data / FILE, 0o600), (key, 0o640)):
        path.chmod(mode)
    assert reported(tmp_path, ("tls.key", str(key))) == []


# -- where warnings are reported -------------------------------------------------------------------------


def test_at_start_and_after_sighup(tmp_path: Path) -> None:
    config = write_config(tmp_path, "loopback may everything", networks=())
    with Broker(f"--config={config}", f"--listen=simplest={OPEN}", listen=()) as broker:
        lines = broker.log().splitlines()
        [plain] = [line for line in lines if NO_TLS in line]
        [nobody] = [line for line in lines if NOBODY in line]
        assert " WARNING " in plain and " INFO " in nobody
        write_config(tmp_path, "anonymous may everything", networks=())
        broker.process.send_signal(signal.SIGHUP)
        assert " WARNING " in broker.wait_for_log("'anonymous may everything'")


def test_a_broker_on_loopback_logs_no_warning() -> None:
    with Broker() as broker:
        assert "open to" not in broker.log()


def test_serve_check_prints_warnings(tmp_path: Path) -> None:
    checked = polycast_here("serve", "--check", f"--listen=simplest={OPEN}", f"--data={tmp_path / 'data'}")
    assert checked.code == 0 and b"[listen]" in checked.out
    plain, nobody = checked.err.splitlines()
    assert plain.startswith(f"warning: {NO_TLS}") and nobody.startswith(f"info: {NOBODY}")


def findings(*arguments: str) -> list[dict[str, str]]:
    shown = polycast_here("doctor", "--json", *arguments)
    return [json.loads(line) for line in shown.out.splitlines()]


def test_doctor_prints_warnings(tmp_path: Path) -> None:
    config = tmp_path / "polycast.toml"
    config.write_text(f'[listen]\nsimplest = "{OPEN}"\n[access]\nrules = ["anonymous may publish >"]\n')
    found = findings(f"--config={config}", f"--data={tmp_path / 'data'}")
    access = [row for row in found if row["what"] == "access"]
    assert [row["state"] for row in access] == ["risky", "risky"]
    assert access[0]["found"] + "; " == NO_TLS and "tls://" in access[0]["cure"]
    assert "anonymous may publish >" in access[1]["found"]
    assert [row["what"] for row in found if row["what"].startswith("port of")] == ["port of simplest"]


def test_doctor_without_warnings(tmp_path: Path) -> None:
    [access] = [row for row in findings(f"--data={tmp_path / 'data'}") if row["what"] == "access"]
    assert access["state"] == "fine"


def test_doctor_finds_settings_that_a_broker_would_refuse(tmp_path: Path) -> None:
    config = tmp_path / "polycast.toml"
    config.write_text('[tls]\nclient_certificates = "required"\n')
    shown = polycast_here("doctor", f"--config={config}")
    assert shown.code == 1
    assert "BAD settings: " in shown.out.decode() and "tls.client_ca" in shown.out.decode()


def test_doctor_checks_free_space(tmp_path: Path) -> None:
    config = tmp_path / "polycast.toml"
    config.write_text('[log]\nkeep_free = "900000TiB"\n')
    [folder] = [row for row in findings(f"--config={config}") if row["what"] == "data folder"]
    assert folder["state"] == "risky" and "log.keep_free is 900,000.0 TiB: make room" in folder["cure"]


# -- client certificates ---------------------------------------------------------------------------------

REQUIRED = "tls.client_certificates = 'required' needs tls.client_ca"


def test_required_client_certificates_need_an_authority(tmp_path: Path) -> None:
    """Otherwise the broker would start and accept every peer."""
    certificate = Authority(tmp_path).issue("broker.pem")
    required = "--set=tls.client_certificates=required"
    place = f"--data={tmp_path / 'data'}"
    for more in (("--listen=http=tls://127.0.0.1:0", f"--set=tls.certificate={certificate}"), ()):
        for flags in (("--check",), ("--no-log",)):
            failed = polycast("serve", *flags, *more, required, place)
            assert (failed.code, failed.out) == (2, b"")
            assert REQUIRED in failed.err and "hint: tls.client_ca names a file" in failed.err
    with pytest.raises(UsageError):
        load(flags=[("tls.client_certificates", "required")])
    load(flags=[("tls.client_certificates", "required"), ("tls.client_ca", "ca.pem")])


def test_a_reload_that_requires_them_without_an_authority_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, "loopback may everything", networks=())
    with Broker(f"--config={config}", listen=("hermod.pub",)) as broker:
        write_config(tmp_path, more='[tls]\nclient_certificates = "required"')
        broker.process.send_signal(signal.SIGHUP)
        output = broker.wait_for_log("not reloaded, all stays as it was")
        assert REQUIRED in output
        with broker.connect("hermod.pub") as peer:
            peer.send(message("a", b""))
            peer.expect(OK)


def test_a_context_that_requires_client_certificates_rejects_peers_without(tmp_path: Path) -> None:
    certificate = str(Authority(tmp_path).issue("broker.pem"))
    context = to_context(TlsSettings(certificate=certificate, client_certificates="required"))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert to_context(TlsSettings(certificate=certificate)).verify_mode is ssl.CERT_NONE
