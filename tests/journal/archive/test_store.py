"""Objects in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raceway.errors import ArchiveError, ConfigError
from raceway.journal.archive.store import PIECE, digest, is_url, plain_url
from tests.rigs.archives import Place


def test_objects_are_written_listed_read_and_removed(place: Place) -> None:
    store = place.store
    assert store.sizes() == {}
    content = bytes(range(256)) * (PIECE // 256) + b"tail"
    store.put("large", iter([content[:1000], content[1000:]]))
    store.put("small", iter([b"x"]))
    assert store.sizes() == {"large": len(content), "small": 1}
    assert b"".join(store.pieces("large")) == content
    assert store.digest("large") == digest(iter([content]))
    with store.open("large") as file:
        assert store.read(file, "large", 10, PIECE - 5) == content[PIECE - 5 : PIECE + 5][:10]
        assert store.read(file, "large", 10, len(content)) == b""
    store.put("small", iter([b"other"]))
    assert store.maybe_get("small") == b"other"
    store.remove("small")
    assert store.maybe_get("small") is None
    with pytest.raises(ArchiveError, match="small is missing there"):
        list(store.pieces("small"))
    with pytest.raises(FileNotFoundError):
        store.open("small")


def test_an_upload_that_fails_half_way_leaves_no_object(place: Place) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(100)
        raise OSError("the local disk failed")

    with pytest.raises(ArchiveError, match="the local disk failed"):
        place.store.put("half", broken())
    assert place.store.sizes() == {}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3a://bucket/path/", "s3://bucket/path"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("/var/archive/", "/var/archive"),
        ("file:///var/archive", "file:///var/archive"),
        ("archive", str(Path.cwd() / "archive")),
    ],
)
def test_a_url_has_one_spelling(text: str, url: str) -> None:
    assert plain_url(text) == url
    assert is_url(url) is not url.startswith(("/", "file:"))


@pytest.mark.parametrize("text", ["s3://key:secret@bucket/x", "s3://", "s3://[bucket"])
def test_a_url_with_keys_or_without_a_bucket_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"journal\.archive") as caught:
        plain_url(text)
    assert "secret@" not in str(caught.value)
