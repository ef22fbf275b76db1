"""The Spark session: in UTC, on loopback, with this Python for its workers.

Output of Spark and its JVM goes to a file, so that users see only the progress of the pipeline.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from raceway.config import MIB
from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.failures import keep_quiet
from raceway.pipeline.folders import Folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
# Packages of the extra `spark`.
EXTRA = ("pyspark", "pandas", "duckdb", "deltalake")
TIME_ZONE, UTC = "spark.sql.session.timeZone", "UTC"
_UTC_NAMES = ("UTC", "ETC/UTC", "Z", "ZULU", "+00:00", "GMT", "ETC/GMT")
# C1 and the serial collector start faster, but make long runs a third slower: for tests and the demo.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# Code generation and adaptive planning pay off for many rows only.
QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}
# A worker allocates and frees tens of megabytes per task. By default the C library returns them to the system each
# time, and a sixth of the time is spent on page faults.
_KEEP_MEMORY = {
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
}
_OF_HADOOP = "spark.hadoop."
_SECRET = re.compile(r"secret|password|token|(access|account|private)\.?key", re.IGNORECASE)
_LOG4J = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def session(
    folders: Folders,
    *,
    master: str = "local[*]",
    memory: str = "2g",
    quick: bool = False,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Create a session for the tables of a data folder; `extra` are Spark properties and take precedence.

    Raises ConfigError for a time zone other than UTC, PipelineError if Java or the extra `spark` is missing.
    """
    check_time_zone((extra or {}).get(TIME_ZONE, UTC))
    check_installed()
    check_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    for folder in (folders.log, folders.spark, folders.staging):
        folder.mkdir(parents=True, exist_ok=True)
    _set_environment(folders, master)
    keep_quiet()
    settings = _settings(folders, master, memory, quick) | dict(extra or {})
    secrets = {key: settings.pop(key) for key in list(settings) if is_secret(key)}
    builder = SparkSession.builder.master(with_retries(master)).appName("raceway")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with standard_error_to(folders.log / "spark.log"):
        try:
            return _with_secrets(builder.getOrCreate(), secrets)
        except (PySparkException, OSError, RuntimeError) as error:
            raise PipelineError(_start_failure(error, folders)) from error


def is_secret(name: str) -> bool:
    """Whether a property is a key or password of Hadoop for a store."""
    return name.startswith(_OF_HADOOP) and _SECRET.search(name) is not None


def _with_secrets(spark: SparkSession, secrets: Mapping[str, str]) -> SparkSession:
    """Tell Hadoop its keys by a call: properties are on the command line of Java, which everybody here can see."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in secrets.items():
        hadoop.set(name.removeprefix(_OF_HADOOP), value)
    return spark


def check_time_zone(name: str) -> None:
    """Raise ConfigError unless this is UTC, which minutes, hours and days are in."""
    if name.upper() not in _UTC_NAMES:
        raise ConfigError(
            TIME_ZONE,
            f"must be UTC, not {name!r}: minutes and hours of the tables are in UTC, and in another zone rows would be "
            "missed. Convert to local times in your queries",
        )


def check_installed() -> None:
    """Raise PipelineError if a package of the extra `spark` is missing."""
    if any(find_spec(package) is None for package in EXTRA):
        raise PipelineError("the pipeline needs Spark: pip install 'raceway[spark]'")


def check_java() -> None:
    """Raise PipelineError if Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java") or ""
    found = _maybe_java_version(command) if command else None
    if found is not None and found >= JAVA:
        return
    what = f"found Java {found} ({command})" if found else f"found none{f' in JAVA_HOME={home}' if home else ''}"
    raise PipelineError(
        f"Spark needs Java {JAVA} or newer and {what}: on Debian and Ubuntu "
        "`sudo apt-get install default-jre-headless`; or set JAVA_HOME to another one"
    )


def _maybe_java_version(command: str) -> int | None:
    """Major version of a java command: 17 of "17.0.15", 8 of "1.8.0_292"."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr  # noqa: S603 - the user's own Java
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def is_local(master: str) -> bool:
    return master.startswith("local")


def is_on_loopback(master: str) -> bool:
    return is_local(master) or "127.0.0.1" in master


def with_retries(master: str) -> str:
    """Add retries to `local[n]`, which has none: a Python worker killed by the system would end the run."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{found[1] or 1},3]" if found else master


def cores(master: str) -> int:
    """Number of concurrent tasks, if the name of the master tells it."""
    found = re.match(r"local(?:\[(\*|\d+))?", master)
    return int(found[1]) if found and found[1] and found[1] != "*" else os.cpu_count() or 1


def _set_environment(folders: Folders, master: str) -> None:
    # Otherwise workers use the first `python3` on the path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_on_loopback(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # otherwise Spark resolves the name of this machine
    if is_local(master):
        os.environ["SPARK_HOME"] = str(_slim_home(folders.spark / "home"))


def _slim_home(home: Path) -> Path:
    """A folder with links to Spark's jars and scripts only.

    Workers otherwise load pyspark from a zip without compiled files, which takes half a second in each of five kinds of
    process.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    home.mkdir(parents=True, exist_ok=True)
    for name in ("jars", "bin"):
        link = home / name
        if not link.is_symlink() or os.readlink(link) != str(package / name):
            link.unlink(missing_ok=True)
            link.symlink_to(package / name)
    return home


def _settings(folders: Folders, master: str, memory: str, quick: bool) -> dict[str, str]:
    log4j = folders.spark / "log4j2.properties"
    log4j.write_text(_LOG4J.format(file=folders.log / "spark.log"))
    java = f"-Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={folders.spark}"
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{java} {QUICK_JAVA}" if quick else java,
        "spark.local.dir": str(folders.spark / "scratch"),
        "spark.sql.warehouse.dir": str(folders.spark / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores(master)),
        TIME_ZONE: UTC,
        # The default, INT96, does not tell other readers the time zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        # The driver knows the names of all files; asking for the size of each is quicker than a job that does.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "2000",
        **_KEEP_MEMORY,
        **(QUICK if quick else {}),
        **(loopback if is_on_loopback(master) else {}),
    }


def _start_failure(error: Exception, folders: Folders) -> str:
    log = folders.log / "spark.log"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"Spark did not start: {first}; see {log}"


@contextmanager
def standard_error_to(file: Path) -> Iterator[None]:
    """Redirect standard error during the context. Processes started in it (the JVM and its workers) keep the file."""
    sys.stderr.flush()
    saved = os.dup(2)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)
