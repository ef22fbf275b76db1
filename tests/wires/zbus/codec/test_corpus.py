"""What a fuzzer found worth keeping, looked at again: see `tests/fuzz/zbus_receiver.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.zbus_receiver import check
from tests.rigs.vectors.zbus import corpus


@pytest.mark.parametrize("file", corpus(), ids=lambda file: file.name)
def test_kept_input_is_read_alike_in_all_ways(file: Path) -> None:
    check(file.read_bytes())


def test_kept_inputs_are_small_and_not_few() -> None:
    assert len(corpus()) >= 24
    assert max(file.stat().st_size for file in corpus()) < 2048
