"""The journal's voice. Structlog takes a tenth of a second to import; most processes that read have nothing to say."""

from __future__ import annotations

from typing import Any


def log() -> Any:
    """The logger of this package."""
    import structlog

    return structlog.get_logger("raceway.journal")
