"""Questions are short and their answers may be long: a read full of them does not stop the bus or fill its memory."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from raceway.config import MIB
from tests.rigs.http2 import GREETING, data, headers, message, with_fields
from tests.rigs.mb_wire import SUCCESS, TcpPeer, compose, connect_socket, new_id
from tests.rigs.server import Server, running_server
from tests.rigs.vectors.mb import frame
from tests.rigs.zbus_wire import Client

QUEUES, SUBSCRIPTIONS = 3000, 6000
QUESTIONS = 300
# Questions that come in one read are counted together; they may come in a few.
GROWTH = 48 * MIB


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        with closing(Client(server.port("zbus"))) as client:
            for number in range(QUEUES):
                client.send(
                    "admin",
                    json.dumps({"mqName": f"queue.of.some.length.{number}", "mqMode": "1"}),
                    method="create_mq",
                )
            assert {client.receive().status for _ in range(QUEUES)} == {200}
        yield server


@pytest.fixture(autouse=True)
def memory_is_bounded(server: Server) -> Iterator[None]:
    server.forget_peak()
    before = server.rss()
    yield
    assert server.peak_rss() - before < GROWTH


@pytest.mark.parametrize("call", ["system.topic.list", "system.service.subscriptions"])
def test_mb(server: Server, call: str) -> None:
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        for number in range(SUBSCRIPTIONS):
            wanted = {"action": "request", "topic": f"topic.of.x{number}"}
            peer.send(f"request:system.topic.subscribe:1.0.0:{new_id()}", wanted)
        assert {peer.receive().payload for _ in range(SUBSCRIPTIONS)} == {SUCCESS}
        ids = [new_id() for _ in range(QUESTIONS)]
        peer.write_bytes(b"".join(frame(compose(f"request:{call}:1.0.0:{each}")) for each in ids))
        answers = [peer.reply(each) for each in ids]
        codes = Counter(
            answer.json().get("error", {}).get("code", "") if len(answer.payload) < 1000 else "" for answer in answers
        )
        assert set(codes) == {"", "SERVICE_UNAVAILABLE"}
        assert codes["SERVICE_UNAVAILABLE"] > QUESTIONS // 2
        assert len(peer.ask(call).payload) > SUBSCRIPTIONS * 20, "the next turn has room again"


def test_zbus(server: Server) -> None:
    with closing(Client(server.port("zbus"))) as client:
        client.write(b"GET /data HTTP/1.1\r\ncmd: admin\r\nmethod: data\r\n\r\n" * QUESTIONS)
        statuses = Counter(client.receive().status for _ in range(QUESTIONS))
        assert set(statuses) == {200, 503}
        assert statuses[503] > QUESTIONS // 2
        assert client.admin("data").status == 200


def test_danube(server: Server) -> None:
    head = with_fields(path="/danube_admin.TopicAdmin/ListBrokerTopics")
    questions = b"".join(headers(n, *head) + data(n, message(b"")) for n in range(1, 2 * QUESTIONS, 2))
    with socket.create_connection(("127.0.0.1", server.port("danube")), timeout=20) as connection:
        connection.sendall(GREETING + questions)
        said = bytearray()
        # What was answered waits for our windows; what was refused needs none.
        while said.count(b"too many long answers") <= QUESTIONS // 2:
            said += connection.recv(1 << 16)
    assert b"/default/queue.of.some.length.1" in said
