from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: that of a socket has at most 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="rw"))
    yield made
    shutil.rmtree(made)
