"""A little reader of the text format of Prometheus, which knows nothing of what is counted."""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|(?=}))')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    kind: str
    help: str
    samples: dict[Labels, float]


def read_metrics(text: str) -> dict[str, Family]:
    assert text.endswith("\n"), "the last line must end"
    families: dict[str, Family] = {}
    helps: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert name not in helps, f"{name} twice"
            helps[name] = words
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in families and kind in ("counter", "gauge"), line
            families[current] = Family(kind, helps[current], {})
        else:
            name, labels, value = read_sample(line)
            assert name == current, f"{line}: not with its family"
            assert labels not in families[name].samples, f"{line}: twice"
            families[name].samples[labels] = value
    return families


def read_sample(line: str) -> tuple[str, Labels, float]:
    found = NAME.match(line)
    assert found, line
    position, labels = found.end(), []
    if line[position] == "{":
        position += 1
        while line[position] != "}":
            label = LABEL.match(line, position)
            assert label, line
            labels.append((label[1], re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], label[2])))
            position = label.end()
        position += 1
    assert line[position] == " ", line
    return found[0], tuple(labels), float(line[position + 1 :])
