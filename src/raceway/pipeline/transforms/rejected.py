"""bronze.rejected: messages that a schema rejected.

The bus stores them as rows of the topic `raceway.rejected`, with the rejected payload and the rest in attributes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import BRONZE_DDL, BRONZE_KEY, MESSAGES, REJECTED_MESSAGES, Derived, Inputs, row
from raceway.wires.captures.columns import JOURNAL, REJECTED_TOPIC


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows that the bus refused; those of captures are written when they are imported."""
    refused = (F.col("topic") == REJECTED_TOPIC) & (F.col("source") == JOURNAL)
    return (
        inputs[MESSAGES]
        .where(refused)
        .select(
            *row(
                BRONZE_DDL[REJECTED_MESSAGES],
                **{name: _attribute(name) for name in ("topic", "code", "reason", "path", "subject")},
                wire=F.coalesce(_attribute("wire"), F.col("wire")),
                schema_version=_attribute("version").try_cast("bigint"),
                producer=F.coalesce(_attribute("producer"), F.col("producer")),
            )
        )
    )


def _attribute(name: str) -> Column:
    """Return the value of an attribute; NULL if it is absent."""
    return F.try_element_at("attributes", F.lit(name))


TABLE = Derived(
    name=REJECTED_MESSAGES, ddl=BRONZE_DDL[REJECTED_MESSAGES], key=BRONZE_KEY, inputs=(MESSAGES,), transform=transform
)
