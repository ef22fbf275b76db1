"""bronze.rejected: messages that a schema rejected.

The bus stores them as rows of the topic `raceway.rejected`, with the rejected payload and the rest in attributes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import BRONZE_DDL, REJECTED_MESSAGES, row
from raceway.wires.captures.columns import REJECTED_TOPIC


def rejected(messages: DataFrame) -> DataFrame:
    """Return rows of `bronze.rejected`, and the `part` they came from."""
    return messages.where(F.col("topic") == REJECTED_TOPIC).select(
        *row(
            BRONZE_DDL[REJECTED_MESSAGES],
            **{name: _attribute(name) for name in ("topic", "code", "reason", "path", "subject")},
            wire=F.coalesce(_attribute("wire"), F.col("wire")),
            schema_version=_attribute("version").try_cast("bigint"),
            producer=F.coalesce(_attribute("producer"), F.col("producer")),
        ),
        "part",
    )


def _attribute(name: str) -> Column:
    """Return the value of an attribute; NULL if it is absent."""
    return F.try_element_at("attributes", F.lit(name))
