"""`format("raceway")` as a user meets it, on a journal that is being written."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import raceway.pipeline
from raceway.journal.files import Files
from raceway.journal.read.catalogue import segment_path
from raceway.journal.write.mark import write_trimmed
from raceway.pipeline.failures import said_by_us
from raceway.pipeline.source import JournalSource
from tests.pipeline.drivers import environment
from tests.pipeline.java import needs_java
from tests.pipeline.journals import TOPICS, add, expected_positions, journal, seal
from tests.pipeline.object_store import BUCKET, object_store
from tests.rigs.archives import Place, archive_all, fill, opened
from tests.rigs.ledger import Ledger, Publisher, Sink
from tests.rigs.server import running_server, wait_until

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def load(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.read.format("raceway").options(**options).load(str(folder))


def positions(rows: DataFrame) -> list[int]:
    return sorted(row[0] for row in rows.select("sequence").collect())


def refusal(rows: DataFrame) -> str:
    """What we say, out of what Spark says."""
    with pytest.raises(PySparkException) as failure:
        rows.collect()
    text = said_by_us(str(failure.value))
    assert text is not None, str(failure.value)
    return text


def test_every_row_that_is_no_control_row_comes_once(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 5000, seal=True, seal_keep_s=0.0) as rig:
        seal(rig)
        rows = spark.read.format("raceway").option("path", str(rig.folder)).load()
        assert positions(rows) == expected_positions(rig.folder)
        controls = load(spark, rig.folder, includeControl="true").where("kind = 'control'")
        assert controls.count() > 10
        few = load(
            spark, rig.folder, topics="orders.+,nothing", wires="mb", startingPosition="100", endingPosition="900"
        )
        assert {row.topic for row in few.collect()} == set(TOPICS[:2])
        assert positions(few) == positions(rows.where("topic like 'orders.%' and sequence >= 100 and sequence < 900"))
        assert load(spark, rig.folder, startingTimestamp="2100-01-01").count() == 0


def test_columns_can_be_left_out_and_several_tasks_read(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 9000) as rig:
        reader = spark.read.format("raceway").schema("topic string, sequence bigint").option("numPartitions", "3")
        rows = reader.load(str(rig.folder))
        assert rows.columns == ["topic", "sequence"]
        assert rows.select(F.spark_partition_id()).distinct().count() == 2, "pieces have 4,096 rows at least"
        wrong = spark.read.format("raceway").schema("topic bigint").load(str(rig.folder))
        assert "no column topic of type bigint" in refusal(wrong)


def test_filters_are_pushed_down_where_both_sides_agree(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 9000) as rig:
        every = expected_positions(rig.folder)
        rows = load(spark, rig.folder)
        middle = rows.where("sequence = 4500").select("time_us", "time").first()
        assert middle is not None
        conditions = [
            F.col("topic") == TOPICS[0],
            F.col("topic").isin(TOPICS[1], "nothing") & (F.col("wire") == "mb"),
            F.col("wire").isin("zbus", "seneca"),
            (F.col("time_us") >= middle.time_us) & (F.col("time_us") <= middle.time_us),
            (F.col("time") > middle.time) & (F.col("topic") == TOPICS[2]),
            F.col("time") == middle.time,
            F.col("time") < middle.time,
            (F.col("sequence") > 4000) & (F.col("sequence") <= 4010),
            (F.col("sequence") == 17) | (F.col("topic") == "nothing"),
        ]
        unpushed = [positions(rows.where(condition)) for condition in conditions]
        spark.conf.set(PUSHDOWN, "true")
        try:
            pushed = [positions(load(spark, rig.folder, pushFilters="true").where(c)) for c in conditions]
            few = load(spark, rig.folder, pushFilters="true").where("sequence between 4000 and 4010")
            assert few.rdd.getNumPartitions() < rows.rdd.getNumPartitions()
            # Spark hands the filters of an earlier query to a later one on the same frame: not without `pushFilters`.
            reused = load(spark, rig.folder)
            assert positions(reused.where("sequence = 17")) == [17]
            assert positions(reused) == every
        finally:
            spark.conf.set(PUSHDOWN, "false")
        assert pushed == unpushed
        assert unpushed[3] == unpushed[5]


def test_spark_hands_pushed_filters_to_the_next_query_which_is_why_they_are_pushed_only_when_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of Spark, not of ours: the day this fails, filters can be pushed always."""
    with journal(tmp_path / "data", 9000) as rig:
        every = expected_positions(rig.folder)
        spark.conf.set(PUSHDOWN, "true")
        try:
            kept = load(spark, rig.folder, pushFilters="true")
            assert positions(kept.where("sequence = 17")) == [17]
            assert positions(kept) != every
            assert positions(load(spark, rig.folder, pushFilters="true")) == every, "a new frame knows nothing of it"
        finally:
            spark.conf.set(PUSHDOWN, "false")


