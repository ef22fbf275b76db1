"""Administration over the Danube wire: the broker, its namespaces, topics and subscriptions.

A single broker is its own leader (`danube_cluster`); calls that move topics between brokers are not offered.
"""

from __future__ import annotations

import contextlib

import msgspec

from raceway.errors import InvalidValueError, UnknownSchemaError, UnknownTopicError
from raceway.model.intents.subscriptions import RemoveSubscription, SetDispatch, SetFailurePolicy
from raceway.model.intents.topics import CreateNamespace, CreateTopic, DeleteNamespace, DeleteTopic, SetLimits
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, Policies, TopicRow
from raceway.model.topics import namespaced_topic, parse_namespace, parse_namespaced_topic
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
from raceway.wires.danube.listen.calls import Caller, DanubeCalls, Handlers, ask, is_reliable

# There is one broker.
BROKER_ID = "1"

_policies_decoder = msgspec.json.Decoder(Policies)


class AdminCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        self._shown = calls.door.view.administration

    def join(self, methods: Methods) -> None:
        serve = self._calls.serve
        brokers: Handlers = {
            "ListBrokers": (Empty, self._list_brokers),
            "GetLeaderBroker": (Empty, self._get_leader),
            "ListNamespaces": (Empty, self._list_namespaces),
        }
        serve(methods, "danube_admin.BrokerAdmin", brokers)
        namespaces: Handlers = {
            "GetNamespaceTopics": (NamespaceRequest, self._list_names),
            "GetNamespacePolicies": (NamespaceRequest, self._get_policies),
            "SetNamespacePolicies": (SetPoliciesRequest, self._set_policies),
            "CreateNamespace": (NamespaceRequest, self._create_namespace),
            "DeleteNamespace": (NamespaceRequest, self._delete_namespace),
        }
        serve(methods, "danube_admin.NamespaceAdmin", namespaces)
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
        serve(methods, "danube_admin.TopicAdmin", topics)

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
        return NamespaceListResponse(namespaces=self._shown.namespaces())

    def _list_names(self, caller: Caller, request: NamespaceRequest) -> TopicListResponse:
        rows = self._shown.topics(self._namespace(caller, request.name))
        return TopicListResponse(topics=[namespaced_topic(row.name) for row in rows])

    def _get_policies(self, caller: Caller, request: NamespaceRequest) -> PolicyResponse:
        policies = self._shown.policies(self._namespace(caller, request.name))
        return PolicyResponse(policies=msgspec.json.encode(policies).decode())

    async def _set_policies(self, caller: Caller, request: SetPoliciesRequest) -> NamespaceResponse:
        await ask(SetLimits("namespace", self._namespace(caller, request.name), _policies(request.policies)))
        return NamespaceResponse(success=True)

    async def _create_namespace(self, caller: Caller, request: NamespaceRequest) -> NamespaceResponse:
        await ask(CreateNamespace(self._namespace(caller, request.name)))
        return NamespaceResponse(success=True)

    async def _delete_namespace(self, caller: Caller, request: NamespaceRequest) -> NamespaceResponse:
        await ask(DeleteNamespace(self._namespace(caller, request.name)))
        return NamespaceResponse(success=True)

    def _namespace(self, caller: Caller, name: str) -> str:
        namespace = parse_namespace(name)
        self._calls.permissions.check_namespace(caller.principal, "ManageNamespace", namespace)
        return namespace

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _list_topics(self, caller: Caller, request: NamespaceRequest) -> TopicInfoListResponse:
        return _infos(self._shown.topics(self._namespace(caller, request.name)))

    def _list_all_topics(self, caller: Caller, request: BrokerRequest) -> TopicInfoListResponse:
        self._calls.check(caller, "ManageBroker")
        return _infos(self._shown.topics(None) if request.broker_id in ("", BROKER_ID) else [])

    async def _create_topic(self, caller: Caller, request: NewTopicRequest) -> TopicResponse:
        subject = request.schema_subject if request.HasField("schema_subject") else None
        reliable = is_reliable(request.dispatch_strategy)
        await ask(CreateTopic(self._topic(caller, request.name), reliable, subject))
        return TopicResponse(success=True)

    async def _create_partitioned(self, caller: Caller, request: PartitionedTopicRequest) -> TopicResponse:
        subject = request.schema_subject if request.HasField("schema_subject") else None
        base, reliable = self._topic(caller, request.base_name), is_reliable(request.dispatch_strategy)
        await ask(CreateTopic(base, reliable, subject, request.partitions))
        return TopicResponse(success=True)

    async def _delete_topic(self, caller: Caller, request: TopicRequest) -> TopicResponse:
        await ask(DeleteTopic(self._topic(caller, request.name)))
        return TopicResponse(success=True)

    def _describe_topic(self, caller: Caller, request: DescribeTopicRequest) -> DescribeTopicResponse:
        row = self._shown.describe(self._topic(caller, request.name))
        answer = DescribeTopicResponse(
            name=namespaced_topic(row.name), subscriptions=row.subscriptions, broker_id=BROKER_ID,
            delivery=_delivery(row),
        )  # fmt: skip
        self._describe_schema(answer, row)
        return answer

    def _describe_schema(self, answer: DescribeTopicResponse, row: TopicRow) -> None:
        schemas = self._calls.door.view.schemas
        bound = schemas.topic_schema(row.partitions[0] if row.partitions else row.name)
        if bound.subject is None:
            return
        answer.schema_subject = bound.subject
        with contextlib.suppress(UnknownSchemaError):  # all its versions were deleted
            latest = schemas.latest(bound.subject)
            answer.schema_id, answer.schema_version = latest.schema_id, latest.version
            answer.schema_type, answer.compatibility_mode = latest.schema_type, schemas.mode(bound.subject).upper()

    def _get_topic_policies(self, caller: Caller, request: TopicRequest) -> PolicyResponse:
        policies = self._shown.topic_policies(self._shown.partitions(self._known(caller, request.name))[0])
        return PolicyResponse(policies=msgspec.json.encode(policies).decode())

    async def _set_topic_policies(self, caller: Caller, request: SetPoliciesRequest) -> TopicResponse:
        await ask(SetLimits("topic", self._topic(caller, request.name), _policies(request.policies)))
        return TopicResponse(success=True)

    def _topic(self, caller: Caller, name: str) -> str:
        topic = parse_namespaced_topic(name)
        self._calls.check(caller, "ManageTopic", topic)
        return topic

    def _known(self, caller: Caller, name: str) -> str:
        """Return a topic that exists. Raises UnknownTopicError."""
        topic = self._topic(caller, name)
        if not self._shown.partitions(topic):
            raise UnknownTopicError(name)
        return topic

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def _list_subscriptions(self, caller: Caller, request: TopicRequest) -> SubscriptionListResponse:
        return SubscriptionListResponse(subscriptions=self._shown.subscriptions(self._topic(caller, request.name)))

    async def _unsubscribe(self, caller: Caller, request: SubscriptionRequest) -> SubscriptionResponse:
        await ask(RemoveSubscription(self._known(caller, request.topic), request.subscription))
        return SubscriptionResponse(success=True)

    async def _set_failure_policy(
        self, caller: Caller, request: SetSubscriptionFailurePolicyRequest
    ) -> SubscriptionResponse:
        policy = None if request.remove else read_failure_policy(request.failure_policy)
        if policy is not None and policy.dead_letter_topic is not None:
            # Otherwise dead letters would be a way to write to a topic without the permission.
            self._calls.check(caller, "Produce", policy.dead_letter_topic)
        await ask(SetFailurePolicy(self._known(caller, request.topic), request.subscription, policy))
        return SubscriptionResponse(success=True)

    def _get_failure_policy(
        self, caller: Caller, request: GetSubscriptionFailurePolicyRequest
    ) -> GetSubscriptionFailurePolicyResponse:
        found = self._shown.delivery(self._known(caller, request.topic), request.subscription)
        return GetSubscriptionFailurePolicyResponse(
            failure_policy=failure_policy_message(found.policy), subscription_type=SUBSCRIPTION_TYPES.index(found.type)
        )

    async def _set_dispatch(
        self, caller: Caller, request: SetSubscriptionDispatchConfigRequest
    ) -> SubscriptionResponse:
        wanted = request.dispatch_config
        in_flight = wanted.in_flight if wanted.HasField("in_flight") else None
        max_unacked = None if in_flight is not None and not wanted.max_unacked_messages else wanted.max_unacked_messages
        await ask(SetDispatch(self._known(caller, request.topic), request.subscription, max_unacked, in_flight))
        return SubscriptionResponse(success=True)

    def _get_dispatch(
        self, caller: Caller, request: GetSubscriptionDispatchConfigRequest
    ) -> GetSubscriptionDispatchConfigResponse:
        found = self._shown.delivery(self._known(caller, request.topic), request.subscription)
        config = SubscriptionDispatchConfig(max_unacked_messages=found.max_unacked, in_flight=found.in_flight)
        return GetSubscriptionDispatchConfigResponse(dispatch_config=config)


def _infos(rows: list[TopicRow]) -> TopicInfoListResponse:
    return TopicInfoListResponse(
        topics=[
            TopicInfo(name=namespaced_topic(row.name), broker_id=BROKER_ID, delivery=_delivery(row)) for row in rows
        ]
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
