"""The map in CONTRIBUTING.md and the reading order name the files of the package."""

from __future__ import annotations

import re

from kit.pages import ROOT

PACKAGE = ROOT / "src" / "polycast"


def test_the_map_names_every_folder_and_module() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("## Map of the source")[2].partition("\n**")[0]
    named = set(re.findall(r"`([a-z_]+/|[a-z_]+\.py)`", section))
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert named == folders | {path.name for path in PACKAGE.glob("*.py")}


def test_every_file_of_the_reading_order_exists() -> None:
    page = (ROOT / "docs" / "concepts" / "reading-order.md").read_text()
    named = re.findall(r"`((?:src|tests)/[^`]*)`", page)
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []
