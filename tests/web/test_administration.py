"""Topics, subscriptions, queues and connections changed over the console port of a started server."""

from __future__ import annotations

import itertools
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from raceway.client import sync
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.server import Server, running_server, wait_until

numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def danube(server: Server) -> Iterator[sync.SyncDanubeClient]:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as client:
        yield client


def call(server: Server, method: str, path: str, document: Any = None, **query: Any) -> tuple[int, Any]:
    """Status and document of an answer; `bearer` is sent as the token."""
    bearer = query.pop("bearer", "")
    url = f"http://127.0.0.1:{server.port('console')}{path}" + (f"?{urlencode(query)}" if query else "")
    body = None if document is None else json.dumps(document).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)["error"]


def new() -> str:
    return f"web.a{next(numbers)}"


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_once_and_deleted(server: Server) -> None:
    topic = new()
    assert call(server, "POST", "/api/topics", {"topic": topic}) == (201, {"topic": topic, "partitions": []})
    status, error = call(server, "POST", "/api/topics", {"topic": topic})
    assert (status, error["code"]) == (409, "topic_kind")
    assert call(server, "GET", f"/api/topics/{topic}")[1]["next"] == 0
    assert call(server, "DELETE", "/api/topics", topic=topic) == (200, {"topic": topic})
    assert call(server, "GET", f"/api/topics/{topic}")[0] == 404
    assert call(server, "DELETE", "/api/topics", topic=topic)[1]["code"] == "unknown_topic"


def test_a_topic_with_partitions_is_created_and_deleted_as_one(server: Server) -> None:
    topic = new()
    status, made = call(server, "POST", "/api/topics", {"topic": topic, "partitions": 2})
    assert (status, made["partitions"]) == (201, [f"{topic}-part-0", f"{topic}-part-1"])
    status, error = call(server, "DELETE", "/api/topics", topic=f"{topic}-part-0")
    assert (status, "cannot be deleted by itself" in error["message"]) == (400, True)
    assert call(server, "DELETE", "/api/topics", topic=topic)[0] == 200
    assert call(server, "GET", f"/api/topics/{topic}-part-1")[0] == 404


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 400),
        ({"topic": "a", "more": 1}, 400),
        ({"topic": "raceway.x"}, 400),
        ({"topic": "a", "subject": "no"}, 409),
    ],
)
def test_a_bad_topic_is_refused(server: Server, sent: dict[str, Any], status: int) -> None:
    assert call(server, "POST", "/api/topics", sent)[0] == status


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_subscription_is_described_and_deleted_when_nobody_consumes(
    server: Server, danube: sync.SyncDanubeClient
) -> None:
    topic = new()
    danube.publish_many(topic, [b"0", b"1"])
    call(server, "POST", "/api/subscriptions", {"topic": topic, "name": "s", "start": "first"})
    status, found = call(server, "GET", "/api/subscriptions/one", topic=topic, name="s")
    assert (status, [part["lag"] for part in found["parts"]]) == (200, [2])
    assert found["policy"]["poison"] == "block"
    with danube.subscribe(topic, "s") as consumer:
        assert consumer.get(10) is not None
        status, error = call(server, "DELETE", "/api/subscriptions", topic=topic, name="s")
        assert (status, error["code"]) == (409, "in_use")
    wait_until(lambda: call(server, "DELETE", "/api/subscriptions", topic=topic, name="s")[0] == 200)
    assert call(server, "GET", "/api/subscriptions/one", topic=topic, name="s")[1]["code"] == "unknown_subscription"
    assert call(server, "GET", "/api/subscriptions/one", topic=new(), name="s")[1]["code"] == "unknown_topic"


def test_a_subscription_is_moved_to_a_time(server: Server, danube: sync.SyncDanubeClient) -> None:
    topic = new()
    danube.publish(topic, b"before")
    between = datetime.now(UTC).isoformat()
    danube.publish(topic, b"after")
    call(server, "POST", "/api/subscriptions", {"topic": topic, "name": "s"})
    move = {"topic": topic, "subscription": "s"}
    assert call(server, "POST", "/api/replay", move | {"from": between})[1]["from"] == "1"
    assert call(server, "POST", "/api/replay", move | {"from": "2001-01-01T00:00:00Z"})[1]["from"] == "0"
    assert call(server, "POST", "/api/replay", move | {"from": "last"})[1]["from"] == "2"
    status, error = call(server, "POST", "/api/replay", move | {"from": "yesterday"})
    assert (status, "a time with a zone" in error["message"]) == (400, True)
    assert call(server, "POST", "/api/replay", move | {"from": ""})[0] == 400


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_a_deleted_queue_stays_deleted_and_its_messages_stay_stored() -> None:
    with running_server() as server:
        call(server, "POST", "/api/queues", {"name": "jobs"})
        with sync.connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus") as client:
            client.publish("jobs", b"one")
            with client.consume("jobs") as consumer:
                assert consumer.get(10) is not None
                status, error = call(server, "DELETE", "/api/queues", name="jobs")
                assert (status, error["message"]) == (409, "queue 'jobs' is in use: 1 consumer")
        wait_until(lambda: call(server, "DELETE", "/api/queues", name="jobs")[0] == 200)
        assert call(server, "DELETE", "/api/queues", name="jobs")[0] == 404
        server.restart()
        assert call(server, "GET", "/api/queues")[1]["queues"] == []
        assert call(server, "GET", "/api/topics/jobs")[1]["next"] == 1
        call(server, "POST", "/api/queues", {"name": "jobs"})
        assert [row["waiting"] for row in call(server, "GET", "/api/queues")[1]["queues"]] == [0]


