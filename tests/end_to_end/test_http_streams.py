"""Event streams over real sockets: live, resumed, slow, and in great numbers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.client.sync import connect
from tests.rigs.http_door import event_stream, get, post
from tests.rigs.server import Server, running_server, wait_until

_numbers = itertools.count()
STALL_S = 1.5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__HTTP__KEEPALIVE_MS=100, RACEWAY_LISTEN__HTTP__MAX_STREAMS=3,
        RACEWAY_LISTEN__HTTP__STREAM_BYTES=4096, RACEWAY_LISTEN__HTTP__STALL_MS=round(STALL_S * 1000),
        RACEWAY_BROKER__SUBSCRIPTIONS__ALIASES='{"shop" = "/ns/shop"}',
    ) as server:  # fmt: skip
        yield server
        assert "Traceback" not in server.stderr


@pytest.fixture
def topic() -> str:
    return f"stream.t{next(_numbers)}"


def test_a_stream_gets_what_is_published_while_it_is_there(server: Server, topic: str) -> None:
    """S1, S9"""
    post(server, f"/topics/{topic}", b'"before"')
    with (
        event_stream(server, f"/topics/{topic}") as stream,
        connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb,
    ):
        mb.serve(topic, lambda message: {"ok": True})
        mb.request(topic, b'"a request"')
        mb.publish(topic, b'"from mb"')
        assert post(server, f"/topics/{topic}", b'"from http"').status == 201
        events = list(itertools.islice(stream.events(), 2))
    assert [(event.id, event.data["payload"], event.data["wire"]) for event in events] == [
        ("3", '"from mb"', "mb"), ("4", '"from http"', "http"),
    ]  # fmt: skip


def test_a_topic_that_nobody_used_can_be_waited_for(server: Server, topic: str) -> None:
    with event_stream(server, f"/topics/{topic}") as stream:
        post(server, f"/topics/{topic}", b"1")
        assert next(stream.events()).data["payload"] == "1"


def test_an_idle_stream_is_kept_alive_with_comments(server: Server, topic: str) -> None:
    with event_stream(server, f"/topics/{topic}") as stream:
        lines = stream.lines()
        assert [next(lines) for _ in range(3)] == [b"retry: 1000", b"", b":"]


def test_events_may_be_cloudevents(server: Server, topic: str) -> None:
    post(server, f"/topics/{topic}", b'{"a":1}', ce_specversion="1.0", ce_id="e", ce_source="/s", ce_type="t",
         content_type="application/json")  # fmt: skip
    with event_stream(server, f"/topics/{topic}?from=first&as=cloudevents") as stream:
        event = next(stream.events()).data
        assert (event["id"], event["type"], event["data"]) == ("e", "t", {"a": 1})


def test_a_reader_that_comes_back_goes_on_behind_the_last_event_it_had(server: Server, topic: str) -> None:
    for number in range(3):
        post(server, f"/topics/{topic}", b"%d" % number)
    with event_stream(server, f"/topics/{topic}?from=first") as stream:
        last = next(stream.events()).id
    with event_stream(server, f"/topics/{topic}?from=first", Last_Event_ID=last) as stream:
        assert [event.data["payload"] for event in itertools.islice(stream.events(), 2)] == ["1", "2"]


def test_a_slow_reader_misses_nothing_and_holds_nobody_up(server: Server, topic: str) -> None:
    """More than its memory on the bus holds: it reads the rest from the journal."""
    payload, count = b'"%s"' % (b"x" * 900), 400
    with event_stream(server, f"/topics/{topic}", receive_bytes=4096) as stream:
        with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb:
            mb.publish_many(topic, [payload] * count)
        offsets = [event.data["offset"] for event in itertools.islice(stream.events(), count)]
    assert offsets == list(range(count))


def test_one_stream_too_many_is_refused_and_a_free_place_is_taken(server: Server, topic: str) -> None:
    """E5"""
    with (
        event_stream(server, f"/topics/{topic}") as first,
        event_stream(server, f"/topics/{topic}") as second,
        event_stream(server, f"/topics/{topic}") as third,
    ):
        assert [stream.status for stream in (first, second, third)] == [200] * 3
        refused = get(server, f"/topics/{topic}", accept="text/event-stream")
        assert (refused.status, refused.code) == (503, "busy")

    def comes_in() -> bool:
        with event_stream(server, f"/topics/{topic}") as stream:
            return stream.status == 200

    wait_until(comes_in, what="a place after the others left")


def test_a_reader_that_takes_nothing_is_closed(server: Server, topic: str) -> None:
    """L4"""
    before = server.metric("raceway_slow_peers_closed_total")
    with event_stream(server, f"/topics/{topic}", receive_bytes=2048):
        with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb:
            for _ in range(10):
                mb.publish_many(topic, [b"x" * 16_000] * 100, confirm=False)
        wait_until(lambda: server.metric("raceway_slow_peers_closed_total") > before, what="the stream to be closed")


@pytest.mark.timeout(120)
def test_a_reader_that_takes_little_is_never_closed(server: Server, topic: str) -> None:
    """It takes some 100 KiB a second. The kernel has megabytes for it, and asks for more only after a third of them."""
    payload, count, before = b"x" * 4000, 2500, server.metric("raceway_slow_peers_closed_total")
    with event_stream(server, f"/topics/{topic}", receive_bytes=4096) as stream:
        with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as mb:
            mb.publish_many(topic, [payload] * count)
        offsets, end = [], time.monotonic() + 4 * STALL_S
        for event in itertools.islice(stream.events(), count):
            offsets.append(event.data["offset"])
            time.sleep(0.03 if time.monotonic() < end else 0)
    assert offsets == list(range(count))
    assert server.metric("raceway_slow_peers_closed_total") == before


def test_a_base_is_followed_through_all_its_partitions(server: Server) -> None:
    """T6"""
    name = f"parted{next(_numbers)}"
    with connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as danube:
        danube.producer(f"/default/{name}", "p", partitions=3)
    with event_stream(server, f"/topics/{name}") as stream:
        for number in range(6):
            assert post(server, f"/topics/{name}", b"%d" % number, routing_key=f"k{number}").status == 201
        events = list(itertools.islice(stream.events(), 6))
    assert sorted(event.data["payload"] for event in events) == list("012345")
    assert len({event.data["topic"] for event in events}) > 1
    place = events[2].id
    assert len(place.split(",")) == 3
    page = get(server, f"/topics/{name}?from={place}").json()
    assert sorted(row["payload"] for row in page["messages"]) == sorted(event.data["payload"] for event in events[3:])


def test_a_stop_ends_streams_and_a_reader_goes_on_after_the_restart() -> None:
    """No event is lost or told twice over a restart, and over a kill."""
    with running_server() as server:
        seen: list[str] = []
        last = ""
        sent = 0
        for end in (server.stop, server.kill):
            headers: dict[str, Any] = {"Last_Event_ID": last} if last else {}
            with event_stream(server, "/topics/kept?from=first", **headers) as stream:
                for _ in range(3):
                    assert post(server, "/topics/kept", b"%d" % sent).status == 201
                    sent += 1
                for event in itertools.islice(stream.events(), 2):  # the third one is left for the next reader
                    seen.append(event.data["payload"])
                    last = event.id
                took = end()
                assert took is None or took < 5
            server.start()
        with event_stream(server, "/topics/kept", Last_Event_ID=last) as stream:
            rest = [event.data["payload"] for event in itertools.islice(stream.events(), sent - len(seen))]
    assert seen + rest == [str(number) for number in range(sent)]


# ---- all topics that match -------------------------------------------------------------------------------------------


def payloads(stream: Any, count: int) -> list[str]:
    rows = (event.data for event in stream.events() if event.kind == "message")
    return sorted(row["payload"] for row in itertools.islice(rows, count))


def test_a_pattern_has_topics_of_before_and_of_later(server: Server) -> None:
    post(server, "/topics/pattern.a", b"before")
    with event_stream(server, "/topics?pattern=pattern.%23,pattern-too&from=first") as stream:
        post(server, "/topics/pattern.b.c", b"later")
        post(server, "/topics/pattern-too", b"exact")
        post(server, "/topics/other", b"not")
        assert payloads(stream, 3) == ["before", "exact", "later"]


def test_a_pattern_begins_at_a_time(server: Server) -> None:
    post(server, "/topics/timed.a", b"before")
    (row,) = get(server, "/topics/timed.a").json()["messages"]
    time_us = row["time_us"] + 1
    post(server, "/topics/timed.a", b"after")
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time_us // 1_000_000))}.{time_us % 1_000_000:06}Z"
    with event_stream(server, f"/topics?pattern=timed.%2B&from={text}") as stream:
        assert payloads(stream, 1) == ["after"]
    assert [row["payload"] for row in get(server, f"/topics/timed.a?from={text}").json()["messages"]] == ["after"]


def test_a_queue_with_a_token_is_matched_by_no_pattern(server: Server) -> None:
    with connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus") as zbus:
        zbus.create_queue("guarded.q", token="sesame")
    post(server, "/topics/guarded.q", b"secret")
    post(server, "/topics/guarded.open", b"open")
    with event_stream(server, "/topics?pattern=guarded.%23&from=first") as stream:
        assert payloads(stream, 1) == ["open"]
        post(server, "/topics/guarded.q", b"secret")
        post(server, "/topics/guarded.open", b"again")
        assert payloads(stream, 1) == ["again"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "malformed"), ("pattern=", "malformed"), ("pattern=,", "malformed"), ("pattern=a,b&from=7", "malformed"),
        ("pattern=%23&from=soon", "invalid_value"), ("pattern=a b", "name_invalid"),
        ("pattern=a&from=soon", "malformed"), ("pattern=" + ",".join(map(str, range(101))), "malformed"),
    ],
)  # fmt: skip
def test_patterns_that_make_no_sense_are_refused(server: Server, query: str, code: str) -> None:
    answer = get(server, f"/topics?{query.replace(' ', '%20')}")
    assert (answer.status, answer.code) == (400, code)