def test_a_stream_follows_a_bus_with_limits_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A real bus under load, segments sealed meanwhile; the same positions in the stream as in the journal."""
    settings = {
        "RACEWAY_JOURNAL__SEGMENT_BYTES": 100_000,
        "RACEWAY_JOURNAL__UPKEEP_S": 0.05,
        "RACEWAY_JOURNAL__SEAL_KEEP_S": 0,
    }
    batches: dict[int, list[int]] = {}
    ledger = Ledger()
    with running_server(tmp_path / "data", **settings) as server, Sink(server.port("tcp"), "orders.#"):
        publisher = Publisher(ledger.new_stream(), server.port("tcp"), ["orders.created", "orders.paid"], 1, 200)
        wait_until(lambda: ledger.acknowledged > 1000)
        rows = spark.readStream.format("raceway").option("maxRecordsPerTrigger", "20000").load(str(server.data))
        query = (
            rows.writeStream.foreachBatch(lambda frame, number: batches.update({number: positions(frame)}))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        wait_until(lambda: len(batches) > 1, 60, "two batches while the bus is busy")
        publisher.finish()
        server.stop()  # everything is committed
        every = expected_positions(server.data)
        wait_until(lambda: sum(map(len, batches.values())) >= len(every), 60, "all rows in the stream")
        query.stop()
    found = [position for number in sorted(batches) for position in batches[number]]
    assert found == every
    assert max(map(len, batches.values())) <= 20_000


def test_available_now_takes_what_is_there_in_batches_and_goes_on_later(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    with journal(tmp_path / "data", 2000) as rig:

        def follow(**options: str) -> list[list[int]]:
            seen.clear()
            rows = spark.readStream.format("raceway").options(**options).load(str(rig.folder))
            query = (
                rows.writeStream.foreachBatch(lambda frame, _: seen.append(positions(frame)))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return [batch for batch in seen if batch]

        first = follow(maxBytesPerTrigger="40000", startingPosition="500")
        assert len(first) > 2
        end = first[-1][-1]
        assert [p for batch in first for p in batch] == [p for p in expected_positions(rig.folder) if p >= 500]
        assert follow(maxBytesPerTrigger="40000") == []
        add(rig, 300, 2000)
        assert [p for batch in follow() for p in batch] == [p for p in expected_positions(rig.folder) if p > end]


def test_what_is_gone_is_said_and_passed_over_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 5000) as rig:
        firsts = sorted(int(path.stem.split("-")[1]) for path in rig.folder.glob("*.blocks"))
        every = expected_positions(rig.folder)
    write_trimmed(Files(), tmp_path / "data", firsts[1])  # as retention does before it removes anything
    segment_path(tmp_path / "data", firsts[0]).unlink()
    segment_path(tmp_path / "data", firsts[2]).unlink()
    assert refusal(load(spark, tmp_path / "data", startingPosition="0")) == (
        f"position 0 was removed by retention; the first one left is {firsts[1]}; "
        "set the option failOnDataLoss to false to skip them"
    )
    text = refusal(load(spark, tmp_path / "data"))
    assert text.startswith(f"positions {firsts[2]} to {firsts[3] - 1} are missing from the journal")
    left = load(spark, tmp_path / "data", startingPosition="0", failOnDataLoss="false")
    gone = {*range(firsts[0], firsts[1]), *range(firsts[2], firsts[3])}
    assert positions(left) == [p for p in every if p not in gone]


def test_a_folder_without_journal_and_a_wrong_option_are_named(spark: SparkSession, tmp_path: Path) -> None:
    assert refusal(load(spark, tmp_path / "nothing")).endswith("is not a data folder")
    with pytest.raises(PySparkException, match="startingPosition: must be earliest, latest or a position, not 'x'"):
        load(spark, tmp_path, startingPosition="x").collect()


def test_an_unknown_option_is_refused_in_every_way_to_ask(spark: SparkSession, tmp_path: Path) -> None:
    """It would be passed over, and rows of all topics would come."""
    meant = "topic: unknown option; did you mean topics?"
    with journal(tmp_path / "data", 300) as rig:
        path = str(rig.folder)

        def batch() -> DataFrame:
            return load(spark, rig.folder, topic="orders.#")

        def stream() -> DataFrame:
            return spark.readStream.format("raceway").option("path", path).option("topic", "orders.#").load()

        def view() -> DataFrame:
            return spark.sql(f"CREATE TEMPORARY VIEW misread USING raceway OPTIONS (path '{path}', topic 'orders.#')")

        for ask in (batch, stream, view):
            with pytest.raises(PySparkException) as failure:
                ask()
            assert said_by_us(str(failure.value)) == meant
        spark.sql(f"CREATE TEMPORARY VIEW wellread USING raceway OPTIONS (path '{path}', topics 'orders.+')")
        assert {row.topic for row in spark.sql("SELECT topic FROM wellread").collect()} == set(TOPICS[:2])
        spark.catalog.dropTempView("wellread")


def test_the_archive_in_an_object_store_is_read_with_the_variables_of_aws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver and its workers do, in this process."""
    with object_store() as storage:
        place = Place(f"s3a://{BUCKET}/journal", storage)
        rig = opened(tmp_path / "data", place)
        fill(rig, 30)
        archive_all(rig)
        rig.close()
        monkeypatch.setenv("AWS_ENDPOINT_URL", storage.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", storage.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", storage.secret_key)
        schema = StructType([StructField("sequence", LongType())])
        reader = JournalSource({"path": place.url}).reader(schema)
        assert storage.secret_key.encode() not in pickle.dumps(reader)
        found: list[int] = []
        for part in reader.partitions():
            for batch in reader.read(part):
                assert isinstance(batch, pa.RecordBatch)
                found += batch.column("sequence").to_pylist()
        assert found == list(range(len(found)))
        assert len(found) >= 20


def test_registering_by_hand_does_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 100) as rig:
        raceway.pipeline.register(spark)
        assert load(spark, rig.folder).count() == 100


CONNECT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("raceway").option("path", sys.argv[1]).load()
print("batch", rows.count())
query = (spark.readStream.format("raceway").load(sys.argv[1]).writeStream.format("parquet")
         .option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start(sys.argv[2] + "/rows"))
query.awaitTermination()
print("stream", spark.read.parquet(sys.argv[2] + "/rows").count())
spark.stop()
"""


@needs_java
def test_it_works_in_a_connect_session(tmp_path: Path) -> None:
    """In a process of its own: a classic session and a Connect session exclude one another."""
    with journal(tmp_path / "data", 500) as rig:
        command = [sys.executable, "-c", CONNECT, str(rig.folder), str(tmp_path / "out")]
        env = environment() | {"PYSPARK_PYTHON": sys.executable, "HOME": str(tmp_path)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.splitlines() == ["batch 500", "stream 500"], done.stderr[-3000:]
