"""Calls of clients other than messages: topic lookup, creating producers and consumers, health checks."""

from __future__ import annotations

from typing import Any, ClassVar

from raceway.errors import InvalidValueError
from raceway.model.intents.producers import CreateProducer, TouchProducer
from raceway.model.intents.subscriptions import AttachConsumer, FindConsumer
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, ConsumerWanted, ProducerWanted, parse_start
from raceway.model.topics import namespaced_topic
from raceway.wires.danube.codec.pb import danube_api_pb2 as pb
from raceway.wires.danube.listen.calls import Caller, DanubeService, ask, is_reliable


class ClientCalls(DanubeService):
    services: ClassVar[tuple[str, ...]] = (
        "danube.Discovery", "danube.ProducerService", "danube.ConsumerService", "danube.HealthCheck",
    )  # fmt: skip

    # ---- discovery ---------------------------------------------------------------------------------------------------

    def topic_lookup(self, caller: Caller, request: pb.TopicLookupRequest) -> pb.TopicLookupResponse:
        self._known(caller, request.topic, "Lookup")
        address = self._calls.address(caller.session)
        return pb.TopicLookupResponse(
            request_id=request.request_id, response_type=pb.TopicLookupResponse.Connect, connect_url=address,
            broker_url=address,
        )  # fmt: skip

    def topic_partitions(self, caller: Caller, request: pb.TopicLookupRequest) -> pb.TopicPartitionsResponse:
        """Return the partitions of a topic. An unknown topic has none and is no error: clients rely on that."""
        topic = self._topic(caller, request.topic, "Lookup")
        return pb.TopicPartitionsResponse(
            request_id=request.request_id,
            partitions=[namespaced_topic(name) for name in self._topics.partitions(topic)],
        )

    # ---- producers and consumers -------------------------------------------------------------------------------------

    async def create_producer(self, caller: Caller, request: pb.ProducerRequest) -> pb.ProducerResponse:
        topic = self._topic(caller, request.topic_name, "Produce")
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
        return pb.ProducerResponse(request_id=request.request_id, producer_id=row.id, producer_name=row.name)

    async def subscribe(self, caller: Caller, request: pb.ConsumerRequest) -> pb.ConsumerResponse:
        topic = self._topic(caller, request.topic_name, "Consume")
        if not 0 <= request.subscription_type < len(SUBSCRIPTION_TYPES):
            raise InvalidValueError("subscription_type", f"unknown type {request.subscription_type}")
        if request.create_topic and not self._topics.partitions(topic):
            self._check(caller, "Produce", topic)  # the permission that a producer needs to create a topic
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
        return pb.ConsumerResponse(request_id=request.request_id, consumer_id=row.id, consumer_name=row.name)

    async def health_check(self, caller: Caller, request: pb.HealthCheckRequest) -> pb.HealthCheckResponse:
        if request.client == pb.HealthCheckRequest.Producer:
            known = await ask(TouchProducer(request.id))
        elif request.client == pb.HealthCheckRequest.Consumer:
            known = await ask(FindConsumer(request.id))
        else:
            raise InvalidValueError("client", f"unknown client type {request.client}")
        return pb.HealthCheckResponse(
            status=pb.HealthCheckResponse.OK if known.changed else pb.HealthCheckResponse.CLOSE
        )


def _schema(reference: pb.SchemaReference) -> dict[str, Any]:
    """Return the schema fields of `ProducerWanted`. Without a version the latest is meant."""
    kind = reference.WhichOneof("version_ref")
    return {
        "subject": reference.subject,
        "version": reference.pinned_version if kind == "pinned_version" else None,
        "min_version": reference.min_version if kind == "min_version" else None,
    }
