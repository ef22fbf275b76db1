from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.snapshot import ForgottenError, Snapshot, maybe_snapshot, parse_at
from raceway.pipeline.storage import Storage, storage_of
from tests.pipeline.object_store import in_bucket, object_store

TABLE = "bronze.messages"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Storage]:
    with object_store() as settings:
        yield in_bucket(settings, "snapshots")


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return storage_of(str(tmp_path))
    found: Storage = request.getfixturevalue("bucket")
    return Storage(f"{found.root}/{tmp_path.name}", found.settings)


def write(storage: Storage, first: int) -> None:
    """Ten rows as another program writes them, in two parts."""
    rows = pa.table({"sequence": range(first, first + 10), "range": ["a"] * 5 + ["b"] * 5})
    options = storage.delta_options()
    write_deltalake(storage.url(TABLE), rows, mode="append", partition_by=["range"], storage_options=options)


def sequences(snapshot: Snapshot) -> list[int]:
    return sorted(snapshot.dataset().to_table().column("sequence").to_pylist())


def test_a_table_is_read_as_it_is_and_as_it_was(storage: Storage) -> None:
    assert maybe_snapshot(storage, TABLE) is None
    write(storage, 0)
    before = maybe_snapshot(storage, TABLE)
    assert before is not None
    write(storage, 10)
    now = Snapshot(storage, TABLE)
    assert (before.version, now.version) == (0, 1)
    assert sequences(before) == list(range(10)), "what was opened stays as it was"
    assert sequences(now) == list(range(20))
    assert sequences(Snapshot(storage, TABLE, 0)) == list(range(10))
    assert sequences(Snapshot(storage, TABLE, datetime.now(UTC) + timedelta(hours=1))) == list(range(20))
    assert len(now.locations()) == 4
    assert all(path.startswith(storage.url(TABLE)) for path in now.locations())
    assert sum(now.files().column("num_records").to_pylist()) == 20


def test_a_filter_opens_the_files_that_may_have_the_rows(tmp_path: Path) -> None:
    storage = storage_of(str(tmp_path))
    for first in range(0, 100, 10):
        write(storage, first)
    dataset = Snapshot(storage, TABLE).dataset()
    assert len(list(dataset.get_fragments())) == 20
    assert len(list(dataset.get_fragments(pc.field("sequence") == 42))) == 1
    assert len(list(dataset.get_fragments(pc.field("range") == "a"))) == 10


def test_a_version_that_never_was_is_an_error_in_words(tmp_path: Path) -> None:
    storage = storage_of(str(tmp_path))
    write(storage, 0)
    with pytest.raises(PipelineError, match=r"bronze\.messages: .*7"):
        Snapshot(storage, TABLE, 7)
    with pytest.raises(PipelineError, match=r"bronze\.messages: did not exist at 2020-01-01T00:00:00"):
        Snapshot(storage, TABLE, datetime(2020, 1, 1, tzinfo=UTC))


def test_an_entry_that_the_log_lost_is_told_from_a_store_that_is_away(tmp_path: Path) -> None:
    storage = storage_of(str(tmp_path))
    write(storage, 0)
    table = Snapshot(storage, TABLE)
    assert '"add"' in table.log_entry(0)
    with pytest.raises(ForgottenError, match=r"bronze\.messages: its log no longer has version 7"):
        table.log_entry(7)
    with object_store() as settings:
        far = in_bucket(settings, "away")
        write(far, 0)
        table = Snapshot(far, TABLE)
        assert '"add"' in table.log_entry(0)
    with pytest.raises(PipelineError) as failed:
        table.log_entry(0)
    assert not isinstance(failed.value, ForgottenError), "tables would be computed anew"


def test_a_store_that_is_away_is_an_error_in_one_line() -> None:
    with object_store() as settings:
        storage = in_bucket(settings, "gone")
        write(storage, 0)
    impatient = _Impatient(storage.root, storage.settings)
    with pytest.raises(PipelineError, match=r"^bronze\.messages: .*127\.0\.0\.1") as failed:
        maybe_snapshot(impatient, TABLE)
    assert "\n" not in str(failed.value)
    assert "\x1b" not in str(failed.value)


class _Impatient(Storage):
    """Does not wait minutes for the server to come back."""

    def delta_options(self) -> dict[str, str]:
        return super().delta_options() | {"max_retries": "1", "retry_timeout": "1s"}


def test_a_version_or_a_time_as_text() -> None:
    assert parse_at("7") == 7
    assert parse_at("2026-11-15T12:20") == datetime(2026, 11, 15, 12, 20, tzinfo=UTC)
    assert parse_at("2026-11-15T12:20+02:00") == datetime(2026, 11, 15, 10, 20, tzinfo=UTC)
    with pytest.raises(ConfigError, match=r"--at: is a version \(7\) or a time"):
        parse_at("yesterday")
