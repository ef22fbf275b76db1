"""bronze.rejected: messages that a schema rejected.

The bus stores them as rows of the topic `raceway.rejected`, with the rejected payload and the rest in attributes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.wires.captures.columns import REJECTED_TOPIC


def rejected(messages: DataFrame) -> DataFrame:
    """Return rows of `bronze.rejected`, and the `part` they came from."""
    return messages.where(F.col("topic") == REJECTED_TOPIC).select(
        "source",
        "partition",
        "sequence",
        "time",
        "time_us",
        F.coalesce(_attribute("wire"), F.col("wire")).alias("wire"),
        _attribute("topic").alias("topic"),
        _attribute("code").alias("code"),
        _attribute("reason").alias("reason"),
        _attribute("path").alias("path"),
        _attribute("subject").alias("subject"),
        _attribute("version").try_cast("bigint").alias("schema_version"),
        F.coalesce(_attribute("producer"), F.col("producer")).alias("producer"),
        "attributes",
        "payload",
        "part",
    )


def _attribute(name: str) -> Column:
    """Return the value of an attribute; NULL if it is absent."""
    return F.try_element_at("attributes", F.lit(name))
