"""Which journal a folder holds, and how that is found again."""

from __future__ import annotations

import json
from pathlib import Path

from raceway.journal.files import Files
from raceway.journal.identity import maybe_find_marker, maybe_read_identity, new_identity, write_identity
from tests.journal.test_format import MARKER, PINNED

FILES = Files()


def test_an_identity_is_readable_json_and_comes_back(tmp_path: Path) -> None:
    identity = new_identity()
    write_identity(FILES, tmp_path, identity)
    assert maybe_read_identity(FILES, tmp_path) == identity
    shown = json.loads((tmp_path / "identity").read_text())
    assert bytes.fromhex(shown["marker"]) == identity.marker_bytes
    assert (shown["format"], shown["source"]) == (1, identity.source)


def test_two_journals_have_different_markers_and_sources() -> None:
    one, two = new_identity(), new_identity()
    assert one.marker != two.marker
    assert one.source != two.source


def test_any_flipped_bit_is_mended(tmp_path: Path) -> None:
    identity = new_identity()
    write_identity(FILES, tmp_path, identity)
    data = (tmp_path / "identity").read_bytes()
    for bit in range(0, 8 * len(data), 7):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "identity").write_bytes(damaged)
        assert maybe_read_identity(FILES, tmp_path) == identity


def test_worse_damage_is_none(tmp_path: Path) -> None:
    assert maybe_read_identity(FILES, tmp_path) is None
    identity = new_identity()
    for content in (b"", b"{}", bytes(100), b'{"format":1,"marker":"00","source":"x","crc":0}'):
        (tmp_path / "identity").write_bytes(content)
        assert maybe_read_identity(FILES, tmp_path) is None, content
    write_identity(FILES, tmp_path, identity)
    text = (tmp_path / "identity").read_text().replace(identity.source, identity.source[::-1])
    (tmp_path / "identity").write_text(text)
    assert maybe_read_identity(FILES, tmp_path) is None


def test_the_marker_is_found_in_the_first_sound_segment(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("empty", "zeros", "good")]
    for path, content in zip(paths, (b"", bytes(1000), PINNED), strict=True):
        path.write_bytes(content)
    assert maybe_find_marker(FILES, paths) == MARKER
    assert maybe_find_marker(FILES, paths[:2]) is None
