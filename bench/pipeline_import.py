"""Raw MB frames to bronze: the importer, a Python UDF called row by row, and Polars in one process.

All read the file of a capture and write Parquet files with the same fields; all check action, topic, version, ids and
timeout. For the UDF, which reads Parquet, and for Polars a loop splits the frames. The UDF is also measured with frames
that were split beforehand, without the cost of that step. The frames include no answers: the importer would pair them
with their requests, which the others do not.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.pipeline_results import IMPORT, POLARS, UDF, UDF_OF_CUT
from raceway.net.codec.frames import LENGTH
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports.importing import import_files
from raceway.pipeline.lake import Lake
from raceway.wires.mb.codec.header import MbLimits, MbRefused, read_message

FIELDS = (
    "kind string, topic string, version string, message_id string, parent_id string, timeout_ms bigint, "
    "payload binary, code string"
)
HEADER = r"^([^:\n]*):([^:\n]*):([^:\n]*)(?::([^:\n]*))?(?::([^:\n]*))?(?::([^:\n]*))?\n([\s\S]*)$"
UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
UUID_4 = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
TOPIC = r"^[a-zA-Z][a-zA-Z0-9]*(\.[a-zA-Z][a-zA-Z0-9]*){0,4}$"
VERSION = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"


def write_frames(path: Path, count: int) -> None:
    """Write publishes and requests as frames with 200 bytes of payload; one in a thousand is invalid."""
    payload = b'{"order":%010d,"note":"' + b"x" * 165 + b'"}'
    kinds = (
        b"publish:orders.created:1.0.0:%s",
        b"request:orders.price:1.0.0:%s::5000",
        b"publish:stock.moved:2.1.0:%s",
    )
    with path.open("wb") as file:
        for number in range(count):
            name = b"%08x-0000-4000-8000-%012x" % (number & 0xFFFFFFFF, number)
            head = b"shout:orders:1.0.0" if number % 1000 == 999 else kinds[number % 3] % name
            message = head + b"\n" + payload % number
            file.write(LENGTH.pack(len(message)) + message)


def frames_of(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        found.append(data[at : at + length])
        at += length
    return found


def ours(spark: SparkSession, file: Path, folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    lake = Lake(spark, Folders(folder))
    began = time.monotonic()
    list(import_files(lake, "mb", [str(file)]))
    return time.monotonic() - began


def row_by_row(spark: SparkSession, file: Path, folder: Path, is_cut: bool) -> float:
    """Import with a Python UDF. `is_cut`: the frames are already split, as Parquet of an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
    parse, cut = F.udf(_parse, FIELDS, useArrow=False), file.with_suffix(".parquet")
    began = time.monotonic()
    if not is_cut:
        frames = frames_of(file)
        pq.write_table(pa.table({"sequence": range(len(frames)), "frame": frames}), cut, row_group_size=65_536)
    rows = spark.read.parquet(str(cut)).select("sequence", parse("frame").alias("message"))
    rows.select("sequence", "message.*").write.option("compression", "zstd").parquet(str(folder))
    return time.monotonic() - began


_LIMITS = MbLimits()


def _parse(frame: bytearray) -> tuple[Any, ...]:
    found = read_message(bytes(frame), _LIMITS)
    if isinstance(found, MbRefused):
        return (None, None, None, None, None, None, frame, found.code)
    head, payload = found
    texts = (head.action, head.topic, head.version, head.message_id, head.parent_id)
    return (*(None if text is None else text.decode() for text in texts), head.timeout_ms, payload, None)


def with_polars(file: Path, folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    frames = pl.DataFrame({"frame": frames_of(file)}).with_row_index("sequence")
    names = ["kind", "topic", "version", "message_id", "parent_id", "timeout", "payload"]
    parsed = frames.select(
        "sequence", pl.col("frame").cast(pl.String).str.extract_groups(HEADER).struct.rename_fields(names).alias("m")
    ).unnest("m")
    kind, timeout = pl.col("kind").str.to_lowercase(), pl.col("timeout").fill_null("")
    good = parsed.filter(
        kind.is_in(["publish", "request", "response"])
        & pl.col("topic").str.contains(TOPIC)
        & (pl.col("topic").str.len_bytes() <= 255)
        & pl.col("version").str.contains(VERSION)
        & (pl.col("version").str.len_bytes() <= 20)
        & (pl.col("message_id").str.contains(UUID_4) | (pl.col("message_id").fill_null("").eq("") & kind.ne("request")))
        & (pl.col("parent_id").str.contains(UUID) | pl.col("parent_id").fill_null("").eq(""))
        & (timeout.eq("") | (kind.eq("request") & timeout.str.contains(r"^[0-9]{1,7}$")))
        & (pl.col("payload").str.len_bytes() <= 16_384)
    ).with_columns(pl.col("timeout").replace("", None).cast(pl.Int64))
    bad = parsed.join(good.select("sequence"), on="sequence", how="anti")
    good.write_parquet(folder / "good.parquet", compression="zstd", compression_level=1)
    bad.write_parquet(folder / "bad.parquet", compression="zstd", compression_level=1)
    return time.monotonic() - began


def measure(spark: SparkSession, folder: Path, count: int, rounds: int) -> dict[str, list[float]]:
    """Alternating runs over one file: frames per second of each method, per round."""
    folder.mkdir(exist_ok=True)
    file = folder / "frames.mb"
    write_frames(file, count)
    ways: dict[str, Callable[[], float]] = {
        IMPORT: lambda: ours(spark, file, folder / "ours"),
        UDF: lambda: row_by_row(spark, file, folder / "udf", is_cut=False),
        UDF_OF_CUT: lambda: row_by_row(spark, file, folder / "udf", is_cut=True),
        POLARS: lambda: with_polars(file, folder / "polars"),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            os.sync()  # otherwise the importer, the only one that syncs, would wait for data that the others wrote
            seconds = way()
            if number:  # the first round warms up
                found[name].append(count / seconds)
    return found
