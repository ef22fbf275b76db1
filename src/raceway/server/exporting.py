"""Export of traces to a collector while the bus runs, if configured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import structlog

from raceway import config
from raceway.broker.broker import Broker
from raceway.errors import ConfigError
from raceway.net.outgoing.allowed import AllowList, Target

log = structlog.get_logger("raceway")


@contextlib.asynccontextmanager
async def exporting(settings: config.Telemetry, broker: Broker, allowed: AllowList) -> AsyncIterator[None]:
    """Export traces during the context. OpenTelemetry is imported only if configured. Raises ConfigError."""
    if not settings.enabled:
        yield
        return
    _check(settings.endpoint, allowed)
    try:
        from raceway.telemetry.exporter import Exporter
    except ImportError as error:
        raise ConfigError("telemetry.enabled", f"{error}; install raceway[otel]") from error
    exporter = Exporter(broker.journal, settings, broker.set_state, broker.clock_us)
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
