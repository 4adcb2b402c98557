from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.sample_traffic import LISTEN, publish_in_every_dialect
from kit.broker import Broker
from kit.browser import Browser
from kit.console import Console
from kit.program import need

LIMITS = ("--set=limits.payload_bytes=2000", "--set=limits.topic_bytes=100")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser(need("chromium", "chromium")) as running:
        yield running


@pytest.fixture(scope="module")
def busy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(*LIMITS, data=tmp_path_factory.mktemp("data"), listen=LISTEN) as running:
        publish_in_every_dialect(running)
        yield running


@pytest.fixture(scope="module")
def opened(browser: Browser, busy_broker: Broker) -> Iterator[Console]:
    with Console(browser, busy_broker.ports["http"]) as running:
        running.wait_until_live()
        yield running


@pytest.fixture
def console(opened: Console) -> Iterator[Console]:
    opened.begin_anew()
    yield opened
    opened.expect_no_faults()
