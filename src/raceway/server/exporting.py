"""Export of traces to a collector while the bus runs, if configured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import structlog

from raceway import config
from raceway.errors import ConfigError
from raceway.journal.contract import Journal
from raceway.net.outgoing.allowed import AllowList, Target

log = structlog.get_logger("raceway")


@contextlib.asynccontextmanager
async def exporting(
    settings: config.Telemetry,
    journal: Journal,
    set_state: Callable[[str, str, Any | None], None],
    clock_us: Callable[[], int],
    allowed: AllowList,
) -> AsyncIterator[None]:
    """Export traces during the context. OpenTelemetry is imported only if configured. Raises ConfigError."""
    if not settings.enabled:
        yield
        return
    _check(settings.endpoint, allowed)
    try:
        from raceway.telemetry.exporter import Exporter
    except ImportError as error:
        raise ConfigError("telemetry.enabled", f"{error}; install raceway[otel]") from error
    exporter = Exporter(journal, settings, set_state, clock_us)
    task = asyncio.create_task(exporter.run())
    task.add_done_callback(_note_end)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        exporter.close()


def _check(endpoint: str, allowed: AllowList) -> None:
    try:
        parts = urlsplit(endpoint)
        target = Target(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    except ValueError as error:
        raise ConfigError("telemetry.endpoint", str(error)) from error
    if parts.scheme not in ("http", "https") or not target.host:
        raise ConfigError("telemetry.endpoint", f"{endpoint} is not an http:// URL")
    if not allowed.allows(target):
        raise ConfigError("telemetry.endpoint", f"{target} is not in dial.allow")


def _note_end(task: asyncio.Task[None]) -> None:
    """Log the end of the exporter: it runs until cancelled, so an earlier end is a bug."""
    if not task.cancelled() and task.exception() is not None:
        log.error("trace exporter stopped", exc_info=task.exception())
