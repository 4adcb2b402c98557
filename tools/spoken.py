"""What the code says when something is wrong, found where it is said: codes, and the words that go with them.

Calls are looked up in the source by the name of what is called, as `HermodError(400, f"{key} is missing")`. Where
a text depends on what happened, `…` stands for it; constants are filled in.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src"
GAP = "…"


class Spoken(NamedTuple):
    """One place where something is said."""

    code: int | None
    words: str
    room: str
    """The module, from the package on."""
    more: str = ""
    """What else is said there."""


def find_spoken(names: Iterable[str], *rooms: str) -> list[Spoken]:
    """All calls of these names within those modules and packages."""
    return [spoken for room in rooms for path in _files(room) for spoken in _read(path, frozenset(names))]


def _files(room: str) -> list[Path]:
    base = SOURCE / "polycast" / room
    return sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]


def _read(path: Path, names: frozenset[str]) -> Iterator[Spoken]:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in names]
    module = importlib.import_module(name) if calls else None
    for call in calls:
        assert module
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "status")]
        codes = [code for code in (_code(each, module) for each in given) if code is not None]
        words = [text for text in (_words(each, module) for each in given) if text.strip(GAP + "\n")]
        if words:
            room = name.removeprefix("polycast.")
            yield Spoken(codes[0] if codes else None, words[0].strip(), room, "".join(words[1:]))


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _code(node: ast.expr, module: ModuleType) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else _resolve(node, module)
    return value if isinstance(value, int) else None


def _words(node: ast.expr, module: ModuleType) -> str:
    """As much of the text as is known beforehand."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(data)):
            return data.decode()
        case ast.JoinedStr(values=parts):
            return "".join(_words(part, module) for part in parts)
        case ast.FormattedValue(value=inner):
            value = _resolve(inner, module)
            return f"{value:,}" if isinstance(value, int) else _words(inner, module)
        case ast.Name() | ast.Attribute():
            value = _resolve(node, module)
            return value if isinstance(value, str) else GAP
        case ast.BinOp(left=left, op=ast.Mod()):
            return re.sub("%[a-z]", GAP, _words(left, module))
        case ast.Call(func=ast.Attribute(value=inner, attr="encode")):
            return _words(inner, module)
    return GAP


def _resolve(node: ast.expr, module: ModuleType) -> object:
    """What a name stands for in that module; None if it is known only when it happens."""
    match node:
        case ast.Name(id=name):
            return getattr(module, name, None)
        case ast.Attribute(value=inner, attr=name):
            return getattr(_resolve(inner, module), name, None)
    return None
