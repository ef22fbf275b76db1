"""Tests that start Spark need Java. Where there is none they are skipped and say so; with CI=true that is a failure."""

from __future__ import annotations

import pytest

from raceway.errors import PipelineError
from raceway.pipeline.spark import check_java


def maybe_missing() -> str | None:
    """What is missing, in words."""
    try:
        check_java()
    except PipelineError as error:
        return str(error)
    return None


needs_java = pytest.mark.skipif(maybe_missing() is not None, reason=str(maybe_missing()))
