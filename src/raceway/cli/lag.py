"""`raceway lag`: which subscriptions and queues are behind, over the console port."""

from __future__ import annotations

from typing import Annotated, Any

from raceway.cli import options


def lag(
    cli: options.OverConsole,
    contains: Annotated[str, "--contains TEXT", "Only those whose topic or name contains this text."] = "",
    limit: Annotated[int, "--limit N", "Number of rows, the largest lag first.", {"min": 1, "max": 1000}] = 50,
) -> None:
    """List all subscriptions and queues by lag, blocked ones first.

    The lag of a subscription counts messages that are not acknowledged, that of a queue those that wait.
    """
    page = cli.ask("/api/lag", query={"contains": contains, "limit": limit})
    columns = {
        ">lag": "lag", "topic": "topic", "name": "name", "kind": "kind", ">in flight": "in_flight",
        ">consumers": "consumers", "state": _state,
    }  # fmt: skip
    cli.show(page["rows"], columns, "Subscriptions and queues")
    if page["total"] > len(page["rows"]):
        cli.note(f"the first {len(page['rows']):,} of {page['total']:,}; --limit shows more")


def _state(row: dict[str, Any]) -> str:
    if row["blocked_at"] is not None:
        return f"blocked at offset {row['blocked_at']}"
    return "no consumer" if row["lag"] and not row["consumers"] else ""
