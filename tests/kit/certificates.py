"""Certificates for tests: an authority of their own, and files that it has signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, file: str, common_name: str = "", expired: bool = False) -> Path:
        """A certificate for this machine, with its key behind it; of a client, where it has a name."""
        end = datetime.now(UTC) + timedelta(days=-1 if expired else 30)
        names = [] if common_name else ["localhost", "127.0.0.1"]
        made = self._ca.issue_cert(*names, common_name=common_name or None, not_after=end)
        path = self._folder / file
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        path.chmod(0o600)  # or the broker warns
        return path
