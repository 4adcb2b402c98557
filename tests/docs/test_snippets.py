"""Every snippet in the README and the docs does what it says.

console   `$ ` begins a command, `&` behind it leaves it running; every other line must be printed by one of them
toml      a configuration that the broker accepts
python    runs, with a broker on the default addresses that keeps its log in `polycast-data`

Those that need Spark are marked `python spark` and `console spark`, and run with the other tests of Spark.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.broker import clean_environment
from kit.certificates import Authority
from kit.pages import BIN, PAGES, ROOT, default_ports, snippets, terminal


@pytest.fixture(autouse=True)
def default_ports_are_free() -> Iterator[None]:
    with default_ports():
        yield


@pytest.mark.parametrize("block", snippets("console"))
def test_console(block: str, tmp_path: Path) -> None:
    if re.search(r"\bnc\b", block) and not shutil.which("nc"):
        pytest.skip("netcat is not installed: apt-get install netcat-openbsd")
    if "openssl " in block and not shutil.which("openssl"):
        pytest.skip("openssl is not installed: apt-get install openssl")
    with terminal(tmp_path) as shell:
        shell.run_block(block)


@pytest.mark.parametrize("block", snippets("toml"))
def test_toml(block: str, tmp_path: Path) -> None:
    file = tmp_path / "polycast.toml"
    made = Authority(tmp_path).issue("broker.pem")
    file.write_text(re.sub(r'"/etc/polycast/[a-z]+\.(pem|key)"', f'"{made}"', block))
    command = [str(BIN / "polycast"), "serve", "--check", "--config", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("block", snippets("python"))
def test_python(block: str, tmp_path: Path) -> None:
    with terminal(tmp_path) as shell:
        shell.run("polycast serve &")
        command = [sys.executable, "-c", block]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_reference_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_is_short_before_its_tables() -> None:
    before, _, _ = (ROOT / "README.md").read_text().partition("\n## ")
    assert len(before.splitlines()) <= 40
