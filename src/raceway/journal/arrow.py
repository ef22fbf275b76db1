"""Arrow without pandas, for processes that only write and read columns.

Arrow imports pandas, if installed, when it makes its first array: some 40 MiB and 0.3 s that neither the bus nor the
sealing child needs. Code that imports pandas itself later still gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    """Import hook that reports pandas as not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # ModuleNotFoundError, not None: None would only pass the question on to the next finder.
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden from Arrow while it starts", name=fullname)
        return None


def leave_pandas_out() -> None:
    """Make Arrow look for pandas now, while it is hidden. No-op if pandas is already loaded."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        # Arrow looks for pandas once, at the first conversion from Python objects, and remembers the result.
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
