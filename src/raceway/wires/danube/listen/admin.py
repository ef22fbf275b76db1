"""Administration over the Danube wire: the broker, its namespaces, topics and subscriptions.

The cluster has one broker: it is leader and only voter and has all topics. Calls that move topics between brokers are
not offered. There is no Raft transport, so its address is empty.
"""

from __future__ import annotations

import contextlib
from typing import ClassVar

import msgspec

from raceway.errors import InvalidValueError, UnknownSchemaError
from raceway.model.intents.subscriptions import RemoveSubscription, SetDispatch, SetFailurePolicy
from raceway.model.intents.topics import CreateNamespace, CreateTopic, DeleteNamespace, DeleteTopic, SetLimits
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, Policies, TopicRow
from raceway.model.topics import namespaced_topic, parse_namespace
from raceway.wires.danube.codec.pb import danube_admin_pb2 as pb
from raceway.wires.danube.codec.policies import failure_policy_message, read_failure_policy
from raceway.wires.danube.listen.calls import Caller, DanubeService, is_reliable

# There is one broker.
BROKER_ID, NODE_ID = "1", 1
# The Raft term counts elections; a single broker has had one.
TERM = 1

_policies_decoder = msgspec.json.Decoder(Policies)


class AdminCalls(DanubeService):
    services: ClassVar[tuple[str, ...]] = (
        "danube_admin.BrokerAdmin", "danube_admin.NamespaceAdmin", "danube_admin.TopicAdmin",
        "danube_admin.ClusterAdmin",
    )  # fmt: skip
    records_changes: ClassVar[bool] = True

    # ---- the broker --------------------------------------------------------------------------------------------------

    def list_brokers(self, caller: Caller, request: pb.Empty) -> pb.BrokerListResponse:
        self._check(caller, "ManageBroker")
        address = self._calls.address(caller.session)
        broker = pb.BrokerInfo(
            broker_id=BROKER_ID, broker_addr=address, broker_role="Cluster_Leader", admin_addr=address,
            broker_status="active",
        )  # fmt: skip
        return pb.BrokerListResponse(brokers=[broker])

    def get_leader_broker(self, caller: Caller, request: pb.Empty) -> pb.BrokerResponse:
        self._check(caller, "ManageBroker")
        return pb.BrokerResponse(leader=BROKER_ID)

    def cluster_status(self, caller: Caller, request: pb.Empty) -> pb.ClusterStatusResponse:
        """Return the cluster's status. The journal stands for the Raft log: `last_applied` is its last position."""
        self._check(caller, "ManageCluster")
        applied = max(self._topics.next_sequence - 1, 0)
        return pb.ClusterStatusResponse(
            leader_id=NODE_ID, current_term=TERM, last_applied=applied, voters=[NODE_ID], self_node_id=NODE_ID
        )

    def get_cluster_balance(self, caller: Caller, request: pb.ClusterBalanceRequest) -> pb.ClusterBalanceResponse:
        """Return the load of the broker: its number of topics, as in Danube's strategy `fair`."""
        self._check(caller, "ManageBroker")
        topics = len(self._topics.topics())
        broker = pb.BrokerLoadInfo(broker_id=NODE_ID, load=topics, topic_count=topics)
        return pb.ClusterBalanceResponse(
            mean_load=topics, max_load=topics, min_load=topics, broker_count=1, brokers=[broker],
            assignment_strategy="fair",
        )  # fmt: skip

    def trigger_rebalance(self, caller: Caller, request: pb.RebalanceRequest) -> pb.RebalanceResponse:
        """Succeed without doing anything: one broker is always balanced."""
        self._check(caller, "ManageCluster")
        return pb.RebalanceResponse(success=True)

    # ---- namespaces --------------------------------------------------------------------------------------------------

    def list_namespaces(self, caller: Caller, request: pb.Empty) -> pb.NamespaceListResponse:
        self._check(caller, "ManageNamespace")
        return pb.NamespaceListResponse(namespaces=self._topics.namespaces())

    def get_namespace_topics(self, caller: Caller, request: pb.NamespaceRequest) -> pb.TopicListResponse:
        rows = self._topics.topics(self._namespace(caller, request.name))
        return pb.TopicListResponse(topics=[namespaced_topic(row.name) for row in rows])

    def get_namespace_policies(self, caller: Caller, request: pb.NamespaceRequest) -> pb.PolicyResponse:
        policies = self._topics.policies(self._namespace(caller, request.name))
        return pb.PolicyResponse(policies=msgspec.json.encode(policies).decode())

    def set_namespace_policies(self, caller: Caller, request: pb.SetPoliciesRequest) -> SetLimits:
        return SetLimits("namespace", self._namespace(caller, request.name), _policies(request.policies))

    def create_namespace(self, caller: Caller, request: pb.NamespaceRequest) -> CreateNamespace:
        return CreateNamespace(self._namespace(caller, request.name))

    def delete_namespace(self, caller: Caller, request: pb.NamespaceRequest) -> DeleteNamespace:
        return DeleteNamespace(self._namespace(caller, request.name))

    def _namespace(self, caller: Caller, name: str) -> str:
        namespace = parse_namespace(name)
        self._calls.permissions.check_namespace(caller.principal, "ManageNamespace", namespace)
        return namespace

    # ---- topics ------------------------------------------------------------------------------------------------------

    def list_namespace_topics(self, caller: Caller, request: pb.NamespaceRequest) -> pb.TopicInfoListResponse:
        return _infos(self._topics.topics(self._namespace(caller, request.name)))

    def list_broker_topics(self, caller: Caller, request: pb.BrokerRequest) -> pb.TopicInfoListResponse:
        self._check(caller, "ManageBroker")
        return _infos(self._topics.topics(None) if request.broker_id in ("", BROKER_ID) else [])

    def create_topic(self, caller: Caller, request: pb.NewTopicRequest) -> CreateTopic:
        subject = request.schema_subject if request.HasField("schema_subject") else None
        reliable = is_reliable(request.dispatch_strategy)
        return CreateTopic(self._topic(caller, request.name, "ManageTopic"), reliable, subject)

    def create_partitioned_topic(self, caller: Caller, request: pb.PartitionedTopicRequest) -> CreateTopic:
        subject = request.schema_subject if request.HasField("schema_subject") else None
        base, reliable = self._topic(caller, request.base_name, "ManageTopic"), is_reliable(request.dispatch_strategy)
        return CreateTopic(base, reliable, subject, request.partitions)

    def delete_topic(self, caller: Caller, request: pb.TopicRequest) -> DeleteTopic:
        return DeleteTopic(self._topic(caller, request.name, "ManageTopic"))

    def describe_topic(self, caller: Caller, request: pb.DescribeTopicRequest) -> pb.DescribeTopicResponse:
        row = self._topics.describe(self._topic(caller, request.name, "ManageTopic"))
        answer = pb.DescribeTopicResponse(
            name=namespaced_topic(row.name), subscriptions=row.subscriptions, broker_id=BROKER_ID,
            delivery=_delivery(row),
        )  # fmt: skip
        self._describe_schema(answer, row)
        return answer

    def _describe_schema(self, answer: pb.DescribeTopicResponse, row: TopicRow) -> None:
        bound = self._schemas.topic_schema(row.partitions[0] if row.partitions else row.name)
        if bound.subject is None:
            return
        answer.schema_subject = bound.subject
        with contextlib.suppress(UnknownSchemaError):  # all its versions were deleted
            latest, mode = self._schemas.latest(bound.subject), self._schemas.mode(bound.subject)
            answer.schema_id, answer.schema_version = latest.schema_id, latest.version
            answer.schema_type, answer.compatibility_mode = latest.schema_type, mode.upper()

    def get_topic_policies(self, caller: Caller, request: pb.TopicRequest) -> pb.PolicyResponse:
        first = self._topics.partitions(self._known(caller, request.name, "ManageTopic"))[0]
        policies = self._topics.topic_policies(first)
        return pb.PolicyResponse(policies=msgspec.json.encode(policies).decode())

    def set_topic_policies(self, caller: Caller, request: pb.SetPoliciesRequest) -> SetLimits:
        return SetLimits("topic", self._topic(caller, request.name, "ManageTopic"), _policies(request.policies))

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def list_subscriptions(self, caller: Caller, request: pb.TopicRequest) -> pb.SubscriptionListResponse:
        topic = self._topic(caller, request.name, "ManageTopic")
        return pb.SubscriptionListResponse(subscriptions=self._topics.subscriptions(topic))

    def unsubscribe(self, caller: Caller, request: pb.SubscriptionRequest) -> RemoveSubscription:
        return RemoveSubscription(self._known(caller, request.topic, "ManageTopic"), request.subscription)

    def set_subscription_failure_policy(
        self, caller: Caller, request: pb.SetSubscriptionFailurePolicyRequest
    ) -> SetFailurePolicy:
        policy = None if request.remove else read_failure_policy(request.failure_policy)
        if policy is not None and policy.dead_letter_topic is not None:
            # Otherwise dead letters would be a way to write to a topic without the permission.
            self._check(caller, "Produce", policy.dead_letter_topic)
        return SetFailurePolicy(self._known(caller, request.topic, "ManageTopic"), request.subscription, policy)

    def get_subscription_failure_policy(
        self, caller: Caller, request: pb.GetSubscriptionFailurePolicyRequest
    ) -> pb.GetSubscriptionFailurePolicyResponse:
        found = self._topics.delivery(self._known(caller, request.topic, "ManageTopic"), request.subscription)
        return pb.GetSubscriptionFailurePolicyResponse(
            failure_policy=failure_policy_message(found.policy), subscription_type=SUBSCRIPTION_TYPES.index(found.type)
        )

    def set_subscription_dispatch_config(
        self, caller: Caller, request: pb.SetSubscriptionDispatchConfigRequest
    ) -> SetDispatch:
        wanted = request.dispatch_config
        in_flight = wanted.in_flight if wanted.HasField("in_flight") else None
        max_unacked = None if in_flight is not None and not wanted.max_unacked_messages else wanted.max_unacked_messages
        topic = self._known(caller, request.topic, "ManageTopic")
        return SetDispatch(topic, request.subscription, max_unacked, in_flight)

    def get_subscription_dispatch_config(
        self, caller: Caller, request: pb.GetSubscriptionDispatchConfigRequest
    ) -> pb.GetSubscriptionDispatchConfigResponse:
        found = self._topics.delivery(self._known(caller, request.topic, "ManageTopic"), request.subscription)
        config = pb.SubscriptionDispatchConfig(max_unacked_messages=found.max_unacked, in_flight=found.in_flight)
        return pb.GetSubscriptionDispatchConfigResponse(dispatch_config=config)


def _infos(rows: list[TopicRow]) -> pb.TopicInfoListResponse:
    answer = pb.TopicInfoListResponse()
    for row in rows:
        answer.topics.add(name=namespaced_topic(row.name), broker_id=BROKER_ID, delivery=_delivery(row))
    return answer


def _delivery(row: TopicRow) -> str:
    """Return the delivery mode. A topic without a Danube producer so far counts as reliable."""
    return "NonReliable" if row.reliable is False else "Reliable"


def _policies(text: str) -> Policies:
    """Decode policies from JSON. Raises InvalidValueError."""
    try:
        return _policies_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidValueError("policies", str(error)) from error
