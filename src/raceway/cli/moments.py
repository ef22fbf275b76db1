"""Times and places in topics, as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from raceway.cli import output

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "s": "seconds"}


def moment_us(text: str) -> int:
    """Parse a time in ISO format (local unless it has an offset) or an age. Ends the command if it is neither."""
    try:
        if text[-1:] in _UNITS and text[:-1].isdigit():
            moment = datetime.now(UTC) - timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        output.misuse(f"{text} is not a time: use 2026-01-31T08:00, or 90m, 12h, 7d")
    return int(moment.timestamp() * 1_000_000)


def place_of(text: str) -> str:
    """Return a place in a topic as the bus takes it: `first`, `end`, an offset for each partition, or a time in UTC."""
    if text in ("last", "end"):
        return "end"
    if text == "first" or (text.isascii() and text.replace(",", "").isdigit()):
        return text
    return datetime.fromtimestamp(moment_us(text) / 1e6, UTC).isoformat()
