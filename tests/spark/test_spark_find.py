"""`index` and `polycast find`: equal results with and without the index, in the log and in the lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kit.program import Finished, polycast_here
from polycast.log.read.query import RowFilter
from polycast.log.upkeep.sealing import seal
from polycast.model import Everything
from polycast.pipelines import find
from polycast.pipelines.index.blocks import PayloadIndex, index_of
from polycast.pipelines.index.search import COLUMNS, FieldMatch, SearchTerms, search_all, without_skippable
from polycast.pipelines.runtime.definition import PipelineRun
from polycast.pipelines.runtime.worker_tasks import WorkerTask, lake_tasks, log_tasks
from spark.here import run_here
from spark.written import Sent, write_log

INDEX = find("index")
BLOCK = 100
WANTED = RowFilter((Everything(),))
WORDS = ["apple", "pear", "plum", "\u00e9t\u00e9", "rose"]


def to_payload(n: int) -> bytes:
    if n % 50 == 7:
        return b"\xff\x00 no text %d \xfe" % n
    word = WORDS[n // BLOCK % len(WORDS)]
    return json.dumps({"id": n, "of": {"word": word}, "price": n / 4}, ensure_ascii=n % 2 == 0).encode()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,050 messages, in the log and in the lake."""
    folder = tmp_path_factory.mktemp("find") / "data"
    sent = [Sent(f"t.{n % 3}", to_payload(n), n) for n in range(2050)]
    sent[70] = Sent("polycast/events/x", b"apple", 70)
    write_log(folder, sent)
    rows = pa.concat_tables(
        pa.Table.from_batches([batch])
        for part in log_tasks(folder / "log", WANTED, COLUMNS)
        for batch in part.read()
    )
    for hour, begin in enumerate((0, 1000)):
        some = rows.slice(begin, 1000 + 1050 * hour)
        first, last = some["offset"][0].as_py(), some["offset"][-1].as_py()
        place = folder / "lake" / f"date=2023-11-14/hour={22 + hour}"
        place.mkdir(parents=True)
        pq.write_table(some, place / f"{first:020}-{last:020}-0a1b2c3d.parquet", row_group_size=300)
    seal(next((folder / "log").glob("*.arrows")))
    return folder


def build(spark: SparkSession, data: Path) -> list[str]:
    run = PipelineRun(spark, INDEX, data, "", INDEX.settings(block_messages=BLOCK), once=True)
    INDEX.start(run).awaitTermination()
    assert INDEX.finish
    return INDEX.finish(run)


def brute(terms: SearchTerms) -> list[int]:
    found = []
    for n in range(2050):
        payload = to_payload(n)
        if n == 70 or terms.text not in payload or not all(_has(payload, field) for field in terms.fields):
            continue
        found.append(n)
    return found


def _has(payload: bytes, field: FieldMatch) -> bool:
    try:
        value: Any = json.loads(payload)
    except ValueError:
        return False
    for name in field.path:
        value = value[name]
    return (value if isinstance(value, str) else json.dumps(value)) == field.value


ASKED = [
    SearchTerms(b"pear"),
    SearchTerms(b'"id": 1234,'),
    SearchTerms(b"\xff\x00 no text 507"),
    SearchTerms(b"nowhere at all"),
    SearchTerms(b"ap"),
    SearchTerms(fields=(FieldMatch(("of", "word"), "\u00e9t\u00e9"),)),
    SearchTerms(fields=(FieldMatch(("id",), "1999"),)),
    SearchTerms(b"plum", (FieldMatch(("price",), "312.5"),)),
]


def offsets(
    spark: SparkSession, parts: list[WorkerTask], terms: SearchTerms, index: Path | None, limit: int = 0
) -> list[int]:
    return [n for batch in search_all(spark, parts, terms, index, limit) for n in batch["offset"].to_pylist()]


def test_results_are_the_same_with_and_without_index(spark: SparkSession, data: Path) -> None:
    log = log_tasks(data / "log", WANTED, COLUMNS)
    lake = lake_tasks(data / "lake", WANTED, COLUMNS)
    scanned = [offsets(spark, log, terms, None) for terms in ASKED[:3]]
    assert scanned == [brute(terms) for terms in ASKED[:3]]

    lines = build(spark, data)
    assert lines[0].endswith("offsets up to 2,000")
    index = index_of(data)
    for terms in ASKED:
        assert offsets(spark, log, terms, index) == brute(terms)
    for terms in ASKED[1:6:2]:
        assert offsets(spark, lake, terms, index) == brute(terms)
    assert offsets(spark, log, ASKED[0], index, limit=5) == brute(ASKED[0])[:5]

    before = {file.path.name: file.path.read_bytes() for file in PayloadIndex(index).files()}
    build(spark, data)
    assert {file.path.name: file.path.read_bytes() for file in PayloadIndex(index).files()} == before
    check_what_is_skipped(data, log)


def check_what_is_skipped(data: Path, parts: list[WorkerTask]) -> None:
    """2,050 messages are 20 complete blocks and an incomplete one."""

    def left(terms: SearchTerms) -> int:
        found = [without_skippable(part, terms, PayloadIndex(index_of(data))) for part in parts]
        return sum(piece.next - piece.first for part in found for piece in part.pieces)

    assert left(ASKED[3]) == 50
    assert left(ASKED[1]) == BLOCK + 50
    assert left(ASKED[0]) == 4 * BLOCK + 50
    assert left(ASKED[4]) == 2050


def test_find_command(spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(spark, monkeypatch)

    def run_find(*arguments: str) -> Finished:
        return polycast_here("find", *arguments, "--data", str(data))

    found = run_find("--field", "id=1234", "--json")
    assert (found.code, found.err) == (0, "")
    row = json.loads(found.out)
    assert (row["offset"], row["topic"], json.loads(row["payload"])["id"]) == (1234, "t.1", 1234)
    lines = run_find("pear", "--topic", "t.1", "--from", "150", "--to", "650", "--limit", "2", "--scan")
    assert [line.split()[:3:2] for line in lines.out.decode().splitlines()] == [["151", "t.1"], ["154", "t.1"]]
    assert lines.err == "the first 2 messages; --limit 20 shows more, --limit 0 all\n"
    in_lake = run_find("pear", "--in", "lake", "--from", "2023-11-14T22:13:20", "--to", "2023-11-14T22:15:03")
    assert [int(line.split()[0]) for line in in_lake.out.decode().splitlines()] == [100, 101, 102]
    assert run_find("apple", "--topic", "polycast/>").out.startswith(b"70 ")
    nothing = run_find("nowhere at all")
    assert (nothing.code, nothing.out, nothing.err) == (1, b"", "no message found\n")
