"""Report of rows that were lost before a queue or subscription delivered them."""

from __future__ import annotations

import structlog

log = structlog.get_logger("raceway.broker")


def tell_gap(counts: dict[str, int], topic: str, reader: str, first: int, following: int) -> None:
    """Count and log that `reader` skips offsets from `first` to before `following`: lost or removed by retention."""
    counts["bus.subscription_skipped"] += following - first
    facts = {"topic": topic, "reader": reader, "first": first, "last": following - 1, "rows": following - first}
    log.error("undelivered rows lost", **facts)
