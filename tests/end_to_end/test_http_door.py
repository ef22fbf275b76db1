"""The HTTP door: publish, ask and read over real sockets. Names such as E3 are rules of docs/understand/one-bus.md."""

from __future__ import annotations

import base64
import itertools
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from raceway.client.sync import connect
from raceway.errors import RemoteError
from raceway.journal.read.reader import Reader
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.http_door import call, get, post, raw
from tests.rigs.schema_rest import bind, register
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.tools import installed

_numbers = itertools.count()
EVENT = {"specversion": "1.0", "id": "e1", "source": "/shop", "type": "order.made"}
SCHEMA = {"type": "json_schema", "definition": '{"type":"object","required":["bag"]}'}
BATCH = "application/cloudevents-batch+json"
LIMIT = 200_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__HTTP__BODY_LIMIT=LIMIT, RACEWAY_LISTEN__HEAD_S=2, RACEWAY_LISTEN__BODY_RATE=100_000,
        RACEWAY_LISTEN__HTTP__HEAD_LIMIT=8192,
    ) as server:  # fmt: skip
        yield server


@pytest.fixture
def topic() -> str:
    return f"door.t{next(_numbers)}"


def curl(*arguments: str) -> tuple[int, str]:
    command = [installed("curl", "curl"), "-s", "-S", "-m", "20", "-w", "\n%{http_code}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


# ---- publishing -----------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_in_the_journal(server: Server, topic: str) -> None:
    answer = post(server, f"/topics/{topic}", b"\x00\xff bytes")
    assert answer.status == 201
    reader = Reader(server.data)
    rows = [row for batch in reader.read_topic(topic, 0) for row in batch.to_pylist()]
    reader.close()
    assert [(row["payload"], row["wire"], row["kind"], row["offset"]) for row in rows] == [
        (b"\x00\xff bytes", "http", "publish", answer.json()["offset"])
    ]
    assert rows[0]["message_id"] == answer.json()["message_id"]


def test_curl_publishes_and_mb_hears_it(server: Server, topic: str) -> None:
    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb, mb.subscribe(topic) as heard:
        url = f"http://127.0.0.1:{server.port('console')}/topics/{topic}"
        status, body = curl(url, "-d", '{"bag": 17}')
        assert (status, json.loads(body)["routed"]) == (201, True)
        message = heard.get(10)
        assert message is not None
        assert message.payload == b'{"bag": 17}'


def test_curl_sends_cloudevents_in_both_modes(server: Server, topic: str) -> None:
    url = f"http://127.0.0.1:{server.port('console')}/topics/{topic}"
    structured = json.dumps(EVENT | {"data": {"a": 1}})
    assert curl(url, "-H", "content-type: application/cloudevents+json", "-d", structured)[0] == 201
    headers = [f"ce-{name}: {value}" for name, value in (EVENT | {"id": "e2", "subject": "caf%C3%A9"}).items()]
    binary = itertools.chain.from_iterable(("-H", header) for header in [*headers, "content-type: text/plain"])
    assert curl(url, *binary, "-d", "hello")[0] == 201
    events = get(server, f"/topics/{topic}", accept="application/cloudevents-batch+json").json()
    assert [(event["id"], event["type"], event["data"]) for event in events] == [
        ("e1", "order.made", {"a": 1}), ("e2", "order.made", "hello"),
    ]  # fmt: skip
    assert events[1]["subject"] == "café"
    rows = get(server, f"/topics/{topic}").json()["messages"]
    assert [row["producer"] for row in rows] == ["/shop", "/shop"]


def test_a_topic_may_be_named_as_danube_names_it(server: Server, topic: str) -> None:
    """Those of the namespace that all wires share; of others Danube alone."""
    named = quote(f"/default/{topic}", safe="")
    event = [(BATCH, batch_of({"id": "e1"})), ("text/plain", b"x")]
    told = [post(server, f"/topics/{named}", body, content_type=kind).json() for kind, body in event]
    assert (told[0]["messages"][0]["topic"], told[1]["topic"]) == (topic, topic)
    assert [row["offset"] for row in get(server, f"/topics/{topic}").json()["messages"]] == [0, 1]
    assert get(server, f"/api/topics/{named}").json()["topic"] == topic
    refused = post(server, f"/topics/{quote(f'/shop/{topic}', safe='')}")
    assert (refused.status, refused.json()["error"]["code"]) == (400, "name_invalid")
    assert "the namespace 'shop'" in refused.json()["error"]["message"]


def batch_of(*events: dict[str, Any]) -> bytes:
    return json.dumps([EVENT | event for event in events]).encode()


def test_a_batch_of_events_is_stored_whole(server: Server, topic: str) -> None:
    """Each with its own id and source, in order; curl can do it."""
    url = f"http://127.0.0.1:{server.port('console')}/topics/{topic}"
    events = [{"id": f"b{number}", "source": f"/shop/{number}", "data": {"n": number}} for number in range(3)]
    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb, mb.subscribe(topic) as heard:
        status, body = curl(url, "-H", f"content-type: {BATCH}", "-d", batch_of(*events).decode())
        told = json.loads(body)
        assert (status, told["routed"]) == (201, True)
        assert [(row["offset"], row["message_id"], row["topic"]) for row in told["messages"]] == [
            (number, f"b{number}", topic) for number in range(3)
        ]
        assert [found.json() for _ in range(3) if (found := heard.get(10))] == [{"n": 0}, {"n": 1}, {"n": 2}]
    rows = get(server, f"/topics/{topic}").json()["messages"]
    assert [row["producer"] for row in rows] == ["/shop/0", "/shop/1", "/shop/2"]
    again = get(server, f"/topics/{topic}", accept=BATCH)
    assert [event["id"] for event in again.json()] == ["b0", "b1", "b2"]
    assert post(server, f"/topics/{topic}", b"[]", content_type=BATCH).json() == {"messages": []}


def test_of_a_batch_with_a_bad_event_nothing_is_stored(server: Server, topic: str) -> None:
    """The refusal says which. What a schema refuses is kept beside, as ever."""
    answer = post(server, f"/topics/{topic}", batch_of({"id": "b0"}, {"id": ""}), content_type=BATCH)
    assert (answer.status, answer.json()["error"]["message"]) == (400, "event 1 of the batch: the event has no id")
    assert get(server, f"/topics/{topic}").status == 404
    register(server, topic)
    bind(server, topic, topic, "enforce")
    wrong = batch_of(
        {"id": "b0", "data": {"id": 1}}, {"id": "b1", "data": {"id": "x"}}, {"id": "b2", "data": {"id": 2}}
    )
    assert post(server, f"/topics/{topic}", wrong, content_type=BATCH).status == 422
    assert get(server, f"/topics/{topic}").json()["messages"] == []
    (row,) = wait_until(lambda: get(server, f"/api/rejected?topic={topic}").json()["rejected"])
    assert json.loads(get(server, f"/api/rejected/{row['position']}").json()["message"]["payload"]) == {"id": "x"}
    assert post(server, f"/requests/{topic}", batch_of({"id": "b0"}), content_type=BATCH).status == 415


def test_ids_and_attributes_come_from_headers(server: Server, topic: str) -> None:
    answer = post(server, f"/topics/{topic}", b"1", x_message_id="m1", x_correlation_id="root", x_shop="north")
    assert (answer.json()["message_id"], answer.json()["correlation_id"]) == ("m1", "root")
    (row,) = get(server, f"/topics/{topic}").json()["messages"]
    assert (row["message_id"], row["correlation_id"], row["attributes"]) == ("m1", "root", {"x-shop": "north"})


def test_a_repeated_dedup_id_is_not_stored_again(server: Server, topic: str) -> None:
    """L9"""
    assert post(server, f"/topics/{topic}", b"1", x_dedup_id="d1").status == 201
    again = post(server, f"/topics/{topic}", b"1", x_dedup_id="d1")
    assert (again.status, again.json()["repeated"]) == (200, True)
    assert len(get(server, f"/topics/{topic}").json()["messages"]) == 1


def test_a_list_of_repeats_is_answered_and_not_stored_again(server: Server, topic: str) -> None:
    """L9"""
    body = json.dumps({"messages": [{"payload": text, "attributes": {"x-dedup-id": text}} for text in ("1", "2")]})
    for _ in range(2):
        told = post(server, f"/topics/{topic}", body.encode(), content_type="application/vnd.raceway.messages+json")
        assert told.status == 201
    assert [each["repeated"] for each in told.json()["messages"]] == [True, True]
    assert len(get(server, f"/topics/{topic}").json()["messages"]) == 2


def test_new_messages_among_repeats_are_told_their_offsets(server: Server, topic: str) -> None:
    """L9"""

    def publish(*texts: str) -> list[dict[str, Any]]:
        listed = [
            {"payload": text, "message_id": f"id of {text}", "attributes": {"x-dedup-id": text}} for text in texts
        ]
        body = json.dumps({"messages": [*listed, {"payload": "plain"}]})
        told = post(server, f"/topics/{topic}", body.encode(), content_type="application/vnd.raceway.messages+json")
        assert told.status == 201
        found: list[dict[str, Any]] = told.json()["messages"]
        return found

    assert [each["offset"] for each in publish("1", "2")] == [0, 1, 2]
    told = publish("0", "1", "3", "2")
    assert [each.get("offset") for each in told] == [3, None, 4, None, 5]
    assert [each.get("repeated", False) for each in told] == [False, True, False, True, False]
    stored = get(server, f"/topics/{topic}").json()["messages"]
    assert [row["payload"] for row in stored] == ["1", "2", "plain", "0", "3", "plain"]
    assert [told[0]["message_id"], told[4]["message_id"]] == [stored[3]["message_id"], stored[5]["message_id"]]


def test_a_traceparent_goes_on_to_other_wires(server: Server) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    name = f"traced{next(_numbers)}"
    with (
        connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus") as zbus,
        connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as danube,
    ):
        zbus.create_queue(name)
        with danube.subscribe(f"/default/{name}", "reader") as reader, zbus.consume(name) as consumer:
            sent = post(server, f"/topics/{name}", b"{}", traceparent=parent, tracestate="a=b", x_message_id="traced")
            assert sent.status == 201
            message = reader.get(10)
            assert message is not None
            assert message.attributes["traceparent"] == parent
            delivery = consumer.get(10)
            assert delivery is not None
            assert (delivery.headers["traceparent"], delivery.headers["tracestate"]) == (parent, "a=b")
    trace = get(server, "/api/traces/traced").json()
    assert (trace["trace_id"], trace["trace_id_derived"]) == ("4bf92f3577b34da6a3ce929d0e0e4736", False)


# ---- reading --------------------------------------------------------------------------------------------------------


def test_pages_follow_one_another_by_offset(server: Server, topic: str) -> None:
    for number in range(5):
        assert post(server, f"/topics/{topic}", b"%d" % number).status == 201
    found, place = [], "first"
    for _ in range(3):
        page = get(server, f"/topics/{topic}?from={place}&limit=2").json()
        found += [row["payload"] for row in page["messages"]]
        place = page["next"]
    assert (found, place) == (["0", "1", "2", "3", "4"], "5")
    empty = get(server, f"/topics/{topic}?from=end").json()
    assert (empty["messages"], empty["next"]) == ([], "5")


def test_payloads_that_are_no_text_are_base64_and_whole(server: Server, topic: str) -> None:
    """S11"""
    payload = bytes(range(256)) * 3
    post(server, f"/topics/{topic}", payload)
    (row,) = get(server, f"/topics/{topic}").json()["messages"]
    assert base64.b64decode(row["payload_base64"]) == payload


@pytest.mark.parametrize(
    "query", ["from=-1", "from=x", "from=1,2", "limit=x", "from=" + "9" * 30, "as=xml", "from=%00", "limit=%E0%A5%A7"]
)
def test_questions_that_cannot_be_answered_are_400(server: Server, topic: str, query: str) -> None:
    post(server, f"/topics/{topic}")
    answer = get(server, f"/topics/{topic}?{query}")
    assert (answer.status, answer.code) == (400, "malformed")


def test_a_topic_nobody_used_is_404_and_stays_unknown(server: Server) -> None:
    assert get(server, "/topics/never.used").status == 404
    assert get(server, "/topics/never.used").status == 404


# ---- asking, and errors across wires --------------------------------------------------------------------------------


def test_a_service_answers_over_http(server: Server, topic: str) -> None:
    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb:
        mb.serve(topic, lambda message: {"got": message.json()})
        answer = post(server, f"/requests/{topic}", b'{"a":1}')
    assert (answer.status, answer.json()) == (200, {"got": {"a": 1}})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-security-policy"] == "sandbox"


def test_nobody_there_is_404(server: Server, topic: str) -> None:
    """E1"""
    answer = post(server, f"/requests/{topic}")
    assert (answer.status, answer.code) == (404, "no_route")


def test_too_late_is_504(server: Server, topic: str) -> None:
    """E2"""
    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb:
        answered = threading.Event()

        def wait(message: object) -> bytes:
            answered.wait(10)
            return b"{}"

        mb.serve(topic, wait)
        answer = post(server, f"/requests/{topic}", timeout_ms="60")
        answered.set()
    assert (answer.status, answer.code) == (504, "timeout")


def test_refused_by_schema_is_422_and_kept(server: Server, topic: str) -> None:
    """E3"""
    subject = topic.replace(".", "-")
    assert post(server, f"/api/schemas/{subject}/versions", json.dumps(SCHEMA).encode()).status == 201
    policy = json.dumps({"subject": subject, "policy": "enforce", "validate_payload": True}).encode()
    assert call(server, "PUT", f"/api/topic-schemas/{topic}", policy).status == 200
    refused = post(server, f"/topics/{topic}", b'{"no":1}')
    assert (refused.status, refused.code) == (422, "schema_refused")
    assert post(server, f"/requests/{topic}", b'{"no":1}').status == 422
    assert post(server, f"/topics/{topic}", b'{"bag":1}').status == 201

    def kept() -> list[tuple[str, str]]:
        rows = get(server, f"/api/rejected?topic={topic}").json()["rejected"]
        return [(row["code"], row["wire"]) for row in rows]

    wait_until(lambda: kept() == [("payload_invalid", "http")] * 2, what="both refused messages")


def test_a_service_that_failed_is_502(server: Server, topic: str) -> None:
    """E4"""

    def fail(message: object) -> bytes:
        raise ValueError("no belt")

    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb:
        mb.serve(topic, fail)
        answer = post(server, f"/requests/{topic}")
    assert (answer.status, answer.code) == (502, "remote")


@pytest.mark.parametrize("url", ["raceway://127.0.0.1:{console}", "mb://127.0.0.1:{tcp}"])
def test_what_a_service_says_of_its_failure_is_what_its_client_is_told(server: Server, topic: str, url: str) -> None:
    """E4, whichever wire the client asks over."""

    def refuse(message: object) -> bytes:
        raise RemoteError("NO_SEAT", "no such seat", {"seat": "13F"})

    address = url.format(console=server.port("console"), tcp=server.port("tcp"))
    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as desk, connect(address) as kiosk:
        desk.serve(topic, refuse)
        with pytest.raises(RemoteError) as refused:
            kiosk.request(topic, b"13F")
    found = refused.value
    assert (found.reported, found.text, found.details) == ("NO_SEAT", "no such seat", {"seat": "13F"})


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_is_413(server: Server, topic: str, chunked: bool) -> None:
    """E7"""
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if chunked:
        size = LIMIT + 1
        data = f"{head}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n".encode() + bytes(size) + b"\r\n0\r\n\r\n"
    else:
        data = f"{head}Content-Length: {1 << 40}\r\n\r\n".encode()
    assert raw(server, data).startswith(b"HTTP/1.1 413 ")
    assert get(server, f"/topics/{topic}").status == 404


@pytest.mark.parametrize("name", ["system.message", "raceway.rejected", "a%20b", "shop/x", "x" * 256, "%00", "%ff"])
def test_names_reserved_or_invalid_are_400(server: Server, name: str) -> None:
    """E8"""
    assert post(server, f"/topics/{name}").status == 400
    assert post(server, f"/requests/{name}").status == 400


def test_a_name_that_differs_only_in_case_is_409(server: Server, topic: str) -> None:
    """N2"""
    post(server, f"/topics/{topic}")
    assert post(server, f"/topics/{topic.upper()}").status == 409


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}]
)
def test_other_sites_publish_nothing(server: Server, topic: str, headers: dict[str, str]) -> None:
    """D4, D5"""
    named: dict[str, Any] = {name.replace("-", "_"): value for name, value in headers.items()}
    assert post(server, f"/topics/{topic}", **named).status == 403
    assert get(server, f"/topics/{topic}").status == 404


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content_type": "application/cloudevents+json"}, b"{}", 400),
        ({"content_type": "application/cloudevents+json"}, b"\xff", 400),
        ({"content_type": "application/cloudevents+json"}, b"[" * 50_000, 400),
        ({"content_type": "application/cloudevents-batch+json"}, b"{}", 400),
        ({"content_type": "application/cloudevents-batch+json"}, b"[" * 50_000, 400),
        ({"content_type": "application/cloudevents-batch+json"}, b"[[]]", 400),
        ({"content_type": "application/cloudevents-batch+json"}, b"[%b]" % b",".join([b"{}"] * 1001), 413),
        ({"content_type": "application/cloudevents-batch+json", "x_dedup_id": "d"}, b"[]", 400),
        ({"content_type": "application/cloudevents+avro"}, b"", 415),
        ({"ce_specversion": "1.0"}, b"", 400),
        ({"schema_id": "x"}, b"", 400),
        ({f"x_{number}": "v" for number in range(129)}, b"", 413),
    ],
)
def test_bad_messages_are_refused_one_by_one(
    server: Server, topic: str, headers: dict[str, Any], body: bytes, status: int
) -> None:
    assert post(server, f"/topics/{topic}", body, **headers).status == status
    assert get(server, f"/topics/{topic}").status == 404


