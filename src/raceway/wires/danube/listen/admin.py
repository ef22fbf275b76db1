"""Administration over the Danube wire: the broker, its namespaces, topics and subscriptions.

A single broker is its own leader (`danube_cluster`); calls that move topics between brokers are not offered.
"""

from __future__ import annotations

import contextlib

import msgspec

from raceway.errors import InvalidValueError, UnknownSchemaError, UnknownTopicError
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, Policies, TopicRow
from raceway.model.topics import danube_topic, parse_danube_topic, parse_namespace
from raceway.net.grpc import Methods
from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    BrokerInfo,
    BrokerListResponse,
    BrokerRequest,
    BrokerResponse,
    DescribeTopicRequest,
    DescribeTopicResponse,
    Empty,
    GetSubscriptionDispatchConfigRequest,
    GetSubscriptionDispatchConfigResponse,
    GetSubscriptionFailurePolicyRequest,
    GetSubscriptionFailurePolicyResponse,
    NamespaceListResponse,
    NamespaceRequest,
    NamespaceResponse,
    NewTopicRequest,
    PartitionedTopicRequest,
    PolicyResponse,
    SetPoliciesRequest,
    SetSubscriptionDispatchConfigRequest,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionDispatchConfig,
    SubscriptionListResponse,
    SubscriptionRequest,
    SubscriptionResponse,
    TopicInfo,
    TopicInfoListResponse,
    TopicListResponse,
    TopicRequest,
    TopicResponse,
)
from raceway.wires.danube.codec.policies import failure_policy_message, read_failure_policy
from raceway.wires.danube.listen.calls import Caller, DanubeCalls, Handlers, is_reliable

# There is one broker.
BROKER_ID = "1"

_policies_decoder = msgspec.json.Decoder(Policies)

LASTING = {
    "CreateNamespace", "DeleteNamespace", "CreateTopic", "CreatePartitionedTopic", "DeleteTopic", "Unsubscribe",
    "SetSubscriptionFailurePolicy", "SetSubscriptionDispatchConfig", "SetNamespacePolicies", "SetTopicPolicies",
}  # fmt: skip


class AdminCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        self._topics, self._subscriptions = calls.broker.topic_admin, calls.broker.subscription_admin

    def join(self, methods: Methods) -> None:
        serve = self._calls.serve
        brokers: Handlers = {
            "ListBrokers": (Empty, self._list_brokers),
            "GetLeaderBroker": (Empty, self._get_leader),
            "ListNamespaces": (Empty, self._list_namespaces),
        }
        serve(methods, "danube_admin.BrokerAdmin", brokers, LASTING)
        namespaces: Handlers = {
            "GetNamespaceTopics": (NamespaceRequest, self._list_names),
            "GetNamespacePolicies": (NamespaceRequest, self._get_policies),
            "SetNamespacePolicies": (SetPoliciesRequest, self._set_policies),
            "CreateNamespace": (NamespaceRequest, self._create_namespace),
            "DeleteNamespace": (NamespaceRequest, self._delete_namespace),
        }
        serve(methods, "danube_admin.NamespaceAdmin", namespaces, LASTING)
        topics: Handlers = {
            "ListNamespaceTopics": (NamespaceRequest, self._list_topics),
            "ListBrokerTopics": (BrokerRequest, self._list_all_topics),
            "CreateTopic": (NewTopicRequest, self._create_topic),
            "CreatePartitionedTopic": (PartitionedTopicRequest, self._create_partitioned),
            "DeleteTopic": (TopicRequest, self._delete_topic),
            "DescribeTopic": (DescribeTopicRequest, self._describe_topic),
            "GetTopicPolicies": (TopicRequest, self._get_topic_policies),
            "SetTopicPolicies": (SetPoliciesRequest, self._set_topic_policies),
            "ListSubscriptions": (TopicRequest, self._list_subscriptions),
            "Unsubscribe": (SubscriptionRequest, self._unsubscribe),
            "SetSubscriptionFailurePolicy": (SetSubscriptionFailurePolicyRequest, self._set_failure_policy),
            "GetSubscriptionFailurePolicy": (GetSubscriptionFailurePolicyRequest, self._get_failure_policy),
            "SetSubscriptionDispatchConfig": (SetSubscriptionDispatchConfigRequest, self._set_dispatch),
            "GetSubscriptionDispatchConfig": (GetSubscriptionDispatchConfigRequest, self._get_dispatch),
        }
        serve(methods, "danube_admin.TopicAdmin", topics, LASTING)

    # ---- the broker --------------------------------------------------------------------------------------------------

    def _list_brokers(self, caller: Caller, request: Empty) -> BrokerListResponse:
        self._calls.check(caller, "ManageBroker")
        address = self._calls.address(caller.session)
        broker = BrokerInfo(
            broker_id=BROKER_ID, broker_addr=address, broker_role="Cluster_Leader", admin_addr=address,
            broker_status="active",
        )  # fmt: skip
        return BrokerListResponse(brokers=[broker])

    def _get_leader(self, caller: Caller, request: Empty) -> BrokerResponse:
        self._calls.check(caller, "ManageBroker")
        return BrokerResponse(leader=BROKER_ID)

    # ---- namespaces --------------------------------------------------------------------------------------------------

    def _list_namespaces(self, caller: Caller, request: Empty) -> NamespaceListResponse:
        self._calls.check(caller, "ManageNamespace")
        return NamespaceListResponse(namespaces=self._topics.namespaces())

    def _list_names(self, caller: Caller, request: NamespaceRequest) -> TopicListResponse:
        names = self._topics.namespace_topics(self._namespace(caller, request.name))
        return TopicListResponse(topics=[danube_topic(name) for name in names])

    def _get_policies(self, caller: Caller, request: NamespaceRequest) -> PolicyResponse:
        policies = self._topics.policies(self._namespace(caller, request.name))
        return PolicyResponse(policies=msgspec.json.encode(policies).decode())

    def _set_policies(self, caller: Caller, request: SetPoliciesRequest) -> NamespaceResponse:
        self._topics.set_policies("namespace", self._namespace(caller, request.name), _policies(request.policies))
        return NamespaceResponse(success=True)

    def _create_namespace(self, caller: Caller, request: NamespaceRequest) -> NamespaceResponse:
        self._topics.create_namespace(self._namespace(caller, request.name))
        return NamespaceResponse(success=True)

    def _delete_namespace(self, caller: Caller, request: NamespaceRequest) -> NamespaceResponse:
        self._topics.delete_namespace(self._namespace(caller, request.name))
        return NamespaceResponse(success=True)

    def _namespace(self, caller: Caller, name: str) -> str:
        namespace = parse_namespace(name)
        self._calls.security.check_namespace(caller.principal, "ManageNamespace", namespace)
        return namespace

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _list_topics(self, caller: Caller, request: NamespaceRequest) -> TopicInfoListResponse:
        return _infos(self._topics.topics(self._namespace(caller, request.name)))

    def _list_all_topics(self, caller: Caller, request: BrokerRequest) -> TopicInfoListResponse:
        self._calls.check(caller, "ManageBroker")
        return _infos(self._topics.topics(None) if request.broker_id in ("", BROKER_ID) else [])

    def _create_topic(self, caller: Caller, request: NewTopicRequest) -> TopicResponse:
        subject = request.schema_subject if request.HasField("schema_subject") else None
        reliable = is_reliable(request.dispatch_strategy)
        self._topics.create_topic(self._topic(caller, request.name), reliable, subject)
        return TopicResponse(success=True)

    def _create_partitioned(self, caller: Caller, request: PartitionedTopicRequest) -> TopicResponse:
        subject = request.schema_subject if request.HasField("schema_subject") else None
        base, reliable = self._topic(caller, request.base_name), is_reliable(request.dispatch_strategy)
        self._topics.create_partitioned_topic(base, request.partitions, reliable, subject)
        return TopicResponse(success=True)

    def _delete_topic(self, caller: Caller, request: TopicRequest) -> TopicResponse:
        self._topics.delete_topic(self._topic(caller, request.name))
        return TopicResponse(success=True)

    def _describe_topic(self, caller: Caller, request: DescribeTopicRequest) -> DescribeTopicResponse:
        row = self._topics.describe(self._topic(caller, request.name))
        answer = DescribeTopicResponse(
            name=danube_topic(row.name), subscriptions=row.subscriptions, broker_id=BROKER_ID, delivery=_delivery(row)
        )
        self._describe_schema(answer, row)
        return answer

    def _describe_schema(self, answer: DescribeTopicResponse, row: TopicRow) -> None:
        schemas = self._calls.broker.schemas
        topic = self._calls.broker.topics.maybe_exact(row.partitions[0] if row.partitions else row.name)
        bound = schemas.topic_schema(topic) if topic is not None else None
        if bound is None or bound.subject is None:
            return
        answer.schema_subject = bound.subject
        with contextlib.suppress(UnknownSchemaError):  # all its versions were deleted
            latest = schemas.latest(bound.subject)
            answer.schema_id, answer.schema_version = latest.schema_id, latest.version
            answer.schema_type, answer.compatibility_mode = latest.schema_type, schemas.mode(bound.subject).upper()

    def _get_topic_policies(self, caller: Caller, request: TopicRequest) -> PolicyResponse:
        policies = self._topics.topic_policies(self._parts(caller, request.name)[0])
        return PolicyResponse(policies=msgspec.json.encode(policies).decode())

    def _set_topic_policies(self, caller: Caller, request: SetPoliciesRequest) -> TopicResponse:
        self._topics.set_policies("topic", self._topic(caller, request.name), _policies(request.policies))
        return TopicResponse(success=True)

    def _topic(self, caller: Caller, name: str) -> str:
        topic = parse_danube_topic(name)
        self._calls.check(caller, "ManageTopic", topic)
        return topic

    def _parts(self, caller: Caller, name: str) -> list[str]:
        """Return the topic itself, or its partitions if it is partitioned. Raises UnknownTopicError."""
        found = self._calls.broker.topic_admin.partitions(self._topic(caller, name))
        if not found:
            raise UnknownTopicError(name)
        return found

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def _list_subscriptions(self, caller: Caller, request: TopicRequest) -> SubscriptionListResponse:
        return SubscriptionListResponse(
            subscriptions=self._subscriptions.subscriptions(self._topic(caller, request.name))
        )

    def _unsubscribe(self, caller: Caller, request: SubscriptionRequest) -> SubscriptionResponse:
        for part in self._parts(caller, request.topic):
            self._subscriptions.unsubscribe(part, request.subscription)
        return SubscriptionResponse(success=True)

    def _set_failure_policy(self, caller: Caller, request: SetSubscriptionFailurePolicyRequest) -> SubscriptionResponse:
        policy = None if request.remove else read_failure_policy(request.failure_policy)
        if policy is not None and policy.dead_letter_topic is not None:
            # Otherwise dead letters would be a way to write to a topic without the permission.
            self._calls.check(caller, "Produce", policy.dead_letter_topic)
        for part in self._parts(caller, request.topic):
            if policy is None:
                self._subscriptions.remove_failure_policy(part, request.subscription)
            else:
                self._subscriptions.set_failure_policy(part, request.subscription, policy)
        return SubscriptionResponse(success=True)

    def _get_failure_policy(
        self, caller: Caller, request: GetSubscriptionFailurePolicyRequest
    ) -> GetSubscriptionFailurePolicyResponse:
        policy, kind = self._subscriptions.failure_policy(self._parts(caller, request.topic)[0], request.subscription)
        return GetSubscriptionFailurePolicyResponse(
            failure_policy=failure_policy_message(policy), subscription_type=SUBSCRIPTION_TYPES.index(kind)
        )

    def _set_dispatch(self, caller: Caller, request: SetSubscriptionDispatchConfigRequest) -> SubscriptionResponse:
        wanted = request.dispatch_config
        for part in self._parts(caller, request.topic):
            if wanted.HasField("in_flight"):
                self._subscriptions.set_in_flight(part, request.subscription, wanted.in_flight or None)
            if wanted.max_unacked_messages or not wanted.HasField("in_flight"):
                self._subscriptions.set_dispatch_limit(part, request.subscription, wanted.max_unacked_messages)
        return SubscriptionResponse(success=True)

    def _get_dispatch(
        self, caller: Caller, request: GetSubscriptionDispatchConfigRequest
    ) -> GetSubscriptionDispatchConfigResponse:
        part = self._parts(caller, request.topic)[0]
        limit = self._subscriptions.dispatch_limit(part, request.subscription)
        in_flight = self._subscriptions.in_flight(part, request.subscription)
        config = SubscriptionDispatchConfig(max_unacked_messages=limit, in_flight=in_flight)
        return GetSubscriptionDispatchConfigResponse(dispatch_config=config)


def _infos(rows: list[TopicRow]) -> TopicInfoListResponse:
    return TopicInfoListResponse(
        topics=[TopicInfo(name=danube_topic(row.name), broker_id=BROKER_ID, delivery=_delivery(row)) for row in rows]
    )


def _delivery(row: TopicRow) -> str:
    """Return the delivery mode. A topic without a Danube producer so far counts as reliable."""
    return "NonReliable" if row.reliable is False else "Reliable"


def _policies(text: str) -> Policies:
    """Decode policies from JSON. Raises InvalidValueError."""
    try:
        return _policies_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidValueError("policies", str(error)) from error
