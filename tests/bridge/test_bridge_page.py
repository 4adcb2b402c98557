from __future__ import annotations

import os

from bridge.page import PAGE, write
from kit.broker import Broker


def test_the_conversions_page_is_current(crossroads: Broker) -> None:
    seen = write(crossroads)
    if os.environ.get("POLYCAST_WRITE_DOCS"):
        PAGE.write_text(seen)
    assert PAGE.read_text() == seen, "the rules changed or the page did: `make docs` writes it"
