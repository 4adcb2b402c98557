"""Error codes and texts, extracted from the source.

Finds calls by the name of the callee, such as `HermodError(400, f"{key} is missing")`. Constants are filled in;
`…` stands for values that are known at run time only.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src"
GAP = "…"


class ErrorText(NamedTuple):
    code: int | None
    text: str
    module: str
    """Relative to `polycast`."""
    more: str = ""
    """Further text arguments, joined."""


def find_error_texts(names: Iterable[str], *places: str) -> list[ErrorText]:
    """All calls of `names` in these modules and packages."""
    return [found for place in places for path in _files(place) for found in _read(path, frozenset(names))]


def _files(place: str) -> list[Path]:
    base = SOURCE / "polycast" / place
    return sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]


def _read(path: Path, names: frozenset[str]) -> Iterator[ErrorText]:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in names]
    module = importlib.import_module(name) if calls else None
    for call in calls:
        assert module
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "status")]
        for arguments in product(*map(_branches, given)):
            codes = [code for code in (_code(each, module) for each in arguments) if code is not None]
            texts = [text for text in (_text(each, module) for each in arguments) if text.strip(GAP + "\n")]
            if texts:
                found_in = name.removeprefix("polycast.")
                yield ErrorText(codes[0] if codes else None, texts[0].strip(), found_in, "".join(texts[1:]))


def _branches(node: ast.expr) -> list[ast.expr]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _code(node: ast.expr, module: ModuleType) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else _resolve(node, module)
    return value if isinstance(value, int) else None


def _text(node: ast.expr, module: ModuleType) -> str:
    """As much of the text as the source shows."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(data)):
            return data.decode()
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, module) for part in parts)
        case ast.FormattedValue(value=inner):
            value = _resolve(inner, module)
            return f"{value:,}" if isinstance(value, int) else _text(inner, module)
        case ast.Name() | ast.Attribute():
            value = _resolve(node, module)
            return value if isinstance(value, str) else GAP
        case ast.BinOp(left=left, op=ast.Mod()):
            return re.sub("%[a-z]", GAP, _text(left, module))
        case ast.Call(func=ast.Attribute(value=inner, attr="encode")):
            return _text(inner, module)
    return GAP


def _resolve(node: ast.expr, module: ModuleType) -> object:
    """The value of a name in `module`; None if it is known at run time only."""
    match node:
        case ast.Name(id=name):
            return getattr(module, name, None)
        case ast.Attribute(value=inner, attr=name):
            return getattr(_resolve(inner, module), name, None)
    return None
