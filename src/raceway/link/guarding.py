"""Calls of peers and callbacks from the link: what fails in one of them must not end the link, which is that of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger("raceway.link")


def guarded(call: Callable[..., None] | None, *told: Any) -> None:
    """Call it, if it is there. Its exceptions are logged."""
    if call is None:
        return
    try:
        call(*told)
    except Exception:
        log.exception("callback of the link failed")
