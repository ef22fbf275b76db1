from __future__ import annotations

import pytest

from raceway.cluster.topics import LANES, STATE, KafkaTopic, TopicFinding, _faults, refuse_losses
from raceway.errors import ClusterError

RECORD = 1_000_000
GOOD = {**LANES, "min.insync.replicas": "2", "max.message.bytes": "1048588"}


def verdicts(settings: dict[str, str], replicas: int = 3, in_sync: int = 3) -> list[tuple[str, str]]:
    return list(_faults(KafkaTopic(1, replicas, in_sync, {**GOOD, **settings}), LANES, RECORD))


def test_topics_as_init_makes_them_are_right() -> None:
    assert verdicts({}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
        ("max.message.bytes", "1000"),
    ],
)
def test_settings_that_could_lose_messages_or_take_none(key: str, value: str) -> None:
    ((verdict, text),) = verdicts({key: value})
    assert verdict == "bad"
    assert text.startswith(f"{key} is {value}")
    with pytest.raises(ClusterError, match=f"t is not safe: {key}"):
        refuse_losses([TopicFinding("bad", "t", text)])


def test_few_replicas_are_a_warning() -> None:
    assert [verdict for verdict, _ in verdicts({"min.insync.replicas": "1"}, 1, 1)] == ["warning"]
    assert [verdict for verdict, _ in verdicts({}, 2, 2)] == ["warning"]
    assert [verdict for verdict, _ in verdicts({}, 3, 2)] == ["warning"]


def test_brokers_that_are_away_are_told_and_no_reason_not_to_start() -> None:
    ((verdict, text),) = verdicts({}, 3, 1)
    assert verdict == "bad"
    assert "1 of 3 replicas are in sync, and 2 are needed" in text
    refuse_losses([TopicFinding("bad", "t", text), TopicFinding("warning", "t", "else")])


def test_values_are_compacted_and_need_no_retention() -> None:
    settings = {**STATE, "min.insync.replicas": "2", "retention.ms": "1"}
    assert list(_faults(KafkaTopic(1, 3, 3, settings), STATE, RECORD)) == []
