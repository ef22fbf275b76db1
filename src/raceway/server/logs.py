"""Log output on standard error: text on a terminal, otherwise JSON lines.

Records of libraries (the standard `logging` module) get the same format.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

from raceway import config
from raceway.model.text import shortened

# Limit of a quoted value: topics and headers are untrusted and may be megabytes long.
MAX_VALUE = 2000


def configure(log: config.Log, stream: TextIO | None = None) -> None:
    """Set up logging for this process. A repeat replaces the earlier configuration."""
    stream = stream or sys.stderr
    as_text = log.format == "text" or (log.format == "auto" and stream.isatty())
    shape: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        make_harmless,
    ]
    renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty()) if as_text else structlog.processors.JSONRenderer()
    level = logging.getLevelNamesMapping()[log.level.upper()]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *shape, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shape,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    # picows logs every WebSocket protocol error of a peer as an error; untrusted peers must not fill the log.
    logging.getLogger("picows").setLevel(logging.CRITICAL)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)


def make_harmless(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Escape control characters in values and truncate long ones. Tracebacks keep their lines."""
    for key, value in event.items():
        if isinstance(value, (str, bytes)) and key != "exception":
            event[key] = shortened(value, MAX_VALUE)
    return event
