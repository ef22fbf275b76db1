from __future__ import annotations

import shutil
from pathlib import Path

from raceway.journal.kafka.cache import FOLDER, BlockCache


def test_blocks_come_back_in_part_and_whole(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 1000)
    cache.keep("s", 100, b"0123456789")
    assert cache.maybe_read("s", 100, 0, 10) == b"0123456789"
    assert cache.maybe_read("s", 100, 4, 100) == b"456789"
    assert cache.maybe_read("s", 0, 0, 10) is None
    assert cache.maybe_read("other", 100, 0, 10) is None
    cache.close()


def test_the_segment_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 250)
    cache.keep("a", 0, bytes(100))
    cache.keep("b", 0, bytes(100))
    assert cache.maybe_read("a", 0, 0, 1) == b"\0"
    cache.keep("c", 0, bytes(100))
    assert cache.maybe_read("b", 0, 0, 1) is None
    assert cache.maybe_read("a", 0, 0, 1) == b"\0"
    assert cache.size == 200
    cache.drop("a")
    assert cache.size == 100
    cache.close()


def test_the_folder_may_be_deleted_at_any_time(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 1000)
    cache.keep("a", 0, b"before")
    shutil.rmtree(tmp_path / FOLDER)
    assert cache.maybe_read("a", 0, 0, 6) == b"before"
    cache.keep("b", 0, b"behind")
    assert cache.maybe_read("b", 0, 0, 6) == b"behind"
    cache.close()
    assert not (tmp_path / FOLDER).exists()


def test_without_a_disk_the_newest_blocks_are_in_memory(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 1000)
    (tmp_path / FOLDER).write_bytes(b"no folder")
    cache.keep("a", 0, b"x" * 10)
    assert cache.maybe_read("a", 0, 2, 3) == b"xxx"
    cache.keep("a", 10, bytes(64 * 1024 * 1024))
    assert cache.maybe_read("a", 0, 2, 3) is None
    cache.close()
