"""The root of the error tree."""

from __future__ import annotations

from typing import ClassVar


class RacewayError(Exception):
    """The base class of all errors that Raceway raises on purpose.

    `code` is stable and names the error on wires and in the journal. `retriable`: the same call may succeed later
    without any change.
    """

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False
