"""Messages of a person deleted: from every table, every file and the journal; what others sent stays as it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from raceway import config
from raceway.errors import ConfigError, PipelineError
from raceway.journal.files import Files
from raceway.journal.write.mark import write_trimmed
from raceway.model.envelope import MB, PUBLISH, REQUEST, RESPONSE, Batch, encode_attributes
from raceway.pipeline import forgetting, registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.forgetting import begin, by_topic, collected, complete, select
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.verify import verify
from tests.pipeline.delta_readers import by_deltalake
from tests.rigs.journal import Rig

HOUR_US = 3_600_000_000
ABOUT_ZOE = "text LIKE '%zoe%' AND topic IN ('orders', 'price')"
# Rows of each table by name, as text.
Contents: TypeAlias = dict[str, list[str]]


def append(rig: Rig, kind: bytes, topic: bytes, payload: bytes, ident: bytes, **columns: Any) -> int:
    """One message; returns its position."""
    told = {name: [value] for name, value in columns.items()}
    batch = Batch(1, kind=kind, topic=topic, wire=MB, message_id=[ident], payload=[payload], **told)
    position = rig.journal.append(batch, rig.answers.append)
    rig.commit()
    return position


def attributes(**told: str) -> bytes:
    return encode_attributes({name.replace("_", "-"): value for name, value in told.items()}) or b""


def fill(folder: Path) -> None:
    """What two persons did: orders, a dead letter, a refused one, a repeat, requests with answers; then an hour."""
    rig = Rig(folder, segment_bytes=2000, seal=False)
    for number, person in enumerate([b"zoe", b"bob", b"zoe", b"bob"]):
        append(rig, PUBLISH, b"orders", b'{"by": "%b", "n": %d}' % (person, number), b"o%d" % number, producer=person)
    letter = attributes(x_original_topic="/default/orders", x_original_topic_offset="0")
    append(rig, PUBLISH, b"orders.failed", b"copy for zoe", b"o0", correlation_id=b"o0", attributes=letter)
    refused = attributes(topic="orders", code="payload", reason="no number", wire="mb", producer="zoe")
    append(rig, PUBLISH, b"raceway.rejected", b'{"by": "zoe"}', b"r1", attributes=refused)
    named = attributes(x_dedup_id="17")
    append(rig, PUBLISH, b"orders", b"of zoe, once", b"d1", producer=b"zoe", attributes=named)
    append(rig, PUBLISH, b"orders", b"again", b"d2", producer=b"zoe", attributes=named)
    for number, person in enumerate([b"zoe", b"bob"]):
        asked = append(rig, REQUEST, b"price", b"%b asks" % person, b"q%d" % number, timeout_ms=5000, producer=person)
        told: dict[str, Any] = {"answers": asked, "correlation_id": b"q%d" % number, "producer": b"desk"}
        append(rig, RESPONSE, b"price", b"7 for %b" % person, b"q%d" % number, **told)
    asked = append(rig, REQUEST, b"price", b"bob asks", b"q2", timeout_ms=5000, producer=b"bob")
    append(rig, RESPONSE, b"price", b"zoe answers", b"q2", answers=asked, correlation_id=b"q2", producer=b"desk")
    rig.commit()
    rig.clock.now_us += HOUR_US
    append(rig, PUBLISH, b"orders", b'{"by": "bob", "n": 9}', b"o9", producer=b"bob")
    rig.commit()
    rig.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal without tables."""
    fill(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with its tables, computed once; each test has a copy."""
    folder = tmp_path_factory.mktemp("original") / "data"
    fill(folder)
    run(Lake(spark, Folders(folder)))
    return folder


@pytest.fixture(scope="module")
def keys(spark: SparkSession, original: Path) -> pa.Table:
    """Of the messages of a person."""
    return collected(select(Lake(spark, Folders(original)), ABOUT_ZOE))


@pytest.fixture(scope="module")
def contents(spark: SparkSession, original: Path, keys: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """All tables after a deletion that nothing interrupted."""
    lake = Lake(spark, Folders(shutil.copytree(original, tmp_path_factory.mktemp("deleted") / "data")))
    begin(lake, keys)
    complete(lake, settings(lake))
    return contents_of(lake)


@pytest.fixture
def filled(spark: SparkSession, original: Path, tmp_path: Path) -> Lake:
    shutil.copytree(original, tmp_path / "data")
    return Lake(spark, Folders(tmp_path / "data"))


def contents_of(lake: Lake) -> Contents:
    return {name: by_deltalake(lake.folders.table(name)) for name in lake.names()}


def run(lake: Lake, max_records: int = 9) -> None:
    Job(lake, Order(config.PipelineSettings(master="local[2]", max_records=max_records), once=True)).run()


def settings(lake: Lake) -> config.Config:
    return config.Config(journal=config.JournalSettings(folder=str(lake.folders.data)))


def delete(lake: Lake, where: str) -> forgetting.Deleted:
    begin(lake, collected(select(lake, where)))
    return complete(lake, settings(lake))


def traces_of_a_person(data: Path) -> list[str]:
    """Files of the data folder, current or not, in which something of Zoe is left."""
    found = []
    for path in sorted(data.rglob("*")):
        if path.suffix == ".parquet":
            text = str(pq.ParquetFile(path).read().to_pylist())
        else:
            text = path.read_bytes().decode("latin-1") if path.is_file() else ""
        if "zoe" in text:
            found.append(str(path.relative_to(data)))
    return found


def orders(lake: Lake, table: str = "silver.messages") -> list[int]:
    return sorted(row["sequence"] for row in lake.frame(table).select("sequence").collect())


def test_what_a_person_sent_is_nowhere_any_more_and_the_tables_are_as_if_it_never_came(filled: Lake) -> None:
    keys = select(filled, ABOUT_ZOE)
    assert [tuple(each) for each in by_topic(keys)] == [
        ("orders", 4),  # the second one with the same deduplication id does not match itself
        ("orders.failed", 1),
        ("price", 3),
        ("raceway.rejected", 1),
    ]
    begin(filled, collected(keys))
    done = complete(filled, settings(filled))
    assert (done.messages, done.blanked) == (9, 9)
    found = verify(filled, Tables(filled), full=True)
    assert found.is_good, found
    assert (found.journal.deleted, found.journal.missing) == (8, 0), "of positions from the first in the tables on"
    assert {each.table: each.differing for each in found.tables if each.differing is not None} == {
        table.name: 0 for table in DERIVED if not table.name.startswith("state.") and table.name != "bronze.rejected"
    }
    # The sender's name is a column, and stays with blank rows of the journal: it names a service.
    sums = Tables(filled).select("SELECT sum(publishes), sum(requests), sum(responses) FROM gold.topic_stats")
    assert [column[0].as_py() for column in sums.columns] == [3, 2, 1]
    statuses = Tables(filled).select("SELECT message_id, status FROM silver.exchanges ORDER BY 1").to_pylist()
    assert statuses == [{"message_id": "q1", "status": "answered"}, {"message_id": "q2", "status": "timeout"}]
    noted = filled.frame(registry.DELETIONS.name).collect()
    assert [row["messages"] for row in noted] == [9]
    for path in filled.folders.data.glob("segment-*.parquet"):
        rows = pq.read_table(path).to_pylist()
        assert not any(b"zoe" in row["payload"] for row in rows)
    left = [path for path in traces_of_a_person(filled.folders.data) if not path.startswith("segment-")]
    assert left == []
    assert not filled.folders.deleting.exists()
    run(filled)
    assert verify(filled, Tables(filled)).is_good
    # Computed anew from the journal, what was deleted does not come back.
    before = orders(filled, MESSAGES)
    for name in registry.every():
        filled.remove(name)
    run(filled)
    assert orders(filled, MESSAGES) == before


def test_rows_that_no_table_has_yet_and_rows_of_a_table_alone_are_deleted(spark: SparkSession, folder: Path) -> None:
    lake = Lake(spark, Folders(folder))
    Job(lake, Order(config.PipelineSettings(master="local[2]"), once=True, tables=())).run()
    end = lake.end()
    rig = Rig(folder, segment_bytes=2000, seal=False)
    append(rig, PUBLISH, b"orders", b"later, of zoe", b"l1")
    rig.commit()
    rig.close()
    assert delete(lake, f"sequence = {end}").blanked == 1
    run(lake)
    assert end not in orders(lake, MESSAGES)
    assert lake.end() > end
    # Removed from the journal by retention, the tables alone have them.
    oldest, second = sorted({path.stem for path in folder.glob("segment-*")})[:2]
    for path in folder.glob(f"{oldest}.*"):
        path.unlink()
    first = int(second.removeprefix("segment-"))
    write_trimmed(Files(), folder, first)
    assert first > 0
    done = delete(lake, "sequence = 0")
    letter = 4
    assert done.messages == 2, "the message, which only the tables have, and its dead letter"
    assert done.blanked == (letter >= first)
    assert 0 not in orders(lake, MESSAGES)
    assert verify(lake, Tables(lake)).is_good


STAGES = ("_recompute", "_remove", "keeping.vacuum", "blank_folder", "_note")


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_deletion_is_completed_and_nothing_runs_before(
    filled: Lake, keys: pa.Table, contents: Contents, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(filled, keys)
    target, _, name = stage.rpartition(".")
    real = getattr(getattr(forgetting, target) if target else forgetting, name)

    def interrupted(*args: Any, **named: Any) -> Any:
        real(*args, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"raceway.pipeline.forgetting.{stage}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            complete(filled, settings(filled))
    again = Lake(filled.spark, filled.folders)
    with pytest.raises(
        PipelineError, match="was interrupted: stop the bus, then `raceway pipeline delete` completes it"
    ):
        run(again)
    assert complete(again, settings(again)).messages == 9
    found = verify(again, Tables(again))
    assert found.is_good, found
    assert contents_of(again) == contents
    assert [row["messages"] for row in again.frame(registry.DELETIONS.name).collect()] == [9]
    assert [path for path in traces_of_a_person(again.folders.data) if not path.startswith("segment-")] == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("person = 'zoe'", "there is no column person; known: source, partition, sequence, "),
        ("topic =", "'topic =' cannot be evaluated: "),
        ("length(text)", "'length(text)' is not a condition: it is neither true nor false"),
        ("no_such(text)", "'no_such(text)' cannot be evaluated: "),
        ("count(*) > 3", "'count(*) > 3' cannot be evaluated: "),
    ],
)
def test_what_is_no_condition_is_refused_in_one_sentence(filled: Lake, where: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        select(filled, where)
    assert str(caught.value).startswith(f"--where: {said}")
    assert "\n" not in str(caught.value)
    assert collected(select(filled, "topic = 'nothing'")).num_rows == 0
