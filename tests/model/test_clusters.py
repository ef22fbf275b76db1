from __future__ import annotations

import pytest

from raceway.model.clusters import ClusterStatus, KafkaVerdict, TopicVerdict


@pytest.mark.parametrize(("verdict", "is_healthy"), [("ok", True), ("warning", True), ("bad", False)])
def test_a_cluster_is_as_healthy_as_its_topics(verdict: KafkaVerdict, *, is_healthy: bool) -> None:
    topics = [TopicVerdict("ok", "a.state", ""), TopicVerdict(verdict, "a.lanes", "")]
    found = ClusterStatus(name="a", url="", source="", lanes=[], brokers=[], nodes=0, members=[], topics=topics)
    assert found.is_healthy is is_healthy
