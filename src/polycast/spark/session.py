"""A Spark session that is set up for Polycast: settings that were measured, quiet, the data source in place."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from polycast.client.credentials import SECRETS, TOKEN_FILE
from polycast.errors import StartError
from polycast.log.files.permissions import restrict
from polycast.spark.error_text import unwrap
from polycast.spark.java import find_java
from polycast.spark.source import PolycastSource, PushingSource

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
LOOPBACK = "127.0.0.1"

SETTINGS: dict[str, str] = {
    PUSH_DOWN: "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": str(1024 * 1024),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(64 * 1024),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""Of every session."""

LOCAL_SETTINGS: dict[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": (
        "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "2g",
}
"""Of those where everything runs on this machine.

The way in which Spark writes checkpoints by default starts ten processes per batch to look for symbolic links.
What comes from a worker here need not be checked value by value.
"""


def session(
    master: str = "local[*]", name: str = "polycast", settings: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, or a new one; `settings` go before those that it would have."""
    wanted = to_settings(master) | {key: str(value) for key, value in (settings or {}).items()}
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):  # else it looks its own name up, and says so
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    builder = SparkSession.Builder().master(master).appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    with _startup_output_captured(master), _token_in_file():
        spark: SparkSession = builder.getOrCreate()
    if is_local(master):
        _disable_checksum_files(spark)
    register(spark)
    return spark


@contextlib.contextmanager
def _token_in_file() -> Iterator[None]:
    """Java and all that it starts get a token as a file for this user alone, not in their environment.

    Workers publish what they find and need it; a query can read an environment more easily than a file.
    """
    kept = {name: os.environ.pop(name) for name in SECRETS if name in os.environ}
    given = _to_file(kept["POLYCAST_TOKEN"]) if "POLYCAST_TOKEN" in kept else ""
    before = os.environ.get(TOKEN_FILE)
    try:
        if given:
            os.environ[TOKEN_FILE] = given
        yield
    finally:
        if given:
            os.environ.pop(TOKEN_FILE)
        os.environ.update(kept | ({} if before is None else {TOKEN_FILE: before}))


def _to_file(token: str) -> str:
    """It is removed when this process ends, unless it is killed."""
    folder = tempfile.mkdtemp(prefix="polycast-token-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "token"
    path.touch(0o600, exist_ok=False)
    path.write_text(token)
    return str(path)


def _disable_checksum_files(spark: SparkSession) -> None:
    """Hadoop would write a second file beside each one on this machine. No setting is about it, only a method."""
    java = spark.sparkContext._jvm
    assert java
    local = java.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)


def is_local(master: str) -> bool:
    return master.startswith("local")


def to_settings(master: str) -> dict[str, str]:
    """A cluster has cores and a file system of its own."""
    if not is_local(master):
        return SETTINGS
    cores = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    warehouse = {"spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/polycast-warehouse-{os.getuid()}"}
    modes = {"spark.hadoop.fs.permissions.umask-mode": f"{restrict(0):03o}"}  # Hadoop's chmod overrules the umask
    return SETTINGS | LOCAL_SETTINGS | cores | warehouse | modes


SHARED_ENVIRONMENT = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""Each stream that starts writes these into a map that all streams of a source share, and no lock is held.

Two that start at once can break the map, and then no task of the session can be read any more. Where the names are
there beforehand, nothing but their values is written.
"""


def register(spark: SparkSession) -> None:
    """Makes the format `polycast` known to a session. Filters are pushed down where the session allows it."""
    if not is_remote():
        spark.sparkContext.environment.update(dict.fromkeys(SHARED_ENVIRONMENT, ""))
    pushes = str(spark.conf.get(PUSH_DOWN, "false")).lower() == "true"
    spark.dataSource.register(PushingSource if pushes else PolycastSource)


@contextlib.contextmanager
def _startup_output_captured(master: str) -> Iterator[None]:
    """What Java has to say while it starts is only of interest if it does not."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as words:
        os.dup2(words.fileno(), 2)
        try:
            yield
        except (PySparkException, Py4JError, OSError) as error:
            words.seek(0)
            raise _to_failure(master, error, words.read().decode(errors="replace")) from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _to_failure(master: str, error: Exception, words: str) -> StartError:
    said = [line for line in words.splitlines() if "ERROR" in line or "Exception" in line or "Error" in line]
    reason = said[-1].strip() if said else str(unwrap(error))
    return StartError(
        f"Spark does not start with master {master}: {reason}", "polycast doctor looks for the cause"
    )
