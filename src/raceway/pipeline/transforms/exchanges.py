"""silver.exchanges: one request with its outcome.

    answered   its answer, and how long it took
    error      its answer reports a failure; or the bus refused it at once (`no_route`, `busy`), then without callee
    late       no answer in time, but one afterwards
    timeout    no answer, and its deadline has passed
    open       no answer yet
    orphan     an answer whose request is missing: removed before it was read, or never captured

Requests and answers are brought together by `answers`, the position of the request that the broker wrote into the
answer: a message id is not a key. Whether an answer came in time was decided by the broker when it came, and it wrote
down `late` and `duplicate`. Deadlines are compared with the greatest time of the same source, never with the clock of
this process.

How long a request waits, `timeout_ms`, was decided by the broker too: by the request, otherwise by the settings of the
listener it came through. A row without it has no deadline and stays open until it is answered: a request that waits in
a queue, and one stored by a version of the bus that recorded only the timeouts that requests named themselves.

A row holds all that is known of its request and of the answer that counts. So what an earlier batch found and what a
later one adds are merged without reading the messages again; the files that hold rows which an answer names, or whose
deadline has passed, are written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.model.envelope import OWN_NAME, REFUSALS
from raceway.pipeline.tables import MESSAGES, Derived, Inputs, NewRows, Step, file_name, row
from raceway.wires.captures.columns import JOURNAL

NAME = "silver.exchanges"
_KEY = ("source", "partition", "sequence")
DDL = """
    source string, partition int, sequence bigint, answer_sequence bigint, status string, error string,
    topic string, wire string, caller string, callee_wire string, callee string,
    message_id string, correlation_id string, parent_id string,
    time timestamp, requested_us bigint, answered_us bigint, latency_us bigint, timeout_ms bigint, deadline_us bigint,
    late_answers bigint, duplicate_answers bigint, request_bytes bigint, answer_bytes bigint, due_us bigint,
    verdict string
