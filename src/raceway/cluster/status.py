"""Status of a cluster: who owns its lane, how far it is, and the health of Kafka."""

from __future__ import annotations

from raceway.cluster.place import ClusterPlace
from raceway.cluster.topics import TopicFinding, check_topics
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.records import claimant_of, is_claim
from raceway.journal.kafka.snapshots import LaneOwner, maybe_owner, snapshots_of
from raceway.model.clusters import BrokerStatus, ClusterStatus, LaneStatus, MemberStatus, TopicVerdict


def cluster_status(place: ClusterPlace) -> ClusterStatus:
    """Ask Kafka. Raises ClusterError, UnreachableError."""
    record, metadata = place.record(), place.brokers.metadata()
    findings = check_topics(place.brokers, place.name, place.settings.record_bytes)
    members = _members(place)
    return ClusterStatus(
        name=place.name,
        url=place.url,
        source=record.source,
        lanes=[_lane(place, number) for number in range(record.lanes)],
        brokers=[BrokerStatus(b.id, f"{b.host}:{b.port}") for b in (metadata.brokers or {}).values()],
        nodes=len(members),
        members=members,
        topics=[_verdict(finding) for finding in findings],
    )


def owner_in_words(lane: Lane) -> str:
    """Say who owns a lane. Raises UnavailableError."""
    owner = maybe_owner(lane.values())
    if owner is None or not owner.node:
        return "this node is a standby; nobody owns the lane at present"
    return f"this node is a standby; {owner.node} ({owner.address}) owns the lane (epoch {owner.epoch})"


def _lane(place: ClusterPlace, number: int) -> LaneStatus:
    lane = place.lane(number)
    try:
        values = lane.values()
        first, end = lane.extent()
        owner = maybe_owner(values) or LaneOwner(epoch=-1, node="")
        replayed_from = max((snapshot.offset for snapshot in snapshots_of(values)), default=first)
        # A claim behind what the values tell: somebody is about to open the lane.
        for record in lane.read(max(replayed_from, owner.epoch + 1), end):
            if is_claim(record) and record.offset > owner.epoch:
                claimant = claimant_of(record)
                owner = LaneOwner(
                    epoch=record.offset, node=claimant.node, address=claimant.address, version=claimant.version,
                    since_us=claimant.time_us,
                )  # fmt: skip
    finally:
        lane.close()
    return LaneStatus(
        lane=number, node=owner.node, address=owner.address, version=owner.version, epoch=owner.epoch,
        since_us=owner.since_us, first_offset=first, end=end, behind_snapshot=max(0, end - replayed_from),
    )  # fmt: skip


def _members(place: ClusterPlace) -> list[MemberStatus]:
    """Return the nodes in the group."""
    admin = place.brokers.admin()  # must outlive its answer
    with place.brokers.failures_in_words("describe the group of the cluster"):
        answer = admin.describe_consumer_groups([place.name])[place.name]
        members = answer.result(place.brokers.timeout_s).members
    return sorted(
        (MemberStatus(str(member.client_id), str(member.host).removeprefix("/")) for member in members),
        key=lambda member: member.address,
    )


def _verdict(finding: TopicFinding) -> TopicVerdict:
    return TopicVerdict(finding.verdict, finding.topic, finding.text)
