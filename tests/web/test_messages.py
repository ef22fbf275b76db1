from __future__ import annotations

import base64

import pytest
from starlette.applications import Starlette

from raceway.web.app import build_app
from raceway.web.messages import PREVIEW_BYTES
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import ask


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app(bench: Bench) -> Starlette:
    return build_app(DOOR(bench.broker), ())


def publish(bench: Bench, *payloads: bytes) -> None:
    bench.publish(bench.peer(), *(Message(b"a", payload=payload) for payload in payloads))
    bench.loop.settle()


def test_messages_come_newest_first_with_where_to_go_on(bench: Bench, app: Starlette) -> None:
    publish(bench, b"1", b"2", b"3")
    first = ask(app, "/api/messages?limit=2").json()
    assert [row["payload"] for row in first["messages"]] == ["3", "2"]
    rest = ask(app, f"/api/messages?limit=2&before={first['before']}").json()
    assert ([row["payload"] for row in rest["messages"]], rest["before"]) == (["1"], None)


def test_a_list_shows_the_beginning_of_a_payload_and_a_message_all_of_it(bench: Bench, app: Starlette) -> None:
    text = "é" * PREVIEW_BYTES
    publish(bench, text.encode())
    (row,) = ask(app, "/api/messages").json()["messages"]
    assert row["payload"] == "é" * (PREVIEW_BYTES // 2)
    assert row["payload_bytes"] == 2 * PREVIEW_BYTES
    assert ask(app, f"/api/messages/{row['sequence']}").json()["payload"] == text


def test_bytes_that_are_no_text_are_base64_and_can_be_downloaded(bench: Bench, app: Starlette) -> None:
    publish(bench, b"\xff\x00")
    (row,) = ask(app, "/api/messages").json()["messages"]
    assert base64.b64decode(row["payload_base64"]) == b"\xff\x00"
    answer = ask(app, f"/api/messages/{row['sequence']}/payload")
    assert answer.body == b"\xff\x00"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/messages/7", 404, "unknown_message"),
        ("/api/messages/x", 400, "malformed"),
        ("/api/messages/-1", 400, "malformed"),
        ("/api/messages/" + "9" * 30, 400, "malformed"),
        ("/api/messages?limit=0", 400, "malformed"),
        ("/api/messages?limit=501", 400, "malformed"),
        ("/api/messages?budget=x", 400, "malformed"),
        ("/api/messages?path=$..", 400, "malformed"),
    ],
)
def test_what_cannot_be_asked_is_refused(app: Starlette, path: str, status: int, code: str) -> None:
    answer = ask(app, path)
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)


def test_a_bus_with_an_admin_token_wants_it(bench: Bench) -> None:
    guarded = build_app(DOOR(bench.broker), (), "secret")
    publish(bench, b"1")
    for path in ("/api/messages", "/api/messages/0", "/api/messages/0/payload", "/api/tables/gold.x"):
        assert ask(guarded, path).status == 403
    assert ask(guarded, "/api/messages", headers={"Authorization": "Bearer secret"}).status == 200


def test_the_latest_of_a_topic_are_found_by_its_index(bench: Bench, app: Starlette) -> None:
    peer = bench.peer()
    for number in range(5):
        bench.publish(peer, Message(b"shop.orders", b"%d" % number), Message(b"other", b"x"))
    bench.loop.settle()
    found = ask(app, "/api/topics/shop.orders/messages?limit=3").json()
    assert ([each["payload"] for each in found["messages"]], found["total"]) == (["4", "3", "2"], 5)
    assert [each["offset"] for each in found["messages"]] == [4, 3, 2]
    assert ask(app, "/api/topics/none/messages").status == 404
    assert ask(app, "/api/topics/shop.orders/messages?limit=0").status == 400


def test_the_latest_of_a_partitioned_topic_are_those_of_its_partitions(bench: Bench, app: Starlette) -> None:
    bench.broker.topic_admin.create_partitioned_topic("parted", 2, reliable=True)
    bench.publish(bench.exact_peer(), Message(b"parted-part-0", b"a"), Message(b"parted-part-1", b"b"))
    bench.loop.settle()
    found = ask(app, "/api/topics/parted/messages").json()
    assert [each["payload"] for each in found["messages"]] == ["b", "a"]


def test_the_latest_are_there_however_large_they_are(bench: Bench, app: Starlette) -> None:
    publish(bench, *(b"%d" % number * (3 * 1024 * 1024) for number in range(4)))
    found = ask(app, "/api/topics/a/messages").json()["messages"]
    assert [(each["payload"][0], each["payload_bytes"]) for each in found] == [
        (str(number), 3 * 1024 * 1024) for number in reversed(range(4))
    ]
