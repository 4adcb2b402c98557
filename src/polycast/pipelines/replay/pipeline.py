"""Publishes messages again, from the log or the lake, under a prefix, at full speed or with their original timing.

Each batch is published exactly once, and a stopped run resumes where it stopped. The same settings identify the
same replay; another `name` starts it again. Messages of one topic keep their order.

A replay never reads its own output: topics under its prefix are excluded, and without a prefix it needs an end
that the log has passed. With an end, or from the lake, the run ends when all messages are published, with or
without `--once`.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from operator import ge, lt
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from polycast.declare import setting
from polycast.errors import UsageError
from polycast.log.files.folder import log_folder
from polycast.log.read.catalog import offset_bounds
from polycast.log.read.query import RowFilter
from polycast.log.read.seek import find_time
from polycast.log.times import MICROS
from polycast.model import RESERVED_PREFIX, parse_patterns
from polycast.pipelines.archive.files import HOUR_MICROS, hour_name
from polycast.pipelines.replay.schedule import ReplaySchedule, interruptible_sleep, with_slices
from polycast.pipelines.replay.steps import SCHEMA, to_steps, write_steps
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.runtime.worker_tasks import LakeFile, lake_files, lake_tasks, run_tasks
from polycast.spark.log_view import find_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LOG, LAKE = "log", "lake"
ROWS = "offset long, topic string, time timestamp, format string, payload binary"
COLUMNS = tuple(column.split()[0] for column in ROWS.split(", "))
TIMED_BATCH_MESSAGES = 10_000
"""Maximum messages per batch with a speed: each slice has a batch id that the broker remembers."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    source: str = setting(LOG, "log, lake, or the folder of another log or lake")
    subscribe: str = setting(">", "comma-separated patterns of topics to replay")
    start: str = setting("earliest", "first message: earliest, an offset or a time (UTC)")
    end: str = setting("", "where to stop, exclusive: an offset or a time (UTC); default: end of the log")
    speed: float = setting(0.0, "1: original speed, 10: ten times as fast, 0: no delays", low=0)
    prefix: str = setting("replay/", "prefix of the topics of the replay")
    slice_seconds: float = setting(0.5, "with a speed: messages within this time are published together", low=0.01)
    batch_messages: int = setting(100_000, "maximum number of messages per batch", low=1)
    name: str = setting("", "distinguishes replays with otherwise equal settings")

    def __post_init__(self) -> None:
        if self.prefix.startswith(RESERVED_PREFIX):
            raise UsageError(f"--set prefix={self.prefix}: topics under {RESERVED_PREFIX} are reserved")
        to_position("start", self.start)
        end = to_position("end", self.end)
        if not self.prefix and (end is None or (end.micros is not None and end.micros > time.time() * MICROS)):
            hint = "set a prefix, or an end in the past: --set end=2026-11-15T20:00"
            raise UsageError("a replay without a prefix would read its own output forever", hint)

    @property
    def id(self) -> str:
        return sha256(msgspec.json.encode(asdict(self))).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """Either an offset or a time."""

    offset: int | None = None
    micros: int | None = None


def to_position(name: str, text: str) -> ReplayPosition | None:
    """None: unbounded. Relative times are not supported: they would differ with each run."""
    if text in ("", "earliest"):
        return None
    if text.isascii() and text.isdigit():
        return ReplayPosition(offset=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "expected an offset, or a time such as 2026-11-15T20:00 (UTC)"
        raise UsageError(f"--set {name}={text} is not a position in a log", hint) from None
    return ReplayPosition(micros=round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * MICROS))


# -- messages --------------------------------------------------------------------------------------------


