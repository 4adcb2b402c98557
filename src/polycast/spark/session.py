"""Creates Spark sessions for Polycast: tuned settings, quiet startup, the data source registered."""

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
"""Settings of every session."""

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
"""Additional settings of local sessions.

Spark's default checkpoint manager starts ten processes per batch to resolve symbolic links. Arrow's bounds checks
are unnecessary for data from our own workers.
"""


def session(
    master: str = "local[*]", name: str = "polycast", settings: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, or a new one. `settings` override the defaults."""
    wanted = to_settings(master) | {key: str(value) for key, value in (settings or {}).items()}
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):  # avoids a lookup of the host name, and Spark's warning about it
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
    """Passes the token to Java and its workers in a file with mode 600, not in the environment.

    Workers need it to publish; a query can read the environment more easily than a file.
    """
    secrets = {name: os.environ.pop(name) for name in SECRETS if name in os.environ}
    path = _to_file(secrets["POLYCAST_TOKEN"]) if "POLYCAST_TOKEN" in secrets else ""
    before = os.environ.get(TOKEN_FILE)
    try:
        if path:
            os.environ[TOKEN_FILE] = path
        yield
    finally:
        if path:
            os.environ.pop(TOKEN_FILE)
        os.environ.update(secrets | ({} if before is None else {TOKEN_FILE: before}))


def _to_file(token: str) -> str:
    """The file is removed when this process exits normally."""
    folder = tempfile.mkdtemp(prefix="polycast-token-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "token"
    path.touch(0o600, exist_ok=False)
    path.write_text(token)
    return str(path)


def _disable_checksum_files(spark: SparkSession) -> None:
    """Stops Hadoop from writing a `.crc` file next to each local file. No setting does that, only a method."""
    java = spark.sparkContext._jvm
    assert java
    local = java.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)


def is_local(master: str) -> bool:
    return master.startswith("local")


def to_settings(master: str) -> dict[str, str]:
    """Cores, directories and file modes are set for local sessions only."""
    if not is_local(master):
        return SETTINGS
    cores = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    warehouse = {"spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/polycast-warehouse-{os.getuid()}"}
    modes = {"spark.hadoop.fs.permissions.umask-mode": f"{restrict(0):03o}"}  # Hadoop's chmod overrides the umask
    return SETTINGS | LOCAL_SETTINGS | cores | warehouse | modes


SHARED_ENVIRONMENT = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""Variables that each starting stream writes, without a lock, into a map shared by all streams of a source.

Two concurrent inserts can corrupt the map, and then every later task of the session fails. With the keys already
present, a stream only replaces values, which is safe.
"""


def register(spark: SparkSession) -> None:
    """Registers the format `polycast` with a session, with filter push-down if the session enables it."""
    if not is_remote():
        spark.sparkContext.environment.update(dict.fromkeys(SHARED_ENVIRONMENT, ""))
    pushes = str(spark.conf.get(PUSH_DOWN, "false")).lower() == "true"
    spark.dataSource.register(PushingSource if pushes else PolycastSource)


@contextlib.contextmanager
def _startup_output_captured(master: str) -> Iterator[None]:
    """Captures stderr while Java starts; used only if the start fails."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            yield
        except (PySparkException, Py4JError, OSError) as error:
            output.seek(0)
            raise _to_failure(master, error, output.read().decode(errors="replace")) from error
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _to_failure(master: str, error: Exception, output: str) -> StartError:
    errors = [line for line in output.splitlines() if "ERROR" in line or "Exception" in line or "Error" in line]
    reason = errors[-1].strip() if errors else str(unwrap(error))
    return StartError(f"Spark does not start with master {master}: {reason}", "run: polycast doctor")
