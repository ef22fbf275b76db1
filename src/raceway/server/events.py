"""Waiting for one of several events."""

from __future__ import annotations

import asyncio


async def either(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Return when one of the events is set, or the time is over."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