def test_requests_sent_ahead_are_answered_wherever_a_read_cuts_them(server: Server, topic: str) -> None:
    one = b"POST /topics/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}" % topic.encode()
    last = one.replace(b"Host:", b"Connection: close\r\nHost:")
    # More than a head may have, in one read that ends within a head.
    found = raw(server, one * 200 + last[:50], pause_s=0.2, rest=last[50:])
    assert found.count(b"HTTP/1.1 201 ") == 201


def test_a_long_head_behind_another_request_is_refused(server: Server, topic: str) -> None:
    one = b"POST /topics/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}" % topic.encode()
    head = b"GET /topics/x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    assert b"HTTP/1.1 431 " in raw(server, one + head + b"X: a\r\n" * 3000)
    assert b"HTTP/1.1 431 " in raw(server, one + head + b"X: a", pause_s=0.2, rest=b"a" * 20_000)


# ---- hostile connections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"400"),
        (b"GET /topics/x HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 20_000, b"431"),
        (b"POST /topics/x HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", b"400"),
        (b"POST /topics/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET /topics/x HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"408"),
        (b"", b"408"),
        (b"POST /topics/slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nab", b"408"),
    ],
)
def test_bad_and_slow_requests_end_in_an_answer_and_a_closed_connection(
    server: Server, data: bytes, status: bytes
) -> None:
    """L3"""
    assert raw(server, data).startswith(b"HTTP/1.1 " + status + b" ")
    assert get(server, "/healthz").status == 200


