from __future__ import annotations

from pathlib import Path

import pytest

from raceway.errors import PipelineError
from raceway.pipeline import checkpoint

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"0":%d}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What Spark leaves after three batches."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text('{"id":"17b3"}')
    for number in range(3):
        (tmp_path / "offsets" / str(number)).write_text(OFFSETS % (1000 * (number + 1)))
        (tmp_path / "offsets" / f".{number}.crc").write_bytes(b"crc")
        (tmp_path / "commits" / str(number)).write_text(COMMIT)
    return tmp_path


def test_a_good_checkpoint_and_none_at_all_are_fine(folder: Path, tmp_path: Path) -> None:
    checkpoint.check(folder)
    checkpoint.check(tmp_path / "none")
    assert checkpoint.maybe_position(folder / "offsets" / "2") == 3000


def test_a_missing_commit_is_no_damage(folder: Path) -> None:
    (folder / "commits" / "2").unlink()
    checkpoint.check(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("offsets/2", ""),
        ("offsets/2", 'v1\n{"batchWater'),
        ("offsets/2", 'v1\n{"batchWatermarkMs":0}\n{"0":12'),
        ("offsets/2", 'v2\n{}\n{"0":12}'),
        ("offsets/1", ""),
        ("offsets/2", None),
        ("commits/2", ""),
        ("commits/2", "v1\n"),
        ("metadata", None),
        ("metadata", ""),
    ],
)
def test_what_spark_would_stumble_over_is_named_with_the_way_out(folder: Path, file: str, content: str | None) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(PipelineError, match="raceway pipeline reset checkpoint") as failure:
        checkpoint.check(folder)
    assert str(folder / file) in str(failure.value)
