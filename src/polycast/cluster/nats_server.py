"""The program, the configuration and the password of a nats-server that Polycast starts."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import sys
import time
from pathlib import Path

import msgspec

from polycast.errors import StartError

USER = "polycast"
MODE = 0o600
LOCK = "lock"
LOCK_SECONDS = 10.0
"""How long to wait for the server of a process that was killed: the server ends as well."""
OWNER_SECONDS = 1.0
"""The same, while that process runs."""
FOLDER_MODE = 0o700
PASSWORD_BYTES = 16
PASSWORD = re.compile(r"[A-Za-z0-9_-]{12,200}")
"""Characters that need no escaping in an address and in the configuration."""

CONFIGURATION = """\
server_name: {name}
listen: {listen}
max_payload: 4MB
ping_interval: "2s"
ping_max: 2
pid_file: {pid}
log_file: {log}
logfile_size_limit: 16MB
logfile_max_num: 3
jetstream {{ store_dir: {store}, sync_interval: always }}
authorization {{ user: {user}, password: {password} }}
{tls}
{cluster}
"""
CLUSTER = """\
cluster {{
  name: {name}
  listen: {listen}
  authorization {{ user: {user}, password: {password} }}
  routes: [{routes}]
  {tls}
}}
"""
TLS = "tls {{ cert_file: {certificate}, key_file: {key}{more} }}"


class ServerTls(msgspec.Struct, frozen=True):
    certificate: str
    key: str
    ca: str = ""
    """The certificate authority of the other servers; empty: those of the system."""


class ServerPlan(msgspec.Struct, frozen=True):
    name: str
    folder: str
    listen: str
    """HOST:PORT where nodes connect."""
    route: str = ""
    """HOST:PORT where other servers connect."""
    others: list[str] = []
    """HOST:PORT of each other server."""
    tls: ServerTls | None = None
    cluster: str = "polycast"
    """The name of the cluster of servers. Servers with different names do not connect to each other."""

    @property
    def log_file(self) -> Path:
        return Path(self.folder) / "nats.log"


class StoreLock:
    """One server per folder: two would write to the same store. The server inherits the descriptor, so the folder
    is locked until the server has ended, also if the process that started it was killed."""

    def __init__(self, folder: Path) -> None:
        """Raises StartError if a server uses the folder."""
        _make_folder(folder)
        self.descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, MODE)
        try:
            self._take()
        except BlockingIOError as error:
            owner = self._owner()
            self.release()
            text = f"the nats-server in {folder} was started by process {owner}, and runs"
            raise StartError(text, "--data DIR takes another folder") from error
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, b"%d\n" % os.getpid(), 0)

    def _take(self) -> None:
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                seconds = OWNER_SECONDS if _runs(self._owner()) else LOCK_SECONDS
                if time.monotonic() > began + seconds:
                    raise
            time.sleep(0.05)

    def _owner(self) -> int:
        text = os.pread(self.descriptor, 20, 0).strip()
        return int(text) if text.isdigit() else 0

    def release(self) -> None:
        os.close(self.descriptor)


def _runs(process: int) -> bool:
    if not process:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    folder.chmod(FOLDER_MODE)


def write_configuration(plan: ServerPlan, password: str) -> Path:
    folder = Path(plan.folder)
    _make_folder(folder)
    text = CONFIGURATION.format(
        name=_quote(plan.name), listen=_quote(plan.listen), pid=_quote(folder.absolute() / "nats.pid"),
        log=_quote(plan.log_file.absolute()), store=_quote(folder.absolute() / "stream"), user=USER,
        password=_quote(password), tls=_tls(plan.tls, ""), cluster=_cluster(plan, password),
    )  # fmt: skip
    file = folder / "nats.conf"
    file.touch(mode=MODE)
    file.chmod(MODE)
    file.write_text(text)
    return file


def _cluster(plan: ServerPlan, password: str) -> str:
    if not plan.others:
        return ""
    routes = ", ".join(_quote(f"nats://{USER}:{password}@{other}") for other in plan.others)
    tls = _tls(plan.tls, f", ca_file: {_quote(plan.tls.ca)}" if plan.tls and plan.tls.ca else "")
    return CLUSTER.format(
        name=_quote(plan.cluster),
        listen=_quote(plan.route),
        user=USER,
        password=_quote(password),
        routes=routes,
        tls=tls,
    )


def _tls(tls: ServerTls | None, more: str) -> str:
    return TLS.format(certificate=_quote(tls.certificate), key=_quote(tls.key), more=more) if tls else ""


def _quote(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def read_password(file: Path) -> str:
    """Creates the file, with a new password, if it does not exist."""
    try:
        found = file.read_text().strip()
    except FileNotFoundError:
        return _create_password(file)
    except OSError as error:
        raise StartError(f"{file} cannot be read: {error.strerror}") from error
    if not PASSWORD.fullmatch(found):
        text = f"{file} has no password of 12 to 200 letters, digits, - or _"
        raise StartError(text, "remove the file, and the next start writes one; copy it to all hosts")
    return found


def _create_password(file: Path) -> str:
    """Uses a hard link, which fails if another node of this host has created the file meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "w") as out:
        out.write(secrets.token_hex(PASSWORD_BYTES) + "\n")
    try:
        os.link(unfinished, file)
    except FileExistsError:
        pass
    finally:
        unfinished.unlink()
    return read_password(file)


def find_program() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise StartError("nats-server is not installed", "pip install 'polycast[cluster]'")
    return found


def split_host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def to_local_address(listen: str) -> tuple[str, int]:
    """The address of a server on this host that listens at `listen`."""
    host, port = split_host_port(listen)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def responds(listen: str) -> bool:
    try:
        with socket.create_connection(to_local_address(listen), 1.0) as peer:
            return peer.recv(4) == b"INFO"
    except OSError:
        return False
