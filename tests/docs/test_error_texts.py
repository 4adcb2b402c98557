"""The reference page of errors has every code and text of the source."""

from __future__ import annotations

import re

from error_page import error_page
from error_texts import GAP, find_error_texts
from kit.pages import ROOT

HERMOD = ROOT / "src" / "polycast" / "dialects" / "hermod"


def test_every_code_is_found_with_its_text() -> None:
    source = "".join(path.read_text() for path in HERMOD.rglob("*.py"))
    codes = [int(code) for code in re.findall(r"HermodError\(\s*(\d{3}),", source)]
    found = find_error_texts(["HermodError"], "dialects/hermod")
    assert len(codes) > 10 and sorted(codes) == sorted(text.code or 0 for text in found)
    texts = {(text.code, text.text) for text in found}
    assert (400, f"batch_id {GAP}, expected a string of 1 to 256 bytes") in texts, "a constant is filled in"
    assert (409, f"{GAP} inside a batch, expected {GAP} first") in texts


def test_the_page_has_rows_of_every_section() -> None:
    page = "\n".join(error_page())
    for row in ("| 130 |", "| 422 |", "| `NotFound` | 404 |", "| 505 |", "| 1009 |", "| fanout |", "| slow |"):
        assert f"\n{row}" in page
