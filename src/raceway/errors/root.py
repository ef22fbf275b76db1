"""The root of all errors that are made on purpose."""

from __future__ import annotations

from typing import ClassVar


class RacewayError(Exception):
    """Root of all errors that Raceway raises on purpose."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False
