"""Topics stay for ever: one address may make only so many at a time, on every wire; all are there after a restart."""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_api_pb2 import ConsumerRequest, ProducerRequest
from tests.rigs.mb_wire import compose, connect, fresh_topic
from tests.rigs.rounds import SOAKING
from tests.rigs.schema_rest import call
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import Client

BURST = 5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One address has used up what it may make."""
    with running_server(RACEWAY_BROKER__TOPIC_RATE=1, RACEWAY_BROKER__TOPIC_BURST=BURST) as server:
        publish(server, [fresh_topic() for _ in range(100)])
        wait_until(lambda: server.metric("raceway_refused_topics_total") > 90, 10)
        yield server


def publish(server: Server, topics: list[str]) -> None:
    """One-way, over MB."""
    messages = [b"publish:%b:1.0.0\nx" % topic.encode() for topic in topics]
    with socket.create_connection(("127.0.0.1", server.port("tcp"))) as connection:
        for at in range(0, len(messages), 1000):
            connection.sendall(b"".join(struct.pack(">I", len(each)) + each for each in messages[at : at + 1000]))
            while at + 1000 < len(messages) and connection.recv(1 << 20).count(b"error") == 0:
                pass
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass


def test_mb_is_told_that_the_service_is_unavailable(server: Server) -> None:
    with connect(server, "tcp") as peer:
        codes = set()
        for _ in range(3):
            peer.write_messages([compose(f"publish:{fresh_topic()}:1.0.0", b"x")])
            codes.add(peer.receive().json()["error"]["code"])
        assert "SERVICE_UNAVAILABLE" in codes


def test_zbus_is_told_503(server: Server) -> None:
    with closing(Client(server.port("zbus"))) as client:
        wanted = [json.dumps({"mqName": fresh_topic(), "mqMode": "1", "accessToken": ""}) for _ in range(3)]
        assert 503 in [client.admin("create_mq", document).status for document in wanted]


def test_seneca_is_told_that_the_bus_is_overloaded(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port("seneca_tcp")), timeout=10) as connection:
        for _ in range(3):
            connection.sendall(json.dumps({"role": fresh_topic(), "meta$": {"sy": True}}).encode() + b"\n")
        said = b""
        while said.count(b"\n") < 3:
            said += connection.recv(1 << 16)
        assert b"overloaded" in said


def test_danube_is_told_to_come_back_later(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port('danube')}") as channel:
        create = channel.unary_unary(
            "/danube.ProducerService/CreateProducer", request_serializer=ProducerRequest.SerializeToString
        )

        def create_three() -> None:
            for number in range(3):
                create(ProducerRequest(request_id=number, producer_name="p", topic_name=f"/default/{fresh_topic()}"))

        with pytest.raises(grpc.RpcError) as refusal:
            create_three()
    assert refusal.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


def test_a_consumer_that_comes_first_makes_no_more_than_a_producer(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port('danube')}") as channel:
        subscribe = channel.unary_unary(
            "/danube.ConsumerService/Subscribe", request_serializer=ConsumerRequest.SerializeToString
        )

        def subscribe_three() -> None:
            for _ in range(3):
                subscribe(ConsumerRequest(
                    topic_name=f"/default/{fresh_topic()}", consumer_name="c", subscription="s", create_topic=True
                ))  # fmt: skip

        with pytest.raises(grpc.RpcError, match="too many new topics"):
            subscribe_three()


def test_a_subscription_made_over_rest_neither(server: Server) -> None:
    wanted = [{"topic": fresh_topic(), "name": "s", "create_topic": True} for _ in range(3)]
    assert 503 in [call(server, "POST", "/api/subscriptions", each).status for each in wanted]


def test_http_is_told_503(server: Server) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def publish_three() -> None:
        for _ in range(3):
            url = f"http://127.0.0.1:{server.port('console')}/topics/{fresh_topic()}"
            opener.open(urllib.request.Request(url, b"x", method="POST"), timeout=10).close()

    with pytest.raises(urllib.error.HTTPError) as refusal:
        publish_three()
    with refusal.value as answer:
        assert answer.code == 503


def test_topics_that_are_there_can_be_used(server: Server) -> None:
    status, body = server.http("/api/topics")
    assert status == 200
    known = json.loads(body)["topics"][0]["topic"]
    before = server.metric("raceway_messages_total", wire="mb", kind="publish")
    refused = server.metric("raceway_refused_topics_total")
    publish(server, [known] * 50)
    assert server.metric("raceway_messages_total", wire="mb", kind="publish") == before + 50
    assert server.metric("raceway_refused_topics_total") == refused


def test_many_topics_are_there_after_a_restart() -> None:
    """200,000 in `make soak`."""
    count = 200_000 if SOAKING else 5000
    with running_server(RACEWAY_BROKER__TOPIC_RATE=0) as server:
        publish(server, [f"plant.sensor{number}" for number in range(count)])
        wait_until(lambda: server.metric("raceway_topics") >= count, 120)
        known = server.metric("raceway_topics")
        server.stop(60)
        server.start(60)
        assert server.metric("raceway_topics") == known
        server.kill()
        server.start(60)
        assert server.metric("raceway_topics") == known
