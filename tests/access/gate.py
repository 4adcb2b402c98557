"""A broker with access rules, and its metrics."""

from __future__ import annotations

import json
from pathlib import Path

from kit.broker import Broker
from kit.http import get, read_response
from kit.metrics import read_metrics

SILENT = ("simplest", "fanout.client", "fanout.controller", "nanomsg.pub", "nanomsg.sub", "ubre")
"""Listeners of dialects without tokens."""
EVERY = (*SILENT, "hermod.pub", "hermod.sub", "http")
GUESTS = ("guest=127.0.0.0/8",)
BASE = ("guest may publish open.>", "guest may subscribe open.>", "guest may subscribe ~open")
"""The network of all tcp peers without a token."""


def write_config(folder: Path, *rules: str, networks: tuple[str, ...] = GUESTS, more: str = "") -> Path:
    """`more` are lines of [access], and the tables after it."""
    file = folder / "polycast.toml"
    file.write_text(f"[access]\nrules = {json.dumps(rules)}\nnetworks = {json.dumps(networks)}\n{more}\n")
    return file


def gated(
    folder: Path, *rules: str, listen: tuple[str, ...] = EVERY, networks: tuple[str, ...] = GUESTS, more: str = ""
) -> Broker:
    """Peers over tcp are `guest`; peers over the file `socket` in the folder are `loopback`."""
    config = write_config(folder, "loopback may everything", *rules, networks=networks, more=more)
    return Broker(
        f"--config={config}",
        f"--data={folder / 'data'}",
        *(f"--listen={name}=ipc://{folder}/{name}" for name in ("http", "simplest")),
        listen=listen,
    )


def counted(broker: Broker, name: str, **labels: str) -> float:
    """The sum of a metric."""
    with broker.connect_file("http") as peer:
        peer.send(get("/metrics"))
        family = read_metrics(read_response(peer).body.decode())[name]
    wanted = set(labels.items())
    return sum(value for found, value in family.samples.items() if wanted <= set(found))
