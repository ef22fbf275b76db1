"""Clusters by URL; bad days in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.cimpl import NewPartitions

from raceway import config
from raceway.cli import doctor
from raceway.cluster.place import KEY, ClusterPlace, split_url
from raceway.cluster.status import cluster_status
from raceway.errors import ClusterError, ConfigError, FormatVersionError, UnreachableError
from raceway.journal.kafka.client import lanes_topic
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.records import RecordHeaders
from tests.rigs.cluster import Node, new_cluster, place_of
from tests.rigs.kafka import admin, set_topic
from tests.rigs.lane import MemoryLane, SharedLog
from tests.rigs.server import wait_until
from tools.kafka import Kafka


def test_brokers_and_name_of_a_url() -> None:
    assert split_url("kafka://a:1,b:2/orders") == ("kafka://a:1,b:2", "orders")


@pytest.mark.parametrize(
    "url", ["kafka://a:1", "kafka://a:1/", "kafka:///x", "http://a:1/x", "kafka://a:1/a b", "kafka://a:1/x/y/", "x"]
)
def test_urls_that_name_no_cluster(url: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster.url"):
        split_url(url)


def test_no_broker_is_there() -> None:
    place = ClusterPlace(config.ClusterSettings(url="kafka://127.0.0.1:1/x"), timeout_s=1)
    with pytest.raises(UnreachableError, match=r"127.0.0.1:1 cannot be reached"):
        place.record()
    with pytest.raises(UnreachableError, match=r"127.0.0.1:1 cannot be reached"):
        place.init(1, 1)


def test_more_lanes_than_one_are_refused() -> None:
    with pytest.raises(ClusterError, match="supports one lane, not 16"):
        ClusterPlace(config.ClusterSettings(url="kafka://127.0.0.1:1/x"), timeout_s=1).init(16, 3)


def test_a_folder_with_a_journal_is_refused(tmp_path: Path) -> None:
    place = ClusterPlace(config.ClusterSettings(url="kafka://127.0.0.1:1/x"), timeout_s=1)
    node = Node(place, tmp_path / "node")
    node.data.mkdir()
    (node.data / "identity").write_text("{}")
    node.spawn()
    wait_until(lambda: not node.is_running(), 30)
    assert "holds a journal of its own" in node.stderr


def test_a_wrong_name_and_one_that_is_taken(kafka: Kafka) -> None:
    place, _ = new_cluster(kafka)
    with pytest.raises(ClusterError, match=rf"no cluster is called 'nosuch'.*{place.name}.*cluster init"):
        place_of(kafka, "nosuch").record()
    with pytest.raises(ClusterError, match="already"):
        place.init(1, 3)


def test_more_replicas_than_brokers(kafka: Kafka) -> None:
    with pytest.raises(ClusterError, match=r"4 replicas need as many brokers.*has 3.*--replicas 3"):
        place_of(kafka, "greedy").init(1, 4)


def test_partitions_that_differ_from_the_lanes(kafka: Kafka) -> None:
    place, _ = new_cluster(kafka)
    client = admin(kafka)
    topic = lanes_topic(place.name)
    client.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    wait_until(lambda: len((place.brokers.metadata().topics or {})[topic].partitions) == 2, 30)
    with pytest.raises(ClusterError, match=r"has 1 lanes, but .* has 2 partitions"):
        place.record()


def test_a_newer_release_made_it(kafka: Kafka) -> None:
    place, record = new_cluster(kafka)
    lane = place.lane()
    lane.put(KEY, json.dumps({**msgspec.structs.asdict(record), "format": 2}).encode())
    with pytest.raises(FormatVersionError, match="format 2; this release reads format 1"):
        place.record()
    lane.put(KEY, b"{")
    with pytest.raises(ClusterError, match="cannot be read"):
        place.record()
    lane.put(KEY, None)
    with pytest.raises(ClusterError, match="was interrupted"):
        place.record()
    lane.close()


def test_settings_that_could_lose_data_are_told_and_refused(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    place, _ = new_cluster(kafka)
    assert {finding.verdict for finding in cluster_status(place).topics} == {"ok"}
    set_topic(kafka, lanes_topic(place.name), retention_ms="1000", min_insync_replicas="1")
    wait_until(lambda: not cluster_status(place).is_healthy, 30)
    said = " ".join(finding.text for finding in cluster_status(place).topics)
    assert "retention.ms is 1000" in said
    assert "min.insync.replicas is 1" in said
    with pytest.raises(ClusterError, match=r"is not safe: retention.ms is 1000.*set it to -1"):
        place.check()
    monkeypatch.setenv("RACEWAY_CLUSTER__URL", place.url)
    findings = [finding for finding in doctor.examine(None, None) if finding.subject.startswith("topic ")]
    assert [finding.verdict for finding in findings] == ["bad", "bad", "ok"]


def test_a_lane_of_kafka_is_one(kafka: Kafka) -> None:
    """The same calls on Kafka and in memory."""
    place, _ = new_cluster(kafka)
    real, model = place.lane(), MemoryLane(SharedLog())
    for lane in (real, model):
        _check_lane(lane)
        lane.close()


def _check_lane(lane: Lane) -> None:
    heard: list[tuple[int | None, object]] = []

    def append(headers: RecordHeaders, value: bytes) -> None:
        count = len(heard)
        lane.append(headers, value, lambda *told: heard.append(told))
        wait_until(lambda: len(heard) == count + 1, 30)

    for number in range(5):
        append({"e": b"%d" % number}, b"value %d" % number)
    assert heard == [(number, None) for number in range(5)]
    assert lane.extent() == (0, 5)
    assert [(record.offset, dict(record.headers), record.value) for record in lane.read(1, 3)] == [
        (1, {"e": b"1"}, b"value 1"),
        (2, {"e": b"2"}, b"value 2"),
    ]
    lane.put("one", b"1")
    lane.put("two", b"2")
    lane.put("one", None)
    assert {key: value for key, value in lane.values().items() if key != KEY} == {"two": b"2"}
    lane.trim(3)
    assert lane.extent() == (3, 5)
    assert [record.offset for record in lane.read(0, 5)] == [3, 4]
    lane.begin_anew()
    append({}, b"after")
    assert heard[-1] == (5, None)