def test_the_queue_of_a_token_is_deleted_with_it_only(server: Server) -> None:
    name = new()
    call(server, "POST", "/api/queues", {"name": name, "token": "s3cret"})
    assert call(server, "DELETE", "/api/queues", name=name)[0] == 403
    assert call(server, "DELETE", "/api/queues", name=name, bearer="s3cret")[0] == 200


# ---- peers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["mb", "danube", "zbus", "seneca"])
def test_a_peer_is_shown_with_its_address_and_disconnected(server: Server, wire: str) -> None:
    """Its end of the connection sees the end of the stream."""
    doors = {"mb": "tcp", "danube": "danube", "zbus": "zbus", "seneca": "seneca_tcp"}
    with socket.create_connection(("127.0.0.1", server.port(doors[wire])), 10) as stream:  # type: ignore[arg-type]
        address = "{}:{}".format(*stream.getsockname())
        if wire == "danube":
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        (peer,) = wait_until(lambda: call(server, "GET", "/api/peers", contains=address)[1]["peers"])
        assert (peer["wire"], peer["address"]) == (wire, address)
        assert call(server, "DELETE", f"/api/peers/{peer['id']}") == (200, {"peer": peer["id"]})
        while stream.recv(65536):
            pass
    assert call(server, "GET", "/api/peers", contains=address)[1]["total"] == 0
    assert call(server, "DELETE", f"/api/peers/{peer['id']}")[1]["code"] == "unknown_peer"


# ---- lag -------------------------------------------------------------------------------------------------------------


def test_subscriptions_and_queues_are_listed_by_lag(server: Server, danube: sync.SyncDanubeClient) -> None:
    topic, queue = new(), new()
    danube.publish_many(topic, [b"%d" % number for number in range(5)])
    call(server, "POST", "/api/subscriptions", {"topic": topic, "name": f"{topic}.all", "start": "first"})
    call(server, "POST", "/api/subscriptions", {"topic": topic, "name": f"{topic}.none"})
    call(server, "POST", "/api/queues", {"name": queue})
    with sync.connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus") as client:
        client.publish_many(queue, [b"x"] * 3)
    rows = call(server, "GET", "/api/lag")[1]["rows"]
    ours = [(row["kind"], row["name"], row["lag"]) for row in rows if row["topic"] in (topic, queue)]
    assert ours == [("subscription", f"{topic}.all", 5), ("queue", queue, 3), ("subscription", f"{topic}.none", 0)]
    found = call(server, "GET", "/api/lag", contains=f"{topic}.", limit=1)[1]
    assert ([row["lag"] for row in found["rows"]], found["total"], found["lag"]) == ([5], 2, 5)


# ---- permissions -----------------------------------------------------------------------------------------------------

Call = Callable[[Server, str], tuple[int, Any]]
CHANGES: dict[str, Call] = {
    "create topic": lambda server, who: call(server, "POST", "/api/topics", {"topic": "t"}, bearer=who),
    "delete topic": lambda server, who: call(server, "DELETE", "/api/topics", topic="t", bearer=who),
    "delete subscription": lambda server, who: call(
        server, "DELETE", "/api/subscriptions", topic="t", name="s", bearer=who
    ),
    "delete queue": lambda server, who: call(server, "DELETE", "/api/queues", name="q", bearer=who),
    "disconnect": lambda server, who: call(server, "DELETE", "/api/peers/nobody", bearer=who),
}


def test_with_security_changes_need_their_permission() -> None:
    settings: dict[str, Any] = {
        "RACEWAY_SECURITY__ENABLED": "true", "RACEWAY_SECURITY__TOKEN_SECRET": SECRET,
        "RACEWAY_SECURITY__TOKEN_ISSUER": ISSUER, "RACEWAY_SECURITY__SUPER_ADMINS": "root",
    }  # fmt: skip
    with running_server(**settings) as server:
        for name, change in CHANGES.items():
            assert change(server, "")[0] in (401, 403), name
            assert change(server, token("nobody"))[0] == 403, name
        statuses = {name: change(server, token("root"))[0] for name, change in CHANGES.items()}
    assert statuses == {
        "create topic": 201, "delete topic": 200, "delete subscription": 404, "delete queue": 404, "disconnect": 404,
    }  # fmt: skip
