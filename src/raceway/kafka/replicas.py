"""Replicas of a topic's partitions, and the settings of topics, as brokers tell them."""

from __future__ import annotations

from raceway.kafka.brokers import KafkaCluster


def topic_settings(brokers: KafkaCluster, topic: str) -> dict[str, str]:
    """Return the settings of a topic, those of the brokers included. Raises UnreachableError, BrokersError."""
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    admin = brokers.admin()  # must outlive its answer
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with brokers.failures_in_words(f"read the settings of {topic}"):
        found = admin.describe_configs([resource])[resource].result(brokers.timeout_s)
    return {name: entry.value or "" for name, entry in found.items()}


def maybe_short_of_replicas(brokers: KafkaCluster, topic: str, partition: int) -> str | None:
    """Return why a partition takes no records, if too few of its replicas are in sync; None otherwise."""
    known = (brokers.metadata().topics or {}).get(topic)
    if known is None or partition not in known.partitions:
        return None
    in_sync, replicas = len(known.partitions[partition].isrs), len(known.partitions[partition].replicas)
    needed = int(topic_settings(brokers, topic).get("min.insync.replicas", "1"))
    if in_sync >= needed:
        return None
    return (
        f"{in_sync} of {replicas} replicas of {topic} are in sync, and {needed} are needed (min.insync.replicas): "
        "start the other brokers"
    )
