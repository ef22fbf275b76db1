"""silver.exchanges: one request with its outcome.

    answered   its answer, and how long it took
    error      its answer reports a failure; or the bus refused it at once (`no_route`, `busy`), then without callee
    late       no answer in time, but one afterwards
    timeout    no answer, and its deadline has passed
    open       no answer yet
    orphan     an answer whose request is missing: removed before it was read, or never captured

Requests and answers are joined on `answers`, the position of the request that the broker wrote into the answer: a
message id is not a key. Whether an answer came in time was decided by the broker when it came, and it wrote down `late`
and `duplicate`. Deadlines are compared with the greatest time of the same source, never with the clock of this process.

How long a request waits, `timeout_ms`, was decided by the broker too: by the request, otherwise by the settings of the
listener it came through. A row without it has no deadline and stays open until it is answered: a request that waits in
a queue, and one stored by a version of the bus that recorded only the timeouts that requests named themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.model.envelope import OWN_NAME, REFUSALS
from raceway.pipeline.tables import MESSAGES, Derived, Inputs, position_bucket, position_buckets, row

DDL = """
    source string, partition int, sequence bigint, answer_sequence bigint, status string, error string,
    topic string, wire string, caller string, callee_wire string, callee string,
    message_id string, correlation_id string, parent_id string,
    time timestamp, requested_us bigint, answered_us bigint, latency_us bigint, timeout_ms bigint, deadline_us bigint,
    late_answers bigint, duplicate_answers bigint, request_bytes bigint, answer_bytes bigint, due_us bigint
"""


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    rows = inputs[MESSAGES]
    paired = _requests(rows, inputs).join(_answers(rows), ["source", "partition", "sequence"], "full_outer")
    return paired.withColumn("status", _status()).select(
        *row(
            DDL,
            topic=F.coalesce("topic", "answer_topic"),
            message_id=F.coalesce("message_id", "answer_message_id"),
            correlation_id=F.coalesce("correlation_id", "answer_correlation_id"),
            time=F.timestamp_micros(F.coalesce("requested_us", "answered_us")),
            # Latency of a service: refusals of the bus itself are left out.
            latency_us=F.when(F.col("callee_wire").isNotNull(), F.col("answered_us") - F.col("requested_us")),
            late_answers=F.coalesce("late_answers", F.lit(0)).cast("bigint"),
            duplicate_answers=F.coalesce("duplicate_answers", F.lit(0)).cast("bigint"),
            due_us=F.when(F.col("status") == "open", F.col("deadline_us")),
        ),
        position_bucket(F.col("source"), F.col("sequence")).alias("bucket"),
    )


def _requests(rows: DataFrame, inputs: Inputs) -> DataFrame:
    """Return the requests, with their deadline and the horizon of their source."""
    return rows.where("kind = 'request'").select(
        "source",
        "partition",
        "sequence",
        "topic",
        "wire",
        F.col("producer").alias("caller"),
        "message_id",
        "correlation_id",
        "parent_id",
        F.col("time_us").alias("requested_us"),
        "timeout_ms",
        # A timeout so large that the sum overflows means no deadline.
        F.try_add("time_us", F.try_multiply("timeout_ms", F.lit(1000))).alias("deadline_us"),
        F.length("payload").cast("bigint").alias("request_bytes"),
        inputs.horizon_us(F.col("source")).alias("horizon_us"),
    )


def _answers(rows: DataFrame) -> DataFrame:
    """Return the answer that counts for each request: the first one in time, otherwise the first late one.

    An answer that names no request stands alone under its own position.
    """
    verdict = F.when(F.col("error").isin("late", "duplicate"), F.col("error"))
    answer = F.struct(
        # `min` compares structs field by field: in time before late, late before duplicate, then by position.
        F.when(verdict.isNull(), 0).when(verdict == "late", 1).otherwise(2).alias("rank"),
        F.col("sequence").alias("answer_sequence"),
        F.col("topic").alias("answer_topic"),
        F.when(~_is_refusal(), F.col("wire")).alias("callee_wire"),
        F.when(~_is_refusal(), F.col("producer")).alias("callee"),
        F.col("message_id").alias("answer_message_id"),
        F.col("correlation_id").alias("answer_correlation_id"),
        F.col("time_us").alias("answered_us"),
        F.length("payload").cast("bigint").alias("answer_bytes"),
        F.when(verdict.isNull(), F.col("error")).alias("error"),
    )
    # The position of an exchange is that of the request, also for its answers.
    position = F.coalesce("answers", "sequence")
    grouped = (
        rows.where("kind = 'response'")
        .select("source", "partition", position.alias("sequence"), verdict.alias("verdict"), answer.alias("answer"))
        .groupBy("source", "partition", "sequence")
        .agg(
            F.min("answer").alias("answer"),
            F.count_if(F.col("verdict") == "late").alias("late_answers"),
            F.count_if(F.col("verdict") == "duplicate").alias("duplicate_answers"),
        )
    )
    return grouped.select("source", "partition", "sequence", "answer.*", "late_answers", "duplicate_answers")


def _is_refusal() -> Column:
    """Return whether the bus itself gave the answer, because no service did."""
    # Comparisons with NULL are NULL, which `when` treats as false but `~` does not turn into true.
    return F.coalesce((F.col("producer") == OWN_NAME.decode()) & F.col("error").isin(*REFUSALS), F.lit(False))


def _status() -> Column:
    """Return the status of an exchange."""
    passed = F.col("deadline_us") <= F.col("horizon_us")
    return (
        F.when(F.col("requested_us").isNull(), "orphan")
        .when(F.col("rank") == 1, "late")
        .when(F.col("rank").isNotNull() & F.col("error").isNotNull(), "error")
        .when(F.col("rank").isNotNull(), "answered")
        .when(passed, "timeout")
        .otherwise("open")
    )


def feeds(_: str, rows: pa.Table) -> Iterable[str]:
    """Return the buckets that these rows of the input change."""
    concerned = rows.filter(pc.is_in(rows.column("kind"), value_set=pa.array(["request", "response"])))
    positions = pc.coalesce(concerned.column("answers"), concerned.column("sequence")).to_numpy()
    return position_buckets(rows.column("source")[0].as_py(), positions) if concerned.num_rows else []


TABLE = Derived(
    name="silver.exchanges",
    ddl=DDL,
    key=("source", "partition", "sequence"),
    transform=transform,
    looks_at={MESSAGES: ("source", "sequence", "kind", "answers")},
    feeds=feeds,
    due="due_us",
    expected=(
        "requests, and answers without a request",
        "(SELECT count(*) FROM bronze.messages WHERE kind = 'request') + "
        "(SELECT count(*) FROM silver.exchanges WHERE status = 'orphan')",
    ),
)
