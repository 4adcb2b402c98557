"""Checks a start without starting: TLS, token and credentials files, the data folder, the listeners' addresses."""

from __future__ import annotations

import os
from pathlib import Path

from polycast.address import parse_address
from polycast.errors import StartError
from polycast.log.files.folder import log_folder
from polycast.log.files.permissions import check_owners
from polycast.log.settings import LogSettings
from polycast.server.access.access_control import AccessControl
from polycast.server.io import sockets
from polycast.server.io.tls import to_context, to_dial_context
from polycast.server.settings import Settings

CREDENTIALS_MARK = b"BEGIN NATS USER JWT"
HINT = "--data DIR uses another folder, --no-log runs without a log"


def check(settings: Settings) -> None:
    """Raises StartError if a file of TLS, of the tokens or of the cluster's credentials cannot be used."""
    if settings.tls.certificate:
        to_context(settings.tls)
    cluster = settings.cluster
    if settings.dials_securely or (cluster.enabled and cluster.secure):
        to_dial_context(settings.tls)
    AccessControl(settings.access, Path(settings.log.data))
    if cluster.enabled and cluster.credentials and not cluster.manage:
        _check_credentials(Path(cluster.credentials))


def _check_credentials(path: Path) -> None:
    hint = "nsc generate creds writes one; user and password can also be part of the URL in cluster.servers"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise StartError(f"cluster.credentials: cannot read {path}: {error.strerror}", hint) from error
    if CREDENTIALS_MARK not in text:
        raise StartError(f"cluster.credentials: {path} is not a credentials file of NATS", hint)


def check_folder(settings: LogSettings) -> bool:
    """Whether a broker uses the data folder now. Raises StartError if no broker can. Changes nothing."""
    from polycast.log.files.state import is_running, read_state  # pyarrow is slow to import

    folder = log_folder(settings.data)
    check_owners(Path(settings.data))
    try:
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        if not existing.is_dir():
            raise StartError(f"cannot write a log in {folder}: {existing} is not a folder", HINT)
        if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            raise StartError(f"cannot write a log in {folder}: this account may not write to {existing}", HINT)
        read_state(folder)
        return is_running(folder)
    except OSError as error:
        raise StartError(f"cannot write a log in {folder}: {error.strerror}", HINT) from error


def check_ports(settings: Settings) -> None:
    """Opens every tcp listener, and closes them. Raises StartError for one that cannot open."""
    opened = []
    try:
        for name, texts in settings.listen.items():
            for address in map(parse_address, texts):
                if address.scheme != "ipc":
                    opened += sockets.listen(name, address)
    finally:
        for sock in opened:
            sock.close()
