"""A failure of Spark, of its Java process, of a disk or of a store is one line that says what it was."""

from __future__ import annotations

import errno
import logging
import socket
import traceback
from pathlib import Path
from socketserver import BaseRequestHandler

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.accumulators import AccumulatorTCPServer

from raceway.errors import PipelineError
from raceway.pipeline import failures
from raceway.pipeline.folders import Folders

WORKER = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 3 times, most recent failure: Lost task 0.2 in
stage 3.0 (TID 9): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 9, in main
    process()
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_our_sentence_is_found_in_sparks_traceback() -> None:
    said = "".join(traceback.format_exception_only(PipelineError("position 0 was removed")))
    assert said.startswith("raceway.errors")
    text = f"[X] failed: Traceback\n  File 'a', line 1\n{said} SQLSTATE: 1"
    assert failures.said_by_us(text) == "position 0 was removed"
    assert failures.said_by_us("java.lang.NullPointerException") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER.format(error="OSError: [Errno 28] No space left"), "OSError: [Errno 28] No space left"),
        (WORKER.format(error="pyarrow.lib.ArrowInvalid: x\nValueError: y"), "ValueError: y"),
        (
            "Job failed\n\tat a.b\nCaused by: x.Y: first\nCaused by: java.io.IOException: last\n\tat c.d",
            "java.io.IOException: last",
        ),
        ("[TABLE_GONE] The table is gone.\nmore", "[TABLE_GONE] The table is gone."),
        ("", ""),
    ],
)
def test_the_line_that_tells_why(text: str, reason: str) -> None:
    assert failures.reason(text) == reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Java process has ended"),
        (EOFError(), "Java process has ended"),
        (Py4JError("An error occurred while calling o62.set"), "Java process has ended"),
        (Py4JError("An error occurred while calling o62.set. Trace:\nx"), "Spark failed: An error occurred while call"),
        (RuntimeError("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"), "hadoop-aws:3"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "No space left on device: /data/x"),
        (RuntimeError("something"), "Spark failed: something; see"),
        (PipelineError("ours"), "^ours$"),
    ],
)
def test_a_failure_is_told_in_words(tmp_path: Path, error: Exception, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        raise failures.explained(error, Folders(tmp_path))


def test_what_is_no_failure_of_spark_passes(tmp_path: Path) -> None:
    with pytest.raises(KeyError), failures.explained_failures(Folders(tmp_path)):
        raise KeyError
    with pytest.raises(PipelineError, match="Is a directory"), failures.explained_failures(Folders(tmp_path)):
        tmp_path.read_bytes()


@pytest.mark.parametrize(("failure", "is_told"), [(EOFError, False), (ConnectionResetError, False), (ValueError, True)])
def test_of_accumulators_only_the_end_of_java_is_not_told(
    capsys: pytest.CaptureFixture[str], failure: type[Exception], is_told: bool
) -> None:
    failures.keep_quiet()
    with AccumulatorTCPServer(("127.0.0.1", 0), BaseRequestHandler, "token") as server, socket.socket() as client:
        try:
            raise failure
        except failure:
            server.handle_error(client, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) == is_told


def test_of_py4j_only_the_end_of_java_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    failures.keep_quiet()
    for module, said in (("java_gateway", "Exception while sending command."), ("java_gateway", "x"), ("other", "y")):
        logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, f"{module}.py", 1, said, None, None))
    assert [record.message for record in caplog.records] == ["x", "y"]
