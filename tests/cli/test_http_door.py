"""The console port as `pub` and `sub` use it, against a started server."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from raceway.cli.http_door import Follower, HttpDoor
from raceway.errors import NotConnectedError, RemoteError
from raceway.net.client.options import Options
from tests.rigs.ports import free_port_base
from tests.rigs.server import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def door(server: Server) -> Iterator[HttpDoor]:
    door = HttpDoor(f"http://127.0.0.1:{server.port('console')}", "", 30, Options())
    with contextlib.closing(door):
        yield door


def test_messages_of_one_call_have_their_offsets(door: HttpDoor) -> None:
    assert door.publish("door.a", [{"payload": "0"}, {"payload": "1"}]) == ({"door.a"}, [0, 1], False)
    assert door.publish("door.a", [{"payload_base64": "AP8="}]).offsets == [2]


def test_all_are_stored_or_none(door: HttpDoor) -> None:
    with pytest.raises(RemoteError, match="malformed"):
        door.publish("door.none", [{"payload": "0"}, {"nosuch": "1"}])
    assert door.publish("door.none", [{"payload": "0"}]).offsets == [0]


def test_a_follower_has_what_was_and_what_comes(door: HttpDoor) -> None:
    door.publish("door.b", [{"payload": "0", "attributes": {"tenant": "acme"}, "routing_key": "k"}])
    messages = Follower(door, ["door.b"], "first").messages(20)
    first = next(messages)
    assert (first.topic, first.offset, first.payload, first.headers) == ("door.b", 0, b"0", {"tenant": "acme"})
    assert (first.key, first.wire, first.sender) == ("k", "http", "127.0.0.1")
    door.publish("door.b", [{"payload_base64": "AP8="}])
    assert next(messages).payload == b"\x00\xff"
    messages.close()


def test_a_topic_that_appears_later_is_followed_from_its_first_message(door: HttpDoor) -> None:
    messages = Follower(door, ["later.+"], "end").messages(20)
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.extend(next(messages).payload for _ in range(3)))
    reader.start()
    for number in range(3):
        door.publish(f"later.{number}", [{"payload": str(number)}])
    reader.join(20)
    assert sorted(came) == [b"0", b"1", b"2"]


def test_topics_of_the_bus_itself_are_not_matched_by_a_wildcard(door: HttpDoor, server: Server) -> None:
    door.publish("own.a", [{"payload": "x"}])
    topics = {message.topic for message in Follower(door, ["#"], "first").messages(1)}
    assert "own.a" in topics
    assert not any(topic.startswith(("system.", "raceway.")) for topic in topics)


def test_the_time_is_kept_and_nothing_is_an_end(door: HttpDoor) -> None:
    began = time.monotonic()
    assert list(Follower(door, ["door.silence"], "end").messages(0.3)) == []
    assert 0.3 <= time.monotonic() - began < 10


def test_a_refusal_is_an_error_with_its_code(door: HttpDoor) -> None:
    with pytest.raises(RemoteError, match="name_invalid"):
        list(Follower(door, ["not a topic"], "end").messages(5))
    with pytest.raises(RemoteError, match="an offset is possible for a single topic only"):
        list(Follower(door, ["a", "b"], "7").messages(5))


def test_the_first_connection_must_succeed() -> None:
    door = HttpDoor(f"http://127.0.0.1:{free_port_base()}", "", 5, Options())
    with pytest.raises(NotConnectedError, match="nothing listens on this port"):
        list(Follower(door, ["a"], "end").messages(5))