def test_whoever_leaves_in_the_middle_of_a_body_leaves_nothing(server: Server, topic: str) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port("console"))) as connection:
            connection.sendall(
                f"POST /topics/{topic} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nab".encode()
            )
    assert get(server, f"/topics/{topic}").status == 404
    assert "Traceback" not in server.stderr


# ---- security -------------------------------------------------------------------------------------------------------


def test_with_security_on_every_topic_is_asked_for() -> None:
    """E6, D8"""
    with running_server(
        RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__TOKEN_SECRET=SECRET, RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER,
        RACEWAY_SECURITY__SUPER_ADMINS="boss", RACEWAY_SECURITY__ADMIN_TOKEN="owner-token",
    ) as server:  # fmt: skip
        boss, clerk = f"Bearer {token('boss')}", f"Bearer {token('clerk')}"
        assert post(server, "/topics/orders", authorization=boss, x_message_id="m1").status == 201
        for authorization in ("", clerk):
            headers: dict[str, Any] = {"authorization": authorization} if authorization else {}
            for answer in (
                post(server, "/topics/orders", **headers), get(server, "/topics/orders", **headers),
                get(server, "/topics/orders", accept="text/event-stream", **headers),
                post(server, "/requests/orders", **headers), get(server, "/api/rejected", **headers),
            ):  # fmt: skip
                assert (answer.status, answer.code) == (403, "forbidden")
            assert get(server, "/api/traces/m1", **headers).status == 403
            assert get(server, "/asyncapi.json", **headers).status == 403
        assert post(server, "/topics/orders", authorization="Bearer bad").status == 401
        owner = "Bearer owner-token"
        assert post(server, "/topics/orders", authorization=owner).status == 201
        assert len(get(server, "/topics/orders", authorization=owner).json()["messages"]) == 2
        assert get(server, "/api/traces/m1", authorization=owner).json()["messages"] == 1
