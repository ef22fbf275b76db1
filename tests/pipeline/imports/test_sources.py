"""Captures by every name, packed and elsewhere: the same rows as of the plain file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest

from raceway.errors import ConfigError, PipelineError
from raceway.journal.archive.store import Store
from raceway.pipeline.imports.sources import capture_sources, plain_file
from raceway.wires.captures.capture import capture_of
from tests.pipeline.captures import verdicts
from tests.pipeline.object_store import BUCKET, object_store
from tests.rigs.vectors.mb import frame

CONTENT = b"".join([*(frame(b"publish:a.b:1.0.0\n%d" % number) for number in range(500)), frame(b"nonsense")])
LINES = b"".join(b"publish:a.b:1.0.0\\n%d\n" % number for number in range(500))
MODIFIED_S = 1_700_000_000


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, "zstd", asbytes=True))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, (MODIFIED_S, MODIFIED_S))
    return path


@pytest.mark.parametrize("content", [CONTENT, LINES], ids=["frames", "lines"])
def test_packed_captures_have_the_rows_and_the_digest_of_the_plain_file(tmp_path: Path, content: bytes) -> None:
    plain = capture_of("mb", write(tmp_path / "plain.mb", content))
    expected = verdicts(plain)
    assert len(expected) >= 500
    half = len(content) // 2
    packed = {
        "one.mb.gz": gzip.compress(content),
        "members.mb.GZ": gzip.compress(content[:half]) + gzip.compress(content[half:]),
        "one.mb.zst": zstd(content),
    }
    for name, bytes_of in packed.items():
        path = write(tmp_path / name, bytes_of)
        with plain_file(str(path), tmp_path / "staging") as file:
            found = capture_of("mb", file, str(path))
            assert verdicts(found) == expected
        assert (found.path, found.sha256, found.time_us) == (path, plain.sha256, plain.time_us)
        assert list((tmp_path / "staging").iterdir()) == []


def test_a_plain_file_is_read_where_it_lies(tmp_path: Path) -> None:
    path = write(tmp_path / "plain.mb", CONTENT)
    with plain_file(str(path), tmp_path / "staging") as file:
        assert file == path
    assert path.exists()
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize("name", ["cut.gz", "cut.zst", "other.gz", "other.zst"])
def test_a_damaged_packed_file_is_named_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    whole = gzip.compress(CONTENT) if name.endswith("gz") else zstd(CONTENT)
    path = write(tmp_path / name, whole[: len(whole) // 2] if name.startswith("cut") else b"not packed at all")
    with pytest.raises(PipelineError, match=rf"{name} cannot be read: "), plain_file(str(path), tmp_path / "staging"):
        pass
    assert list((tmp_path / "staging").iterdir()) == []


def test_an_object_store_by_object_folder_and_pattern(tmp_path: Path) -> None:
    with object_store() as storage:
        store = Store(f"s3://{BUCKET}/captures", storage)
        for name, content in {"a.mb": CONTENT, "b.mb.gz": gzip.compress(CONTENT), "c.mb.zst": zstd(CONTENT)}.items():
            store.put(name, iter([content]))
        url = f"s3a://{BUCKET}/captures"
        everything = [f"{url}/{name}" for name in ("a.mb", "b.mb.gz", "c.mb.zst")]
        assert capture_sources([url], storage) == everything
        assert capture_sources([f"{url}/"], storage) == everything
        assert capture_sources([f"{url}/*.mb.*", f"{url}/a.mb", everything[1]], storage) == [
            *everything[1:], everything[0],
        ]  # fmt: skip
        with pytest.raises(ConfigError, match="there is no such object or folder"):
            capture_sources([f"{url}/nothing.mb"], storage)
        expected = verdicts(capture_of("mb", write(tmp_path / "plain.mb", CONTENT)))
        for source in everything:
            with plain_file(source, tmp_path / "staging", storage) as file:
                found = capture_of("mb", file, source)
                assert found.path == source
                rows = verdicts(found)
            # Times apart: these messages have none of their own, so that of the copy counts.
            assert [(row.row and row.row["payload"], row[1:]) for row in rows] == [
                (row.row and row.row["payload"], row[1:]) for row in expected
            ]
    with pytest.raises(PipelineError, match="cannot be listed"):
        capture_sources([url], storage)


def test_files_folders_and_patterns_each_once(tmp_path: Path) -> None:
    for name in ("one.mb", "two.mb.gz"):
        write(tmp_path / name, b"")
    names = [str(tmp_path), str(tmp_path / "*.gz"), str(tmp_path / "one.mb")]
    assert capture_sources(names) == [str(tmp_path / "one.mb"), str(tmp_path / "two.mb.gz")]
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        capture_sources([str(tmp_path / "none")])
