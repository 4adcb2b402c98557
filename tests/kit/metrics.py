"""A small parser for the text format of Prometheus."""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|(?=}))')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
PARTS = ("bucket", "sum", "count")

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    kind: str
    help: str
    samples: dict[Labels, float]
    """Of a histogram, its buckets."""
    sums: dict[Labels, float]
    counts: dict[Labels, float]
    """Both of histograms alone."""

    def put(self, part: str, labels: Labels, value: float) -> None:
        there = {"": self.samples, "bucket": self.samples, "sum": self.sums, "count": self.counts}[part]
        assert labels not in there, f"{labels}: twice"
        there[labels] = value


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
            assert current not in families and kind in ("counter", "gauge", "histogram"), line
            families[current] = Family(kind, helps[current], {}, {}, {})
        else:
            name, labels, value = read_sample(line)
            parts = [f"{current}_{part}" for part in PARTS]
            if families[current].kind == "histogram":
                assert name in parts, f"{line}: not with its family"
                families[current].put(name.removeprefix(f"{current}_"), labels, value)
            else:
                assert name == current, f"{line}: not with its family"
                families[current].put("", labels, value)
    for name, family in families.items():
        check_histogram(name, family)
    return families


def check_histogram(name: str, family: Family) -> None:
    """Its buckets hold what is up to their bound, and the last one holds all."""
    if family.kind != "histogram":
        assert not family.sums and not family.counts
        return
    by_place: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in family.samples.items():
        *place, (last, bound) = labels
        assert last == "le", f"{name}: {labels}"
        by_place.setdefault(tuple(place), []).append((float(bound), value))
    assert set(by_place) == set(family.sums) == set(family.counts), name
    for labels, buckets in by_place.items():
        assert buckets == sorted(buckets) and [value for _, value in buckets] == sorted(v for _, v in buckets), (
            name
        )
        assert buckets[-1] == (float("inf"), family.counts[labels]), name


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
