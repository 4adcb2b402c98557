"""The page of errors finds what the code says, wherever it says it."""

from __future__ import annotations

import re

from error_page import error_page
from kit.pages import ROOT
from spoken import GAP, find_spoken

HERMOD = ROOT / "src" / "polycast" / "dialects" / "hermod"


def test_every_code_is_found_with_its_words() -> None:
    source = "".join(path.read_text() for path in HERMOD.rglob("*.py"))
    said = [int(code) for code in re.findall(r"HermodError\(\s*(\d{3}),", source)]
    told = find_spoken(["HermodError"], "dialects/hermod")
    assert len(said) > 10 and sorted(said) == sorted(spoken.code or 0 for spoken in told)
    words = {(spoken.code, spoken.words) for spoken in told}
    assert (400, f"batch_id {GAP}, expected a string of 1 to 256 bytes") in words, "a constant is filled in"
    assert (409, f"{GAP} inside a batch, expected {GAP} first") in words


def test_the_page_has_something_of_everybody() -> None:
    page = "\n".join(error_page())
    for row in ("| 130 |", "| 422 |", "| `NotFound` | 404 |", "| 505 |", "| 1009 |", "| fanout |", "| slow |"):
        assert f"\n{row}" in page
