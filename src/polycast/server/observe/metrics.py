"""Metrics in the text format of Prometheus (version 0.0.4).

A name is `polycast_`, the unit if the declared name does not contain it, the declared name, and `_total` for a
counter: `dropped`, in messages, is `polycast_messages_dropped_total`. Metrics that every process has begin with
`process_`. A histogram adds `_bucket`, `_sum` and `_count` to its name; its buckets are cumulative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, fields
from itertools import accumulate
from typing import Any, NamedTuple, cast

from polycast.declare import Histogram
from polycast.server.stats.counters import Build, Counters, NodeInfo, NodeTotals, Process, Progress, Times, Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    name: str
    kind: str
    unit: str
    meaning: str
    labels: tuple[str, ...]


class Sample(NamedTuple):
    metric: Metric
    values: tuple[str, ...]
    """One for each label."""
    value: float


Labels = tuple[str, ...]
Declaration = (
    type[Build] | type[Counters] | type[NodeInfo] | type[NodeTotals] | type[Process] | type[Progress] | type[Times]
    | type[Totals]
)  # fmt: skip

LABELS: dict[Declaration, Labels] = {
    Build: ("version", "python"),
    Counters: ("listener", "dialect"),
    NodeInfo: ("node", "stream"),
    Progress: ("pipeline",),
}


def metrics_of(declaration: Declaration) -> dict[str, Metric]:
    """By declared name."""
    prefix = "process" if declaration is Process else "polycast"
    return {f.name: _to_metric(f, prefix, LABELS.get(declaration, ())) for f in fields(declaration)}


def _to_metric(declared: Field[Any], prefix: str, labels: Labels) -> Metric:
    unit, kind = declared.metadata["unit"], declared.metadata["kind"]
    words = [prefix, declared.name]
    if unit not in declared.name:
        words.insert(1, unit)
    if kind == "counter":
        words.append("total")
    more = {Counter: ("reason",), Histogram: ("le",)}.get(cast(type, declared.default_factory), ())
    return Metric("_".join(words), kind, unit, declared.metadata["meaning"], (*labels, *more))


def read_counters(counters: Mapping[tuple[str, str], Counters]) -> Iterator[tuple[Metric, list[Sample]]]:
    for name, metric in metrics_of(Counters).items():
        samples: list[Sample] = []
        for labels, counted in counters.items():
            value = getattr(counted, name)
            if isinstance(value, Counter):
                samples += [Sample(metric, (*labels, reason), count) for reason, count in sorted(value.items())]
            else:
                samples.append(Sample(metric, labels, value))
        yield metric, samples


def read_rows(declaration: Declaration, rows: Mapping[Labels, Any]) -> Iterator[tuple[Metric, list[Sample]]]:
    """Values of a declaration by the values of its labels."""
    for name, metric in metrics_of(declaration).items():
        yield metric, [Sample(metric, labels, getattr(values, name)) for labels, values in rows.items()]


def read_times(times: Times) -> Iterator[tuple[Metric, list[Sample]]]:
    for name, metric in metrics_of(Times).items():
        yield metric, list(_to_samples(metric, getattr(times, name)))


def _to_samples(metric: Metric, found: Histogram) -> Iterator[Sample]:
    total, counts = found.sum, found.counts()
    bounds = [*map(str, found.bounds), "+Inf"]
    bucket = metric._replace(name=f"{metric.name}_bucket")
    yield from (Sample(bucket, (le,), count) for le, count in zip(bounds, accumulate(counts), strict=True))
    yield Sample(metric._replace(name=f"{metric.name}_sum", labels=()), (), round(total, 9))
    yield Sample(metric._replace(name=f"{metric.name}_count", labels=()), (), sum(counts))


def to_text(families: Iterable[tuple[Metric, list[Sample]]]) -> str:
    lines = []
    for metric, samples in families:
        lines.append(f"# HELP {metric.name} {_escape(metric.meaning)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += [f"{sample.metric.name}{_to_labels(sample)} {sample.value}" for sample in samples]
    return "\n".join(lines) + "\n"


def _to_labels(sample: Sample) -> str:
    pairs = zip(sample.metric.labels, sample.values, strict=True)
    inside = ",".join(f'{label}="{_escape_label(value)}"' for label, value in pairs)
    return f"{{{inside}}}" if inside else ""


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escape_label(text: str) -> str:
    return _escape(text).replace('"', r"\"")
