"""What Danube promises of a message, sentence by sentence: its identity, its order, and the schema that it names."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from raceway.wires.danube.codec.pb.danube_api_pb2 import MessageResponse, MsgID, StreamMessage
from raceway.wires.danube.codec.pb.schema_registry_pb2 import GetSchemaRequest, GetSchemaResponse
from tests.rigs.danube_process import DanubeProcess, RefusedError, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.mb_wire import connect
from tests.rigs.server import Server, running_server, wait_until

SEND = "danube.ProducerService/SendMessage"
_numbers = itertools.count()


def schema(*required: str, **properties: str) -> str:
    described = {name: {"type": kind} for name, kind in properties.items()}
    return json.dumps({"type": "object", "properties": described, "required": list(required)}, indent=2)


NUMBERED, NAMED = schema("id", id="integer"), schema("id", id="string")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_BROKER__SCHEMAS__WARN_S=0) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def topic() -> str:
    return f"/default/i{next(_numbers)}"


# ---- identity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_offsets_are_strictly_ordered_over_all_producers_of_a_topic(
    server: Server, client: DanubeProcess, topic: str, reliable: bool
) -> None:
    """Three producers at once; a producer's id and an offset name a message, and nothing else does."""
    consumer, producers = "c" + topic, [f"{topic}-{number}" for number in range(3)]
    for producer in producers:
        client.create(producer, topic, reliable=reliable)
    client.subscribe(consumer, topic, "s")
    client.keep_receiving(consumer)
    before = client.progress()[0]
    for producer in producers:
        client.keep_sending(producer, (producer,))
    wait_until(lambda: all(client.progress()[0].get(each, 0) >= 50 for each in producers), 30)
    client.stop_sending()
    stored = sum(count for name, count in client.progress()[0].items() if name not in before)
    wait_until(lambda: len(client.came(consumer)) >= stored, what="all that was stored")
    came = client.came(consumer)
    assert [each.offset for each in came] == list(range(len(came)))
    for producer in producers:
        mine = [each.number for each in came if each.key == producer]
        assert mine == list(range(len(mine))), "in the order in which it was sent"


def test_an_identity_lives_on_through_redelivery_and_restart() -> None:
    with running_server() as server:
        with danube_wire(server) as wire:
            producer_id, consumer_id = wire.producer("/default/t"), wire.consumer("/default/t")
            sent = StreamMessage(
                msg_id=MsgID(producer_id=producer_id, topic_name="/default/t", broker_addr="liar"),
                request_id=2**64 - 1, payload=b"\0\xff", publish_time=77, producer_name="p",
                subscription_name="made up",
                attributes={"a": "b"}, schema_id=5, schema_version=6, routing_key="",
            )  # fmt: skip
            wire.ask(SEND, sent, MessageResponse)
            first = next(wire.listen(consumer_id))
        assert first.msg_id == MsgID(
            producer_id=producer_id, topic_name="/default/t", broker_addr=danube_url(server), topic_offset=0
        )
        assert first.subscription_name == "s"
        sent.msg_id.CopyFrom(first.msg_id)
        sent.subscription_name = "s"
        assert first == sent, "everything else is as it was sent"
        server.kill()
        server.start()
        with danube_wire(server) as wire:
            assert wire.producer("/default/t") == producer_id
            wire.send(producer_id, "/default/t", b"next")
            stream = wire.listen(consumer_id)
            again, following = next(stream), next(stream)
            assert again == first
            assert (following.payload, following.msg_id.topic_offset) == (b"next", 1)
            stream.cancel()


def test_a_topic_is_called_in_letters_of_any_script(wire: DanubeWire) -> None:
    for topic in ("/default/заказы.2026", "/default/注文_1-a", "/default/" + "x" * 200):
        producer_id = wire.producer(topic)
        stream = wire.listen(wire.consumer(topic))
        wire.send(producer_id, topic, b"x")
        assert next(stream).msg_id.topic_name == topic
        stream.cancel()


# ---- the schema of a message -----------------------------------------------------------------------------------------


def test_a_consumer_finds_the_schema_that_each_message_names(
    client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    """Versions may be mixed on a topic, and each message is checked against its own."""
    subject = f"mixed-{next(_numbers)}"
    schema_id = client.schema("register", subject, "json_schema", NUMBERED)
    client.schema("set_compatibility_mode", subject, "none")
    client.schema("register", subject, "json_schema", NAMED)
    client.create("old" + topic, topic, subject=subject, version=1)
    client.create("new" + topic, topic, subject=subject)
    client.schema("configure_topic_schema", topic, subject, "enforce", True)
    client.subscribe("c" + topic, topic, "s")
    client.send("old" + topic, b'{"id": 1}')
    client.send("new" + topic, b'{"id": "one"}')
    client.send("old" + topic, b'{"id": 2}')
    for producer, payload in (("old", b'{"id": "one"}'), ("new", b'{"id": 1}')):
        with pytest.raises(RefusedError, match="payload_invalid"):
            client.send(producer + topic, payload)
    got = client.receive("c" + topic, 3, ack=True)
    assert [message.schema_version for message in got] == [1, 2, 1]
    for message, wanted in zip(got, (NUMBERED, NAMED, NUMBERED), strict=True):
        asked = GetSchemaRequest(schema_id=message.schema_id or 0, version=message.schema_version)
        found = wire.ask("danube_schema.SchemaRegistry/GetSchema", asked, GetSchemaResponse)
        assert (found.schema_id, found.schema_definition.decode()) == (schema_id, wanted), "byte for byte"


def test_a_violation_is_counted_and_named_and_what_is_refused_is_kept_apart(
    server: Server, client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    def counted(policy: str) -> float:
        return server.metric("raceway_schema_violations_total", policy=policy, rule="missing_schema_id")

    subject = f"judged-{next(_numbers)}"
    client.schema("register", subject, "json_schema", NUMBERED)
    producer_id = wire.producer(topic)
    client.schema("configure_topic_schema", topic, subject, "warn", True)
    before = counted("warn")
    wire.send(producer_id, topic, b"let pass")
    assert counted("warn") == before + 1
    wait_until(lambda: "schema violated" in server.stderr and topic[9:] in server.stderr, what="the warning")
    client.schema("update_topic_validation_policy", topic, "enforce", True)
    with connect(server, "tcp") as mb:
        mb.subscribe("raceway.rejected")
        before = counted("enforce")
        with pytest.raises(RefusedError) as refusal:
            wire.send(producer_id, topic, b"refused")
        assert (refusal.value.status, refusal.value.text.split(maxsplit=1)[0].rstrip(":")) == (
            "PERMISSION_DENIED",
            "missing_schema_id",
        )
        assert counted("enforce") == before + 1
        assert mb.wait_for(lambda message: message.topic == "raceway.rejected").payload == b"refused"
