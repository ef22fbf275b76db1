"""Report of rows that were lost before a queue or subscription delivered them."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

log = structlog.get_logger("raceway.broker")


def tell_gap(counts: dict[str, int], topic: str, reader: str, offsets: Sequence[int]) -> None:
    """Count and log that `reader` skips these offsets, in ascending order: lost or removed by retention."""
    counts["bus.subscription_skipped"] += len(offsets)
    facts = {"topic": topic, "reader": reader, "first": offsets[0], "last": offsets[-1], "rows": len(offsets)}
    log.error("undelivered rows lost", **facts)
