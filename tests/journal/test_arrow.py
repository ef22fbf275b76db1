"""Arrow is told once, in a process of its own, because it looks for pandas only once."""

from __future__ import annotations

import subprocess
import sys

ARRAYS = """
import sys
import pyarrow as pa
from raceway.journal.arrow import leave_pandas_out
leave_pandas_out()
pa.array([b"x"], pa.binary())
pa.table({"a": [1]})
print("pandas" in sys.modules)
print(pa.table({"a": [1, 2]}).to_pandas()["a"].sum())
"""


def test_arrays_are_made_without_pandas_and_who_asks_for_it_still_gets_it() -> None:
    run = subprocess.run([sys.executable, "-c", ARRAYS], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == ["False", "3"]
