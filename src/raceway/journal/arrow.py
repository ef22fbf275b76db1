"""Arrow without pandas, for processes that only write and read columns.

Arrow imports pandas, where it is installed, at the first array it makes: some 40 MiB and 0.3 s that neither the bus nor
the child that seals segments has a use for. What asks for pandas by itself later still gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("left out", name=fullname)
        return None


def leave_pandas_out() -> None:
    """Make Arrow's one look for pandas now, while it cannot be found. No effect where pandas is loaded already."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