def to_messages(rows: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Grain: one row per message to publish, with its new topic, offset and time."""
    from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

    if settings.prefix:
        rows = rows.where(~F.col("topic").startswith(settings.prefix))
    for position, keeps in ((to_position("start", settings.start), ge), (to_position("end", settings.end), lt)):
        if position and position.offset is not None:
            rows = rows.where(keeps(F.col("offset"), position.offset))
        elif position:
            rows = rows.where(keeps(F.unix_micros("time"), position.micros or 0))
    return rows.withColumn("topic", F.concat(F.lit(settings.prefix), "topic"))


def publish(run: PipelineRun, messages: DataFrame, batch: int, schedule: ReplaySchedule | None) -> None:
    """Idempotent: Spark may repeat a batch, and the broker ignores batch ids that it knows."""
    if schedule is None:
        run.publish(messages.select("topic", "payload", "format"), batch)
        return
    width = max(1, round(run.settings.slice_seconds * run.settings.speed * MICROS))
    sliced = with_slices(messages, width).persist()
    try:
        for row in sliced.select("slice").distinct().orderBy("slice").collect():
            schedule.wait(row["slice"])
            now = sliced.where(sliced["slice"] == row["slice"]).coalesce(1).sortWithinPartitions("offset")
            run.publish(now.select("topic", "payload", "format"), f"{batch}.{row['slice']}")
    finally:
        sliced.unpersist()


# -- sources ---------------------------------------------------------------------------------------------


def start(run: PipelineRun) -> StreamingQuery:
    settings: ReplaySettings = run.settings
    folder, is_log = find_source(run)
    check_end(run, settings)
    select_checkpoint(run.checkpoint, settings.id)
    bounded = replace(run, once=run.once or bool(settings.end) or not is_log)
    schedule = ReplaySchedule(settings.speed, interruptible_sleep(run.spark)) if settings.speed else None
    rows = read_log(bounded, folder) if is_log else read_steps(bounded, folder)

    def take(batch: DataFrame, number: int) -> None:
        found = batch if is_log else read_lake(bounded, folder, batch)
        publish(bounded, to_messages(found, settings), number, schedule)

    return bounded.write(rows).foreachBatch(take).start()


def check_end(run: PipelineRun, settings: ReplaySettings) -> None:
    """Without a prefix, the end must not be past the end of the log."""
    end = to_position("end", settings.end)
    _, after = offset_bounds(log_folder(run.data))
    if not settings.prefix and end and end.offset is not None and end.offset > after:
        hint = f"the log currently ends at {after}: --set end={after}"
        message = f"--set end={end.offset} is past the end of the log: without a prefix, a replay reads its output"
        raise UsageError(message, hint)


def select_checkpoint(checkpoint: Path, identity: str) -> None:
    """Each replay has its own checkpoint. The pipeline's checkpoint is a link to the current one."""
    own = checkpoint.with_name(f"{checkpoint.name}-{identity}")
    own.mkdir(parents=True, exist_ok=True)
    link = checkpoint.with_name(f"{checkpoint.name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(own.name)
    link.replace(checkpoint)


def find_source(run: PipelineRun) -> tuple[Path, bool]:
    """The folder, and whether it is a log."""
    source: str = run.settings.source
    if source in (LOG, LAKE):
        return (log_folder(run.data), True) if source == LOG else (run.data / LAKE, False)
    path = Path(source).absolute()
    try:
        return find_log(source), True
    except UsageError:
        if any(path.glob("date=*/hour=*")):
            return path, False
        raise UsageError(f"--set source={source}: neither a log nor a lake") from None


def batch_messages(settings: ReplaySettings) -> int:
    return min(settings.batch_messages, TIMED_BATCH_MESSAGES) if settings.speed else settings.batch_messages


def read_log(run: PipelineRun, folder: Path) -> DataFrame:
    first = first_offset_of(folder, to_position("start", run.settings.start))
    options = {"startingOffsets": first, "maxOffsetsPerTrigger": batch_messages(run.settings)}
    return run.messages(run.settings.subscribe, ROWS, path=folder.absolute(), **options)


def first_offset_of(folder: Path, position: ReplayPosition | None) -> int:
    first, after = offset_bounds(folder)
    if position is None:
        return first
    offset = position.offset if position.offset is not None else find_time(folder, (position.micros or 0) / MICROS)
    return min(max(offset, first), after)


def read_steps(run: PipelineRun, folder: Path) -> DataFrame:
    settings: ReplaySettings = run.settings
    files = within_hours(
        lake_files(folder), to_position("start", settings.start), to_position("end", settings.end)
    )
    steps = run.checkpoint.with_name(f"{run.checkpoint.name}-{settings.id}.steps")
    write_steps(steps, to_steps([(first, last) for first, last, _ in files], batch_messages(settings)))
    return run.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(steps))


def within_hours(
    files: list[LakeFile], start: ReplayPosition | None, end: ReplayPosition | None
) -> list[LakeFile]:
    """Files whose hour can contain messages between these times."""
    low, high = (_hour_of(position, default) for position, default in ((start, ""), (end, "~")))
    return [file for file in files if low <= "/".join(file[2].parts[-3:-1]) <= high]


def _hour_of(position: ReplayPosition | None, default: str) -> str:
    """The name of the lake's folder for that time."""
    if position is None or position.micros is None:
        return default
    return hour_name(position.micros // HOUR_MICROS)


def read_lake(run: PipelineRun, folder: Path, step: DataFrame) -> DataFrame:
    """Sorted by offset: files of different hours can overlap if a clock was set back."""
    [(first, after)] = step.collect()
    wanted = RowFilter(parse_patterns(run.settings.subscribe))
    tasks = lake_tasks(folder, wanted, COLUMNS, first, after)
    return run_tasks(run.spark, tasks, lambda task: task.read(), ROWS).coalesce(1).sortWithinPartitions("offset")


def finish(run: PipelineRun) -> list[str]:
    return ["the same settings resume here; --set name=NAME starts the replay again"]


PIPELINE = Pipeline("replay", ReplaySettings, start, finish, "PREFIX + TOPIC", publishes=lambda settings: True)
