"""The map in CONTRIBUTING.md names every folder and module of the package."""

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
