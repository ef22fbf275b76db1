"""Logger of the journal. Structlog takes a tenth of a second to import; most processes that read never log."""

from __future__ import annotations

from typing import Any


def log() -> Any:
    """Return the logger of this package, importing structlog on first use."""
    import structlog

    return structlog.get_logger("raceway.journal")
