"""Rows that a queue or a subscription would have handed out and that are gone: told, never only stepped over."""

from __future__ import annotations

import structlog

log = structlog.get_logger("raceway.broker")


def tell_gap(counts: dict[str, int], topic: str, reader: str, first: int, following: int) -> None:
    """The offsets from `first` until `following` are lost, or retention removed them; `reader` goes on behind them."""
    counts["bus.subscription_skipped"] += following - first
    facts = {"topic": topic, "reader": reader, "first": first, "last": following - 1, "rows": following - first}
    log.error("rows are gone that a reader had not come to", **facts)