"""
# Verdicts on answers; of several the first one here counts.
_VERDICTS = ("in time", "late", "duplicate")
_ASKED = (
    "topic", "wire", "caller", "message_id", "correlation_id", "parent_id", "requested_us", "timeout_ms", "deadline_us",
    "request_bytes", "timed_out",
)  # fmt: skip
_GIVEN = (
    "rank", "answer_sequence", "answer_topic", "callee_wire", "callee", "answer_message_id", "answer_correlation_id",
    "answered_us", "answer_bytes", "error",
)  # fmt: skip


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    return _merged([*_partials(inputs[MESSAGES])], inputs)


def advance(work: Step) -> NewRows:
    """Merge new requests and answers with the rows of earlier batches that they concern."""
    replaced = sorted({*_due(work), *_answered(work)})
    parts = [*_partials(work.added(MESSAGES))]
    if replaced:
        parts.append(_unmerged(work.lake.frame(NAME, replaced)))
    return NewRows(_merged(parts, work.inputs()), replaced)


def is_due(work: Step) -> bool:
    """Return whether a deadline has passed."""
    return bool(_due(work))


def _due(work: Step) -> list[str]:
    """Return the files with an open request whose deadline has passed."""
    return work.lake.paths(NAME, due_us=(None, work.horizons.get(JOURNAL, 0)))


def _answered(work: Step) -> list[str]:
    """Return the files with requests that are answered now and were asked earlier."""
    first = work.least(MESSAGES, "sequence")
    if first is None or not work.lake.paths(NAME):
        return []
    earlier = (F.col("source") == JOURNAL) & (F.col("kind") == "response") & (F.col("answers") < first)
    asked = work.added(MESSAGES).where(earlier).select(F.col("answers").alias("sequence"))
    least, greatest = asked.agg(F.min("sequence"), F.max("sequence")).collect()[0]
    if least is None:
        return []
    rows = work.lake.frame(NAME, work.lake.paths(NAME, sequence=(least, greatest)))
    known = rows.select("source", "sequence", file_name()).where(F.col("source") == JOURNAL)
    return work.lake.paths_of(known.join(asked, "sequence", "left_semi"), NAME)


# ---- what is known of an exchange -----------------------------------------------------------------------------------


def _partials(rows: DataFrame) -> Iterator[DataFrame]:
    """Return what messages tell: requests, and answers under the position of their request.

    An answer that names no request stands alone under its own position.
    """
    # A timeout so large that the sum overflows means no deadline.
    asked = rows.where("kind = 'request'").withColumns(
        {
            "caller": F.col("producer"),
            "requested_us": F.col("time_us"),
            "deadline_us": F.try_add("time_us", F.try_multiply("timeout_ms", F.lit(1000))),
            "request_bytes": F.length("payload").cast("bigint"),
            "timed_out": F.lit(False),
        }
    )
    yield asked.select(*_KEY, F.struct(*_ASKED).alias("request"))
    verdict = F.when(F.col("error").isin(*_VERDICTS[1:]), F.col("error")).otherwise(_VERDICTS[0])
    answered = rows.where("kind = 'response'").select(
        "source",
        "partition",
        F.coalesce("answers", "sequence").alias("sequence"),
        verdict.alias("verdict"),
        F.struct(
            _rank(verdict).alias("rank"),
            F.col("sequence").alias("answer_sequence"),
            F.col("topic").alias("answer_topic"),
            F.when(~_is_refusal(), F.col("wire")).alias("callee_wire"),
            F.when(~_is_refusal(), F.col("producer")).alias("callee"),
            F.col("message_id").alias("answer_message_id"),
            F.col("correlation_id").alias("answer_correlation_id"),
            F.col("time_us").alias("answered_us"),
            F.length("payload").cast("bigint").alias("answer_bytes"),
            F.when(verdict == _VERDICTS[0], F.col("error")).alias("error"),
        ).alias("answer"),
    )
    counts = ((F.col("verdict") == word).cast("bigint").alias(f"{word}_answers") for word in _VERDICTS[1:])
    yield answered.select(*_KEY, "answer", *counts)


def _unmerged(rows: DataFrame) -> DataFrame:
    """Return what rows of the table tell."""
    is_asked = F.col("requested_us").isNotNull()
    told = rows.withColumns(
        {
            "timed_out": F.col("status") == "timeout",
            "rank": _rank(F.col("verdict")),
            # Of an answer only what its request does not tell was kept.
            **{f"answer_{name}": F.when(~is_asked, F.col(name)) for name in ("topic", "message_id", "correlation_id")},
        }
    )
    return told.select(
        *_KEY,
        F.when(is_asked, F.struct(*_ASKED)).alias("request"),
        F.when(F.col("verdict").isNotNull(), F.struct(*_GIVEN)).alias("answer"),
        *(f"{word}_answers" for word in _VERDICTS[1:]),
    )


def _merged(parts: list[DataFrame], inputs: Inputs) -> DataFrame:
    """Return rows of the table from all that is known of their exchanges."""
    together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    counts = [f"{word}_answers" for word in _VERDICTS[1:]]
    grouped = together.groupBy(*_KEY).agg(
        F.max("request").alias("request"),
        # `min` compares structs field by field: in time before late, late before duplicate, then by position.
        F.min("answer").alias("answer"),
        *(F.coalesce(F.sum(name), F.lit(0)).cast("bigint").alias(name) for name in counts),
    )
    known = grouped.select(*_KEY, "request.*", "answer.*", *counts).withColumn("status", _status(inputs))
    return known.select(
        *row(
            DDL,
            topic=F.coalesce("topic", "answer_topic"),
            message_id=F.coalesce("message_id", "answer_message_id"),
            correlation_id=F.coalesce("correlation_id", "answer_correlation_id"),
            time=F.timestamp_micros(F.coalesce("requested_us", "answered_us")),
            # Latency of a service: refusals of the bus itself are left out.
            latency_us=F.when(F.col("callee_wire").isNotNull(), F.col("answered_us") - F.col("requested_us")),
            # Time does not go on in a capture.
            due_us=F.when((F.col("status") == "open") & (F.col("source") == JOURNAL), F.col("deadline_us")),
            verdict=F.when(F.col("rank") == 0, _VERDICTS[0])
            .when(F.col("rank") == 1, _VERDICTS[1])
            .when(F.col("rank") == 2, _VERDICTS[2]),
        )
    )


def _rank(verdict: Column) -> Column:
    """Return the place of a verdict among all; NULL for none."""
    return reduce(
        lambda found, rank: found.when(verdict == _VERDICTS[rank], rank), (1, 2), F.when(verdict == _VERDICTS[0], 0)
    )


def _is_refusal() -> Column:
    """Return whether the bus itself gave the answer, because no service did."""
    # Comparisons with NULL are NULL, which `when` treats as false but `~` does not turn into true.
    return F.coalesce((F.col("producer") == OWN_NAME.decode()) & F.col("error").isin(*REFUSALS), F.lit(False))


def _status(inputs: Inputs) -> Column:
    """Return the status of an exchange."""
    passed = (F.col("deadline_us") <= inputs.horizon_us(F.col("source"))) | F.col("timed_out")
    return (
        F.when(F.col("requested_us").isNull(), "orphan")
        .when(F.col("rank") == 1, "late")
        .when(F.col("rank").isNotNull() & F.col("error").isNotNull(), "error")
        .when(F.col("rank").isNotNull(), "answered")
        .when(passed, "timeout")
        .otherwise("open")
    )


TABLE = Derived(
    name=NAME,
    ddl=DDL,
    key=_KEY,
    when="time",
    inputs=(MESSAGES,),
    transform=transform,
    advance=advance,
    due=is_due,
)
