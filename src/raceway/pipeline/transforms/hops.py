"""silver.hops: one entry of a hop list, with the durations that can be computed from its times.

Clocks of different machines are never compared. The entry of an answered request on MB or zbus was written by the bus
alone: accepted, handed over, answered, all by its own clock. Entries of Seneca are `[sent, received, answered,
returned]`: the first and the last by the sender's clock, those between by the receiver's (by the bus's if the receiver
writes none), so only the differences within each pair are meaningful; the difference of the two is the time for network
and waiting.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import MESSAGES, Derived, Inputs, row
from raceway.wires import WIRES

DDL = """
    source string, partition int, sequence bigint, hop int, time timestamp, time_us bigint,
    topic string, wire string, kind string, correlation_id string, sid string, rid string, mid string,
    times_ms array<bigint>, queue_ms bigint, processing_ms bigint, round_trip_ms bigint, network_ms bigint
"""


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    entries = inputs[MESSAGES].where(F.size("hops") > 0).select("*", F.posexplode("hops").alias("hop", "entry"))
    # Three times of one clock, against four times of two clocks on other wires.
    own = [wire.name for wire in WIRES if wire.own_times]
    by_bus = (F.col("kind") == "response") & F.col("wire").isin(own)
    processing = _between(1, 2)
    round_trip = F.when(by_bus, _between(0, 2)).otherwise(_between(0, 3))
    return entries.select(
        *row(
            DDL,
            **{name: F.col(f"entry.{name}") for name in ("sid", "rid", "mid")},
            times_ms=F.coalesce("entry.tms", F.array().cast("array<bigint>")),
            queue_ms=F.when(by_bus, _between(0, 1)),
            processing_ms=processing,
            round_trip_ms=round_trip,
            network_ms=F.when(~by_bus, F.try_subtract(round_trip, processing)),
        )
    )


def _between(first: int, second: int) -> Column:
    """Return the difference of two times; NULL if one is missing or the result overflows: clients write them."""
    return F.try_subtract(F.get("entry.tms", F.lit(second)), F.get("entry.tms", F.lit(first)))


TABLE = Derived(
    name="silver.hops",
    ddl=DDL,
    key=("source", "partition", "sequence", "hop"),
    inputs=(MESSAGES,),
    transform=transform,
)
