"""Administration over the Danube wire: namespaces, topics, partitions, subscriptions and their settings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    Block,
    BrokerListResponse,
    BrokerRequest,
    BrokerResponse,
    ClusterBalanceRequest,
    ClusterBalanceResponse,
    ClusterStatusResponse,
    DeadLetter,
    DescribeTopicRequest,
    DescribeTopicResponse,
    Empty,
    Exponential,
    Fixed,
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
    RebalanceRequest,
    RebalanceResponse,
    Reliable,
    SetPoliciesRequest,
    SetSubscriptionDispatchConfigRequest,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionDispatchConfig,
    SubscriptionFailurePolicy,
    SubscriptionListResponse,
    SubscriptionRequest,
    SubscriptionResponse,
    TopicInfoListResponse,
    TopicListResponse,
    TopicRequest,
    TopicResponse,
)
from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    NackRequest,
    NackResponse,
    TopicLookupRequest,
    TopicLookupResponse,
    TopicPartitionsResponse,
)
from raceway.wires.danube.codec.pb.schema_registry_pb2 import RegisterSchemaRequest, RegisterSchemaResponse
from tests.rigs import http_door
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.server import Server, running_server

BROKER, NAMESPACE, TOPIC = "danube_admin.BrokerAdmin/", "danube_admin.NamespaceAdmin/", "danube_admin.TopicAdmin/"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def topic() -> str:
    return f"/default/a{next(_numbers)}"


def status(wire: DanubeWire, method: str, request: Any, kind: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        wire.ask(method, request, kind)
    return refused.value.status


def partitions(wire: DanubeWire, topic: str) -> list[str]:
    request = TopicLookupRequest(topic=topic)
    return list(wire.ask("danube.Discovery/TopicPartitions", request, TopicPartitionsResponse).partitions)


# ---- broker and namespaces -------------------------------------------------------------------------------------------


def test_there_is_one_broker_and_it_leads(server: Server, wire: DanubeWire) -> None:
    [broker] = wire.ask(BROKER + "ListBrokers", Empty(), BrokerListResponse).brokers
    assert broker.broker_addr == broker.admin_addr == danube_url(server)
    assert wire.ask(BROKER + "GetLeaderBroker", Empty(), BrokerResponse).leader == broker.broker_id


def test_a_namespace_is_made_used_and_deleted_when_it_is_empty(wire: DanubeWire) -> None:
    request = NamespaceRequest(name="shop")
    assert wire.ask(NAMESPACE + "CreateNamespace", request, NamespaceResponse).success
    assert status(wire, NAMESPACE + "CreateNamespace", request, NamespaceResponse) == "ALREADY_EXISTS"
    listed = wire.ask(BROKER + "ListNamespaces", Empty(), NamespaceListResponse).namespaces
    assert {"default", "shop"} <= set(listed)
    producer_id = wire.producer("/shop/orders")
    stream = wire.listen(wire.consumer("/shop/orders"))
    wire.send(producer_id, "/shop/orders", b"in a namespace")
    message = next(stream)
    stream.cancel()
    assert (message.payload, message.msg_id.topic_name) == (b"in a namespace", "/shop/orders")
    names = wire.ask(NAMESPACE + "GetNamespaceTopics", request, TopicListResponse).topics
    assert list(names) == ["/shop/orders"]
    assert status(wire, NAMESPACE + "DeleteNamespace", request, NamespaceResponse) == "FAILED_PRECONDITION"
    wire.ask(TOPIC + "DeleteTopic", TopicRequest(name="/shop/orders"), TopicResponse)
    assert wire.ask(NAMESPACE + "DeleteNamespace", request, NamespaceResponse).success
    assert status(wire, NAMESPACE + "DeleteNamespace", request, NamespaceResponse) == "NOT_FOUND"
    assert status(wire, NAMESPACE + "GetNamespaceTopics", request, TopicListResponse) == "NOT_FOUND"


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "a b"])
def test_a_name_that_is_none_makes_no_namespace(wire: DanubeWire, name: str) -> None:
    request = NamespaceRequest(name=name)
    assert status(wire, NAMESPACE + "CreateNamespace", request, NamespaceResponse) == "INVALID_ARGUMENT"


def test_policies_of_a_topic_come_before_those_of_its_namespace(wire: DanubeWire, topic: str) -> None:
    wire.ask(NAMESPACE + "CreateNamespace", NamespaceRequest(name="tight"), NamespaceResponse)
    limits = json.dumps({"max_message_size": 10, "max_producers_per_topic": 1})
    wire.ask(NAMESPACE + "SetNamespacePolicies", SetPoliciesRequest(name="tight", policies=limits), NamespaceResponse)
    shown = wire.ask(NAMESPACE + "GetNamespacePolicies", NamespaceRequest(name="tight"), PolicyResponse).policies
    assert {"max_message_size": 10, "max_producers_per_topic": 1}.items() <= json.loads(shown).items()
    producer_id = wire.producer("/tight/t")
    with pytest.raises(RefusedError) as refused:
        wire.producer("/tight/t", "second")
    assert refused.value.status == "RESOURCE_EXHAUSTED"
    wire.send(producer_id, "/tight/t", b"x" * 10)
    with pytest.raises(RefusedError) as refused:
        wire.send(producer_id, "/tight/t", b"x" * 11)
    assert refused.value.status == "INVALID_ARGUMENT"
    own = SetPoliciesRequest(name="/tight/t", policies='{"max_message_size": 20}')
    wire.ask(TOPIC + "SetTopicPolicies", own, TopicResponse)
    wire.send(producer_id, "/tight/t", b"x" * 20)
    shown = wire.ask(TOPIC + "GetTopicPolicies", TopicRequest(name="/tight/t"), PolicyResponse).policies
    assert json.loads(shown)["max_message_size"] == 20


@pytest.mark.parametrize("policies", ["", "[]", '{"max_message_size": -1}', '{"max_message_size": "10"}'])
def test_policies_that_cannot_be_are_invalid_arguments(wire: DanubeWire, policies: str) -> None:
    request = SetPoliciesRequest(name="default", policies=policies)
    assert status(wire, NAMESPACE + "SetNamespacePolicies", request, NamespaceResponse) == "INVALID_ARGUMENT"


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "delivery"), [(1, "Reliable"), (0, "NonReliable")])
def test_a_topic_is_made_described_and_deleted(wire: DanubeWire, topic: str, strategy: int, delivery: str) -> None:
    request = NewTopicRequest(name=topic, dispatch_strategy=strategy)  # type: ignore[arg-type]  # enums are numbers
    assert wire.ask(TOPIC + "CreateTopic", request, TopicResponse).success
    assert status(wire, TOPIC + "CreateTopic", request, TopicResponse) == "ALREADY_EXISTS"
    wire.consumer(topic, subscription="billing")
    described = wire.ask(TOPIC + "DescribeTopic", DescribeTopicRequest(name=topic), DescribeTopicResponse)
    assert (described.name, described.delivery, list(described.subscriptions)) == (topic, delivery, ["billing"])
    assert not described.HasField("schema_subject")
    for method, listing in (
        ("ListNamespaceTopics", NamespaceRequest(name="default")),
        ("ListBrokerTopics", BrokerRequest(broker_id=described.broker_id)),
    ):
        rows = wire.ask(TOPIC + method, listing, TopicInfoListResponse).topics
        assert [(row.delivery, row.broker_id) for row in rows if row.name == topic] == [(delivery, described.broker_id)]
    assert wire.ask(TOPIC + "DeleteTopic", TopicRequest(name=topic), TopicResponse).success
    assert status(wire, TOPIC + "DescribeTopic", DescribeTopicRequest(name=topic), DescribeTopicResponse) == "NOT_FOUND"
    assert status(wire, TOPIC + "DeleteTopic", TopicRequest(name=topic), TopicResponse) == "NOT_FOUND"
    lookup = TopicLookupRequest(topic=topic)
    assert status(wire, "danube.Discovery/TopicLookup", lookup, TopicLookupResponse) == "NOT_FOUND"


def test_a_topic_made_with_a_subject_has_it(wire: DanubeWire, topic: str) -> None:
    schema = RegisterSchemaRequest(subject=f"of-{topic[9:]}", schema_type="string", schema_definition=b"x")
    made = wire.ask("danube_schema.SchemaRegistry/RegisterSchema", schema, RegisterSchemaResponse)
    wire.ask(TOPIC + "CreateTopic", NewTopicRequest(name=topic, schema_subject=schema.subject), TopicResponse)
    described = wire.ask(TOPIC + "DescribeTopic", DescribeTopicRequest(name=topic), DescribeTopicResponse)
    assert (described.schema_subject, described.schema_id, described.schema_version) == (
        schema.subject, made.schema_id, 1,
    )  # fmt: skip
    assert (described.schema_type, described.compatibility_mode) == ("string", "BACKWARD")
    unknown = NewTopicRequest(name=topic + "x", schema_subject="nobody")
    assert status(wire, TOPIC + "CreateTopic", unknown, TopicResponse) == "FAILED_PRECONDITION"
    assert partitions(wire, topic + "x") == []


def test_a_partitioned_topic_has_its_number_of_partitions_for_good(wire: DanubeWire, topic: str) -> None:
    request = PartitionedTopicRequest(base_name=topic, partitions=3, dispatch_strategy=Reliable)
    wire.ask(TOPIC + "CreatePartitionedTopic", request, TopicResponse)
    assert partitions(wire, topic) == [f"{topic}-part-{number}" for number in range(3)]
    assert status(wire, TOPIC + "CreatePartitionedTopic", request, TopicResponse) == "ALREADY_EXISTS"
    for number in range(3):
        wire.consumer(f"{topic}-part-{number}", subscription="s")
    listed = wire.ask(TOPIC + "ListSubscriptions", TopicRequest(name=topic), SubscriptionListResponse)
    assert list(listed.subscriptions) == ["s"]
    part = TopicRequest(name=f"{topic}-part-1")
    assert status(wire, TOPIC + "DeleteTopic", part, TopicResponse) == "INVALID_ARGUMENT"
    wire.ask(TOPIC + "DeleteTopic", TopicRequest(name=topic), TopicResponse)
    assert partitions(wire, topic) == []


@pytest.mark.parametrize("number", [0, 2**32 - 1])
def test_a_number_of_partitions_that_cannot_be_is_an_invalid_argument(
    wire: DanubeWire, topic: str, number: int
) -> None:
    request = PartitionedTopicRequest(base_name=topic, partitions=number)
    assert status(wire, TOPIC + "CreatePartitionedTopic", request, TopicResponse) == "INVALID_ARGUMENT"


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_subscription_goes_when_nobody_listens(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    consumer_id = wire.consumer(topic)
    stream = wire.listen(consumer_id)
    wire.send(wire.producer(topic), topic)
    next(stream)  # it is open for certain
    request = SubscriptionRequest(topic=topic, subscription="s")
    assert status(wire, TOPIC + "Unsubscribe", request, SubscriptionResponse) == "FAILED_PRECONDITION"
    stream.cancel()
    wire.producer(topic)  # the cancellation came before this
    wire.ask(TOPIC + "Unsubscribe", request, SubscriptionResponse)
    assert status(wire, TOPIC + "Unsubscribe", request, SubscriptionResponse) == "NOT_FOUND"
    listed = wire.ask(TOPIC + "ListSubscriptions", TopicRequest(name=topic), SubscriptionListResponse)
    assert list(listed.subscriptions) == []


def test_a_failure_policy_is_set_and_shown(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    wire.consumer(topic, type=2)
    asked = GetSubscriptionFailurePolicyRequest(topic=topic, subscription="s")
    before = wire.ask(TOPIC + "GetSubscriptionFailurePolicy", asked, GetSubscriptionFailurePolicyResponse)
    assert before.subscription_type == 2
    assert before.failure_policy == SubscriptionFailurePolicy(
        max_redelivery_count=5, ack_timeout_ms=30_000, base_redelivery_delay_ms=1000, max_redelivery_delay_ms=60_000,
        backoff_strategy=Exponential, poison_policy=Block,
    )  # fmt: skip
    policy = SubscriptionFailurePolicy(
        max_redelivery_count=2, ack_timeout_ms=500, base_redelivery_delay_ms=1, max_redelivery_delay_ms=9,
        backoff_strategy=Fixed, poison_policy=DeadLetter, dead_letter_topic="/default/morgue",
    )  # fmt: skip
    request = SetSubscriptionFailurePolicyRequest(topic=topic, subscription="s", failure_policy=policy)
    wire.ask(TOPIC + "SetSubscriptionFailurePolicy", request, SubscriptionResponse)
    after = wire.ask(TOPIC + "GetSubscriptionFailurePolicy", asked, GetSubscriptionFailurePolicyResponse)
    assert after.failure_policy == policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"poison_policy": 0},  # dead letters without a topic
        {"poison_policy": 0, "dead_letter_topic": "nowhere"},
        {"poison_policy": 9},
        {"backoff_strategy": 9},
        {"ack_timeout_ms": 0},
        {"ack_timeout_ms": 2**64 - 1},
    ],
)
def test_a_failure_policy_that_cannot_be_is_an_invalid_argument(
    wire: DanubeWire, topic: str, wrong: dict[str, Any]
) -> None:
    wire.producer(topic)
    wire.consumer(topic)
    fields = {"poison_policy": 1, "ack_timeout_ms": 1000} | wrong
    request = SetSubscriptionFailurePolicyRequest(
        topic=topic, subscription="s", failure_policy=SubscriptionFailurePolicy(**fields)
    )
    method = TOPIC + "SetSubscriptionFailurePolicy"
    assert status(wire, method, request, SubscriptionResponse) == "INVALID_ARGUMENT"
    request.failure_policy.CopyFrom(SubscriptionFailurePolicy(poison_policy=Block, ack_timeout_ms=1))
    request.subscription = ""
    assert status(wire, method, request, SubscriptionResponse) == "INVALID_ARGUMENT"
    request.topic, request.subscription = topic + ".other", "s"
    assert status(wire, method, request, SubscriptionResponse) == "NOT_FOUND"


def test_a_failure_policy_is_kept_for_a_subscription_to_come(wire: DanubeWire, topic: str) -> None:
    asked = GetSubscriptionFailurePolicyRequest(topic=topic, subscription="s")
    get, shown = TOPIC + "GetSubscriptionFailurePolicy", GetSubscriptionFailurePolicyResponse
    producer = wire.producer(topic)
    assert status(wire, get, asked, shown) == "NOT_FOUND", "nothing is set, and nobody has subscribed"
    policy = SubscriptionFailurePolicy(
        max_redelivery_count=0, ack_timeout_ms=5000, base_redelivery_delay_ms=50, max_redelivery_delay_ms=50,
        backoff_strategy=Fixed, poison_policy=DeadLetter, dead_letter_topic=topic + ".dead",
    )  # fmt: skip
    request = SetSubscriptionFailurePolicyRequest(topic=topic, subscription="s", failure_policy=policy)
    wire.ask(TOPIC + "SetSubscriptionFailurePolicy", request, SubscriptionResponse)
    assert wire.ask(get, asked, shown).failure_policy == policy
    wire.producer(topic + ".dead")
    letters = wire.listen(wire.consumer(topic + ".dead"))
    stream = wire.listen(wire.consumer(topic, type=1))
    wire.send(producer, topic, b"refused")
    nack = NackRequest(msg_id=next(stream).msg_id, subscription_name="s", reason="cannot be read")
    wire.ask("danube.ConsumerService/Nack", nack, NackResponse)
    letter = next(letters)
    assert (letter.payload, letter.attributes["x-failure-reason"]) == (b"refused", "cannot be read")
    after = wire.ask(get, asked, shown)
    assert (after.failure_policy, after.subscription_type) == (policy, 1)
    stream.cancel()
    letters.cancel()


def test_the_number_of_unacknowledged_messages_is_what_was_set(wire: DanubeWire, topic: str) -> None:
    producer_id, consumer_id = wire.producer(topic), wire.consumer(topic)
    asked = GetSubscriptionDispatchConfigRequest(topic=topic, subscription="s")
    answer = wire.ask(TOPIC + "GetSubscriptionDispatchConfig", asked, GetSubscriptionDispatchConfigResponse)
    assert answer.dispatch_config.max_unacked_messages == 100
    config = SubscriptionDispatchConfig(max_unacked_messages=2)
    request = SetSubscriptionDispatchConfigRequest(topic=topic, subscription="s", dispatch_config=config)
    wire.ask(TOPIC + "SetSubscriptionDispatchConfig", request, SubscriptionResponse)
    answer = wire.ask(TOPIC + "GetSubscriptionDispatchConfig", asked, GetSubscriptionDispatchConfigResponse)
    assert answer.dispatch_config.max_unacked_messages == 2
    stream = wire.listen(consumer_id)
    for number in range(4):
        wire.send(producer_id, topic, b"%d" % number)
    first, second = next(stream), next(stream)
    wire.ack(second)
    assert next(stream).payload == b"2"  # one out, one in
    wire.ack(first)
    assert next(stream).payload == b"3"
    stream.cancel()
    for wrong in (0, 10_001):
        request.dispatch_config.max_unacked_messages = wrong
        method = TOPIC + "SetSubscriptionDispatchConfig"
        assert status(wire, method, request, SubscriptionResponse) == "INVALID_ARGUMENT"


def test_settings_survive_a_restart(topic: str) -> None:
    with running_server() as server:
        with danube_wire(server) as wire:
            wire.ask(NAMESPACE + "CreateNamespace", NamespaceRequest(name="kept"), NamespaceResponse)
            wire.producer("/kept/t")
            wire.consumer("/kept/t")
            config = SubscriptionDispatchConfig(max_unacked_messages=7)
            request = SetSubscriptionDispatchConfigRequest(topic="/kept/t", subscription="s", dispatch_config=config)
            wire.ask(TOPIC + "SetSubscriptionDispatchConfig", request, SubscriptionResponse)
        server.kill()
        server.start()
        with danube_wire(server) as wire:
            asked = GetSubscriptionDispatchConfigRequest(topic="/kept/t", subscription="s")
            answer = wire.ask(TOPIC + "GetSubscriptionDispatchConfig", asked, GetSubscriptionDispatchConfigResponse)
            assert answer.dispatch_config.max_unacked_messages == 7


# ---- the cluster -----------------------------------------------------------------------------------------------------


def test_the_cluster_is_this_one_broker(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    found = wire.ask("danube_admin.ClusterAdmin/ClusterStatus", Empty(), ClusterStatusResponse)
    assert (found.leader_id, found.self_node_id, list(found.voters), list(found.learners)) == (1, 1, [1], [])
    assert found.last_applied > 0
    leader = wire.ask("danube_admin.BrokerAdmin/GetLeaderBroker", Empty(), BrokerResponse)
    assert leader.leader == str(found.leader_id)


def test_one_broker_is_in_balance_and_has_nothing_to_move(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    listed = wire.ask("danube_admin.TopicAdmin/ListBrokerTopics", BrokerRequest(broker_id="1"), TopicInfoListResponse)
    asked = ClusterBalanceRequest()
    found = wire.ask("danube_admin.BrokerAdmin/GetClusterBalance", asked, ClusterBalanceResponse)
    assert (found.broker_count, found.coefficient_of_variation, found.std_deviation) == (1, 0, 0)
    assert found.mean_load == found.max_load == found.min_load == len(listed.topics) > 0
    assert [(each.broker_id, each.topic_count) for each in found.brokers] == [(1, len(listed.topics))]
    moved = wire.ask("danube_admin.BrokerAdmin/TriggerRebalance", RebalanceRequest(), RebalanceResponse)
    assert (moved.success, moved.moves_executed, len(moved.proposed_moves)) == (True, 0, 0)


def test_changes_are_recorded_and_questions_are_not(server: Server, wire: DanubeWire, topic: str) -> None:
    def entries() -> list[dict[str, Any]]:
        answer = http_door.get(server, "/topics/raceway.audit?from=first&limit=1000")
        return list(answer.json()["messages"]) if answer.status == 200 else []

    wire.ask(TOPIC + "CreateTopic", NewTopicRequest(name=topic), TopicResponse)
    before = len(entries())
    assert wire.ask(TOPIC + "DescribeTopic", DescribeTopicRequest(name=topic), DescribeTopicResponse).name == topic
    assert status(wire, TOPIC + "DeleteTopic", TopicRequest(name="/default/nosuch"), TopicResponse) == "NOT_FOUND"
    wire.ask(TOPIC + "DeleteTopic", TopicRequest(name=topic), TopicResponse)
    made, *_, deleted = entries()[before - 1 :]
    assert len(entries()) == before + 1
    assert made["attributes"]["action"] == "Create topic"
    facts = deleted["attributes"]
    assert (facts["action"], facts["path"]) == ("Delete topic", "/danube_admin.TopicAdmin/DeleteTopic")
    assert facts["principal"] == deleted["producer"]
    assert facts["address"].startswith("127.0.0.1:")
    assert json.loads(deleted["payload"]) == {"name": topic}
