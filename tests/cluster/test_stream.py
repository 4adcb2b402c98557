"""The stream, without servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from nats.aio.client import Client

from polycast.cluster import stream as module
from polycast.cluster.stream import NO_SUITABLE_PEERS, STREAM_EXISTS, Agreed, ApiError, Genesis, Stream, to_info
from polycast.errors import StartError
from polycast.server.settings import Settings

NO_PEERS = ApiError(400, "no suitable peers for placement", NO_SUITABLE_PEERS)


class ScriptedStream(Stream):
    """JetStream responds with these errors, and then accepts."""

    def __init__(self, errors: Sequence[ApiError]) -> None:
        super().__init__(cast("Client", None), "TEST")
        self.errors = list(errors)

    async def call(self, method: str, body: Any = None, seconds: float = 0.0) -> dict[str, Any]:
        assert method == "STREAM.CREATE.TEST"
        if self.errors:
            raise self.errors.pop(0)
        return {}


def create(stream: Stream) -> None:
    settings = Settings()
    asyncio.run(stream.create(settings.cluster, Agreed.of(settings), Genesis(), 3))


@pytest.mark.parametrize("errors", [[NO_PEERS, NO_PEERS], [NO_PEERS, ApiError(400, "exists", STREAM_EXISTS)]])
def test_servers_that_do_not_know_each_other_yet(errors: list[ApiError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACEMENT_RETRY_SECONDS", 0.0)
    stream = ScriptedStream(errors)
    create(stream)
    assert not stream.errors


def test_too_few_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACEMENT_SECONDS", 0.0)
    with pytest.raises(StartError, match="with 3 replicas cannot be created: no suitable peers") as raised:
        create(ScriptedStream([NO_PEERS]))
    assert raised.value.hint.startswith("start more servers")


@pytest.mark.parametrize(
    ("others", "confirmed"),
    [
        ([], True),
        ([{"active": 10**9}, {"active": 9 * 10**9}], True),
        ([{"active": 9 * 10**9}, {"active": 9 * 10**9}], False),
        ([{"active": 0, "offline": True}, {"active": 0, "offline": True}], False),
        ([{"active": 9 * 10**9}], False),
    ],
)
def test_a_leader_without_a_majority_is_not_believed(others: list[dict[str, Any]], confirmed: bool) -> None:
    """A node that finds its stream shorter than its log stops only if such a leader says so, twice."""
    agreed = Agreed.of(Settings())
    found = {
        "created": "now",
        "config": {
            "name": "TEST",
            "metadata": {
                "polycast.agreed": msgspec.json.encode(agreed).decode(),
                "polycast.genesis": "{}",
            },
        },
        "state": {"first_seq": 1, "last_seq": 2},
        "cluster": {"leader": "s0", "replicas": [{"name": "s"} | each for each in others]},
    }
    assert to_info(found).confirmed == confirmed
