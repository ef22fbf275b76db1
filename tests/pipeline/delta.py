"""Whether the tests' Spark session knows Delta Lake: its jar comes from Maven Central, which some cannot reach."""

from __future__ import annotations

import pytest

# Why it does not; filled when the session is started.
missing: list[str] = []


def skip_without_delta() -> None:
    """To be called when there is a session."""
    if missing:
        pytest.skip(missing[0])
