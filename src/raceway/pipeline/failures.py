"""Failures of Spark, of its Java process, of disks and of object stores, told in one line.

A worker's error reaches the driver as text, inside tracebacks of Python and Java; its last line says what happened.
When the Java process is gone, nothing of Spark works any more, and not even its end can be asked for.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from raceway.errors import PipelineError, RacewayError
from raceway.pipeline.folders import Folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_ENDED = "Spark's Java process has ended; if the system was short of memory, pipeline.memory may be too high"
# Texts of py4j and of sockets when Java has ended; in a failure that Java reports, a colon or a trace follows.
_ENDED = re.compile(
    r"Answer from Java side is empty|Error while receiving|Error while sending|Connection refused"
    r"|\AAn error occurred while calling \S+\Z"
)
_MISSING_S3 = "S3AFileSystem not found"
_ADVICE_S3 = "Spark needs the jars of its object store: --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{}"


@contextmanager
def explained_failures(folders: Folders) -> Iterator[None]:
    """Turn a failure of Spark, its workers or the storage into a PipelineError with the reason; ours pass."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except RacewayError:
        raise
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        raise explained(error, folders) from error


def explained(error: Exception, folders: Folders) -> RacewayError:
    """The RacewayError that caused a failure, otherwise a PipelineError with the line that tells why."""
    if isinstance(error, RacewayError):
        return error
    text = str(error)
    if (said := said_by_us(text)) is not None:
        return PipelineError(said)
    log = folders.log / "spark.log"
    if isinstance(error, (ConnectionError, EOFError)) or _ENDED.search(text):
        return PipelineError(f"{_JAVA_ENDED}; see {log}")
    if _MISSING_S3 in text:
        return PipelineError(_ADVICE_S3.format(hadoop_version()))
    if isinstance(error, OSError):
        return PipelineError(f"{error.strerror or text}{f': {error.filename}' if error.filename else ''}")
    return PipelineError(f"Spark failed: {reason(text) or type(error).__name__}; see {log}")


def said_by_us(text: str) -> str | None:
    """The message of a RacewayError inside a traceback that Spark wraps around it, if any."""
    found = re.findall(r"^raceway\.errors\.[\w.]+: (.*)$", text, re.MULTILINE)
    return found[-1].strip() if found else None


def reason(text: str) -> str:
    """The line that tells why: the error at the end of a worker's traceback, the last cause in Java, or the first."""
    of_python = re.findall(
        r"^(?:[\w.]+\.)?\w*(?:Error|Exception): .+$", text.partition("Traceback (most recent")[2], re.M
    )
    of_java = re.findall(r"^Caused by: (.+)$", text, re.M)
    found = of_python or of_java or text.strip().splitlines()[:1]
    return found[-1].strip() if found else ""


def hadoop_version() -> str:
    """The version of Hadoop's classes in Spark, which its jars for object stores must have, too."""
    import pyspark

    names = [jar.name for folder in pyspark.__path__ for jar in Path(folder).glob("jars/hadoop-client-api-*.jar")]
    return names[0].removeprefix("hadoop-client-api-").removesuffix(".jar") if names else "VERSION"


def keep_quiet() -> None:
    """Keep from standard error what py4j and pyspark print by themselves when the Java process has ended; their calls
    fail, and that is told in one line."""
    from pyspark.accumulators import AccumulatorTCPServer

    AccumulatorTCPServer.handle_error = _tell_unless_ended  # type: ignore[assignment, method-assign]
    # py4j logs that with the root logger.
    logging.getLogger().addFilter(_is_no_end)


def _tell_unless_ended(server: BaseServer, request: Any, client_address: Any) -> None:
    if not isinstance(sys.exception(), (EOFError, ConnectionError)):
        BaseServer.handle_error(server, request, client_address)


def _is_no_end(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway" or record.msg != "Exception while sending command."


def stop(spark: SparkSession) -> None:
    """End a session; one whose Java process is gone has ended."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()
