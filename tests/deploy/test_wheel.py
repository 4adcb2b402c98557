"""The wheel that a user installs: built from the sdist, and installed into an environment with nothing else.

The environment has only what the wheel requires, so Spark is missing. Nothing is downloaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from kit.broker import clean_environment
from kit.pages import ROOT
from kit.program import Finished, Program

SOURCES = ("src", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
GENERATED = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel."""
    for name in ("build", "Cython"):
        if find_spec(name) is None or int(version("setuptools").partition(".")[0]) < 77:
            pytest.skip(f"{name} or a recent setuptools is not installed: make dev")
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=GENERATED)
        else:
            shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "build", "--no-isolation"]
    env = {**clean_environment(), "CFLAGS": "-O0 -g0 -w"}  # what it compiles is tested elsewhere
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def closure(requirements: list[str]) -> set[str]:
    """The required packages, with those that these require."""
    found: set[str] = set()
    while requirements:
        wanted = Requirement(requirements.pop())
        if wanted.name not in found and (not wanted.marker or wanted.marker.evaluate({"extra": ""})):
            found.add(wanted.name)
            requirements += distribution(wanted.name).requires or []
    return found


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of a virtual environment."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/*/site-packages")
    [wheel] = dist.glob("*.whl")
    [metadata] = [name for name in ZipFile(wheel).namelist() if name.endswith("METADATA")]
    requires = re.findall(r"^Requires-Dist: (.+)$", ZipFile(wheel).read(metadata).decode(), re.MULTILINE)
    for name in closure(requires):
        here = distribution(name)
        for part in {file.parts[0] for file in here.files or []} - {"..", "__pycache__"}:
            (packages / part).symlink_to(str(here.locate_file(part)))
    pip = [sys.executable, "-m", "pip", "--python", f"{folder}/bin/python", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    return folder / "bin"


def run(folder: Path, *command: str) -> Finished:
    done = subprocess.run(
        [folder / command[0], *command[1:]], capture_output=True, env=clean_environment(), cwd=folder, check=False
    )
    return Finished(done.returncode, done.stdout, done.stderr.decode())


@pytest.fixture(scope="module")
def broker(installed: Path) -> Iterator[dict[str, str]]:
    """The addresses of its listeners."""
    names = ("http", "hermod.pub", "simplest")
    flags = [f"--listen={name}=tcp://127.0.0.1:0" for name in names]
    with Program(str(installed / "polycast"), "serve", "--no-log", *flags) as program:
        lines = iter(lambda: program.read_line().decode(), "ready")
        yield {name: address for _, name, address in map(str.split, lines)}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(dist: Path) -> None:
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    source = ROOT / "src"
    tops = sorted(path.name for path in source.iterdir() if (path / "__init__.py").exists())
    ours = [path for top in tops for path in (source / top).rglob("*") if path.is_file()]
    generated = (".so", ".c", ".pyc")
    wanted = {str(path.relative_to(source)) for path in ours if path.suffix not in generated}
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name for name in names if not name.endswith(".so")} == wanted
    assert "polycast/console/static/index.html" in names and "polycast/py.typed" in names
    with tarfile.open(sdist) as packed:
        below = {name.partition("/")[2].partition("/")[0] for name in packed.getnames()}
    assert below - {""} == {*SOURCES, "PKG-INFO", "setup.cfg"}


def test_the_version_has_one_source(dist: Path, installed: Path) -> None:
    found = run(installed, "polycast", "--version").out.decode().removeprefix("polycast ").strip()
    assert f'VERSION = "{found}"' in (ROOT / "src" / "polycast" / "version.py").read_text()
    assert all(path.name.startswith(f"polycast-{found}") for path in dist.iterdir())


def test_it_runs_what_was_installed_and_compiled(installed: Path) -> None:
    code = "import polycast, polycast.cli.doctor_checks as c; print(polycast.__file__, all(c.SCANS.values()))"
    file, compiled = run(installed, "python", "-c", code).out.decode().split()
    assert Path(file).is_relative_to(installed.parent)
    assert compiled == ("True" if shutil.which("cc") else "False")


def test_messages_and_the_console(installed: Path, broker: dict[str, str]) -> None:
    at = broker["http"].replace("tcp", "http")
    with urlopen(at) as page:
        assert b"<title>" in page.read()
    command = str(installed / "polycast"), "sub", "chat", "--count=1", f"--at={at}", "--dialect=simplest"
    with Program(*command) as subscriber:
        assert subscriber.stderr.readline().startswith(b"subscribed to chat")
        published = run(installed, "polycast", "pub", "chat", "hello", "--at", at)
        assert (published.code, published.err) == (0, "")
        assert subscriber.read_line() == b"chat hello"


def test_without_spark_sql_names_the_extra_to_install(installed: Path) -> None:
    failed = run(installed, "polycast", "sql", "select 1")
    assert failed.code == 1
    assert failed.err.splitlines()[-1] == "hint: pip install 'polycast[spark]'"
