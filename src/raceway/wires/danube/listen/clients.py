"""Calls of clients other than messages: topic lookup, creating producers and consumers, health checks."""

from __future__ import annotations

from typing import Any

from raceway.errors import InvalidValueError, UnknownTopicError
from raceway.model.intents.producers import CreateProducer, TouchProducer
from raceway.model.intents.subscriptions import AttachConsumer, FindConsumer
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, ConsumerWanted, ProducerWanted, parse_start
from raceway.model.topics import namespaced_topic, parse_namespaced_topic
from raceway.net.grpc import Methods
from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    ConsumerRequest,
    ConsumerResponse,
    HealthCheckRequest,
    HealthCheckResponse,
    ProducerRequest,
    ProducerResponse,
    SchemaReference,
    TopicLookupRequest,
    TopicLookupResponse,
    TopicPartitionsResponse,
)
from raceway.wires.danube.listen.calls import Caller, DanubeCalls, Handlers, ask, is_reliable


class Clients:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        self._topics = calls.door.view.administration

    def join(self, methods: Methods) -> None:
        serve = self._calls.serve
        lookups: Handlers = {
            "TopicLookup": (TopicLookupRequest, self._look_up),
            "TopicPartitions": (TopicLookupRequest, self._list_partitions),
        }
        serve(methods, "danube.Discovery", lookups)
        producers: Handlers = {"CreateProducer": (ProducerRequest, self._create_producer)}
        serve(methods, "danube.ProducerService", producers)
        consumers: Handlers = {"Subscribe": (ConsumerRequest, self._subscribe)}
        serve(methods, "danube.ConsumerService", consumers)
        serve(methods, "danube.HealthCheck", {"HealthCheck": (HealthCheckRequest, self._check_health)})

    # ---- discovery ---------------------------------------------------------------------------------------------------

    def _look_up(self, caller: Caller, request: TopicLookupRequest) -> TopicLookupResponse:
        topic = parse_namespaced_topic(request.topic)
        self._calls.check(caller, "Lookup", topic)
        if not self._topics.partitions(topic):
            raise UnknownTopicError(request.topic)
        address = self._calls.address(caller.session)
        return TopicLookupResponse(
            request_id=request.request_id, response_type=TopicLookupResponse.Connect, connect_url=address,
            broker_url=address,
        )  # fmt: skip

    def _list_partitions(self, caller: Caller, request: TopicLookupRequest) -> TopicPartitionsResponse:
        """Return the partitions of a topic. An unknown topic has none and is no error: clients rely on that."""
        topic = parse_namespaced_topic(request.topic)
        self._calls.check(caller, "Lookup", topic)
        return TopicPartitionsResponse(
            request_id=request.request_id,
            partitions=[namespaced_topic(name) for name in self._topics.partitions(topic)],
        )

    # ---- producers and consumers -------------------------------------------------------------------------------------

    async def _create_producer(self, caller: Caller, request: ProducerRequest) -> ProducerResponse:
        topic = parse_namespaced_topic(request.topic_name)
        self._calls.check(caller, "Produce", topic)
        reliable = is_reliable(request.dispatch_strategy)
        if request.producer_access_mode not in (0, 1):
            raise InvalidValueError("producer_access_mode", f"unknown mode {request.producer_access_mode}")
        wanted = ProducerWanted(
            topic=topic,
            name=request.producer_name,
            reliable=reliable,
            exclusive=request.producer_access_mode == 1,
            **(_schema(request.schema_ref) if request.HasField("schema_ref") else {}),
        )
        row = await ask(CreateProducer(wanted))
        return ProducerResponse(request_id=request.request_id, producer_id=row.id, producer_name=row.name)

    async def _subscribe(self, caller: Caller, request: ConsumerRequest) -> ConsumerResponse:
        topic = parse_namespaced_topic(request.topic_name)
        self._calls.check(caller, "Consume", topic)
        if not 0 <= request.subscription_type < len(SUBSCRIPTION_TYPES):
            raise InvalidValueError("subscription_type", f"unknown type {request.subscription_type}")
        if request.create_topic and not self._topics.partitions(topic):
            self._calls.check(caller, "Produce", topic)  # the permission that a producer needs to create a topic
        wanted = ConsumerWanted(
            topic=topic,
            name=request.consumer_name,
            subscription=request.subscription,
            type=SUBSCRIPTION_TYPES[request.subscription_type],
            filters=tuple(request.key_filters),
            in_flight=request.in_flight if request.HasField("in_flight") else None,
            start=parse_start(request.start),
            create_topic=request.create_topic,
        )
        row = await ask(AttachConsumer(wanted))
        return ConsumerResponse(request_id=request.request_id, consumer_id=row.id, consumer_name=row.name)

    async def _check_health(self, caller: Caller, request: HealthCheckRequest) -> HealthCheckResponse:
        if request.client == HealthCheckRequest.Producer:
            known = await ask(TouchProducer(request.id))
        elif request.client == HealthCheckRequest.Consumer:
            known = await ask(FindConsumer(request.id))
        else:
            raise InvalidValueError("client", f"unknown client type {request.client}")
        return HealthCheckResponse(status=HealthCheckResponse.OK if known.changed else HealthCheckResponse.CLOSE)


def _schema(reference: SchemaReference) -> dict[str, Any]:
    """Return the schema fields of `ProducerWanted`. Without a version the latest is meant."""
    kind = reference.WhichOneof("version_ref")
    return {
        "subject": reference.subject,
        "version": reference.pinned_version if kind == "pinned_version" else None,
        "min_version": reference.min_version if kind == "min_version" else None,
    }
