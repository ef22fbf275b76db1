"""Errors across wires, row by row of the manual's table. Rows E1, E2 and E4 are in `test_request_cells.py`."""

from __future__ import annotations

import inspect
import json
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from raceway import errors
from raceway.wires.danube.codec.pb.danube_admin_pb2 import NewTopicRequest, TopicResponse
from raceway.wires.danube.codec.status import STATUSES
from raceway.wires.mb.codec.encode import MB_CODES
from raceway.wires.seneca.codec.failure import SENECA_CODES
from raceway.wires.zbus.codec.encode import ZBUS_STATUSES
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import danube_wire
from tests.rigs.http_door import call as http_call
from tests.rigs.http_door import post as http_post
from tests.rigs.mb_wire import SUCCESS, Peer, connect
from tests.rigs.one_bus import ActionError, OneBus, Place, answerer, asker, fresh, fresh_place
from tests.rigs.schema_rest import bind, register
from tests.rigs.seneca_wire import Http, attached, line, post, seed
from tests.rigs.seneca_wire import Lines as SenecaLines
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import dial_server

MIB = 1 << 20
SECRET = "a secret that nobody could ever guess"


def mb_error(peer: Peer, topic: str, payload: Any = b"{}") -> str:
    answer = peer.publish(topic, payload)
    return "" if answer.payload == SUCCESS else str(json.loads(answer.payload)["error"]["code"])


def danube_error(server: Server, topic: str, payload: bytes = b"x") -> str:
    try:
        with danube_wire(server) as wire:
            wire.send(wire.producer(f"/default/{topic}"), f"/default/{topic}", payload)
    except RefusedError as refused:
        return refused.status
    return ""


def seneca_error(server: Server, keys: dict[str, Any], *, sync: bool = False) -> str:
    answer = post(server, seed(keys, sync=sync))
    return "" if answer.status < 300 else str(answer.json()["code"])


# What the bus calls it, and what each wire does; Danube asks nobody.
TABLE = {
    "E1": (("no_route", "unknown_queue"), "NO_ROUTE_FOUND", 404, "act_not_found", None),
    "E2": (("timeout",), "TIMEOUT", 504, "action_timeout", None),
    "E3": (("schema_refused",), "INVALID_REQUEST", 422, "act_invalid_msg", "PERMISSION_DENIED"),
    "E5": (("busy", "read_only", "disk_full", "limit"), "SERVICE_UNAVAILABLE", 503, "overloaded", "RESOURCE_EXHAUSTED"),
    "E6": (("forbidden",), "FORBIDDEN", 403, "forbidden", "PERMISSION_DENIED"),
    "E7": (("too_large",), "MALFORMED_MESSAGE", 413, "too_large", "INVALID_ARGUMENT"),
    "E8": (("name_reserved", "invalid"), "INVALID_REQUEST", 400, "invalid_message", "INVALID_ARGUMENT"),
}


KINDS: dict[str, type[errors.RacewayError]] = {
    kind.code: kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.RacewayError) and kind is not errors.LocalError
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table_is_that_of_every_codec(row: str) -> None:
    """E1, E2, E3, E5, E6, E7, E8. What the doors say is looked at below; here that no code is forgotten."""
    codes, mb, zbus, seneca, danube = TABLE[row]
    for code in codes:
        kind = KINDS[code]
        words = kind.maybe_entry(MB_CODES), kind.maybe_entry(ZBUS_STATUSES), kind.maybe_entry(SENECA_CODES)
        assert words == (mb, zbus, seneca), code
        if danube is not None:
            status = kind.maybe_entry(STATUSES)
            assert status is not None
            assert status.name == danube, code


def test_every_error_that_a_peer_may_cause_has_a_word_on_seneca() -> None:
    assert all(kind.maybe_entry(SENECA_CODES) for kind in KINDS.values() if issubclass(kind, errors.PeerError))


# ---- E3 --------------------------------------------------------------------------------------------------------------


def test_a_message_against_the_schema_is_refused_in_each_wires_words(bus: OneBus) -> None:
    """E3. Seneca's pattern keys are no part of what is judged; what is right is taken from every wire."""
    place = fresh_place()
    register(bus.server, place.word)
    bus.danube.create(p := fresh("p"), place.danube)
    bind(bus.server, place.topic, place.word, "enforce")
    peer, client = bus.mb(), bus.zbus()
    client.create(place.topic)
    right, wrong = b'{"id":1}', b'{"id":"x"}'
    error = json.loads(peer.publish(place.topic, wrong).payload)["error"]
    assert (error["code"], error["details"]["subject"]) == ("INVALID_REQUEST", place.word)
    assert client.ask("produce", wrong, mq=place.topic).status == 422
    assert seneca_error(bus.server, place.keys | {"id": "x"}) == "act_invalid_msg"
    assert seneca_error(bus.server, place.keys | {"id": "x"}, sync=True) == "act_invalid_msg"
    with pytest.raises(RefusedError) as refused:
        bus.danube.send(p, wrong)
    assert refused.value.status == "PERMISSION_DENIED"
    assert peer.publish(place.topic, right).payload == SUCCESS
    assert client.ask("produce", right, mq=place.topic).status == 200
    assert seneca_error(bus.server, place.keys | {"id": 1}) == ""
    assert [client.take(place.topic).body for _ in range(2)] == [right, right]


# ---- E4: beyond what a service says itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asking", "code"), [("mb", "SERVICE_UNAVAILABLE"), ("zbus", "503"), ("seneca", "act_execute")]
)
def test_a_service_that_cannot_be_reached_is_told_of_at_once(bus: OneBus, asking: str, code: str) -> None:
    """E4, E5. Nothing was sent, so it is the bus that speaks, in the words of the asker's wire."""
    place = fresh_place("sum")
    bus.open(attached(bus.server, place.pin, "http://127.0.0.1:9/act", "W"))
    assert asker(bus, asking, place).ask({"a": 1, "b": 2}).error == code


def test_a_status_of_a_zbus_service_is_kept_for_a_zbus_caller(bus: OneBus, place: Place) -> None:
    """E4. Its status, else 500."""
    service, client = bus.zbus(), bus.zbus()
    service.create(place.topic)
    asked = client.request(place.topic, b"x")
    service.answer(service.take(place.topic), b"sold out", **{"reply-code": "409"})
    answer = client.reply(asked)
    assert (answer.status, answer.body) == (409, b"sold out")


def test_what_a_service_says_of_its_failure_reaches_mb_with_details(bus: OneBus) -> None:
    """E4. Its `{"error": …}`."""
    place = fresh_place("div")

    def fail(document: dict[str, Any]) -> dict[str, Any]:
        raise ActionError("SOLD_OUT", "no seats")

    answerer(bus, "mb", place, fail)
    told = asker(bus, "seneca", place).ask({"a": 1, "b": 0})
    assert (told.error, told.text) == ("SOLD_OUT", "no seats")
    with SenecaLines(bus.server.port("seneca_tcp")) as lines:
        answer = lines.ask(line(place.keys))
    assert (answer["error"]["code"], answer["error"]["orig"]["code"]) == ("act_execute", "SOLD_OUT")


# ---- E5 --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server whose disk is full while the file exists."""
    fault, data = tmp_path / "fault", tmp_path / "data"
    env = {
        "PYTHONPATH": str(Path(__file__).parent.parent / "recovery" / "faulty_disk"),
        "DISK_FAULT": str(fault), "DISK_FAULT_BELOW": str(data), "RACEWAY_JOURNAL__RETRY_S": 0.1,
    }  # fmt: skip
    with running_server(data, **env) as server:
        yield server, fault


def _made_by_danube(server: Server) -> str:
    with danube_wire(server) as wire:
        try:
            wire.ask("danube_admin.TopicAdmin/CreateTopic", NewTopicRequest(name="/default/newer"), TopicResponse)
        except RefusedError as refused:
            return refused.status
    return ""


def _called(method: str, path: str, document: dict[str, Any]) -> Callable[[Server], str]:
    return lambda server: str(http_call(server, method, path, json.dumps(document).encode()).status)


def _made_by_zbus(server: Server) -> str:
    with dial_server(server) as client:
        return str(client.admin("create_mq", '{"mqName": "new", "mqMode": "1"}').status)


# Settings that must last. Nobody may be told that they do, and nobody left waiting.
CHANGES: dict[str, Callable[[Server], str]] = {
    "zbus": _made_by_zbus,
    "danube": _made_by_danube,
    "registry": _called("POST", "/subjects/new/versions", {"schema": '"string"'}),
    "schema": _called("POST", "/api/schemas/newer/versions", {"type": "string", "definition": "x"}),
    "limits": _called("PUT", "/api/policies/namespaces/default", {"max_producers_per_topic": 9}),
    "seneca": _called("POST", "/api/seneca/services", {"pin": "role:new", "url": "http://127.0.0.1:9/act"}),
}


def test_a_change_on_its_way_when_the_disk_fails_is_refused(full: tuple[Server, Path]) -> None:
    """E5. The journal takes nothing more until a restart: whoever waits for it is told at once."""
    server, fault = full
    fault.with_suffix(".new").write_text("sync")
    fault.with_suffix(".new").rename(fault)
    with ThreadPoolExecutor(len(CHANGES)) as pool:  # whichever is first, the others are with it or behind it
        told = dict(zip(CHANGES, pool.map(lambda change: change(server), CHANGES.values()), strict=True))
    assert told == dict.fromkeys(CHANGES, "503") | {"danube": "RESOURCE_EXHAUSTED"}
    assert server.http("/readyz")[0] == 503


@pytest.mark.parametrize("name", ["zbus", "registry"])
def test_the_very_change_by_which_the_journal_hears_of_it_is_refused_too(full: tuple[Server, Path], name: str) -> None:
    """E5. It is on its way to the disk when the disk fails."""
    server, fault = full
    fault.with_suffix(".new").write_text("sync")
    fault.with_suffix(".new").rename(fault)
    assert server.http("/readyz")[0] == 200
    assert CHANGES[name](server) == "503"
    assert server.http("/readyz")[0] == 503


def test_a_full_disk_is_told_in_each_wires_words_and_is_over_when_it_is_over(full: tuple[Server, Path]) -> None:
    """E5. Busy, read-only, full."""
    server, fault = full
    place = fresh_place()
    with connect(server, "tcp") as peer, dial_server(server) as client, danube_wire(server) as wire:
        peer.subscribe(place.topic)
        client.create(place.topic)
        producer = wire.producer(place.danube)
        fault.with_suffix(".new").write_text("full")
        fault.with_suffix(".new").rename(fault)
        wait_until(lambda: mb_error(peer, place.topic, b"x" * 200) == "SERVICE_UNAVAILABLE", 10, "the disk to be full")
        assert client.ask("produce", b"x" * 200, mq=place.topic).status == 503
        assert seneca_error(server, place.keys) == "overloaded"
        with pytest.raises(RefusedError) as refused:
            wire.send(producer, place.danube, b"x" * 200)
        assert refused.value.status == "RESOURCE_EXHAUSTED"
        assert http_post(server, f"/topics/{place.topic}").status == 503
        assert [change(server) for change in CHANGES.values()] == ["503", "RESOURCE_EXHAUSTED", *["503"] * 4]
        fault.unlink()
        wait_until(lambda: client.ask("produce", b"x", mq=place.topic).status == 200, 10, "space again")


# ---- E6 --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[Server]:
    with running_server(RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__TOKEN_SECRET=SECRET) as server:
        yield server


def test_what_is_not_allowed_is_forbidden_in_each_wires_words(secured: Server) -> None:
    """E6, D8. Whoever does not say who it is is `anonymous:<wire>`, and may do nothing that is not allowed."""
    place = fresh_place()
    with connect(secured, "tcp") as peer, dial_server(secured) as client:
        assert mb_error(peer, place.topic) == "FORBIDDEN"
        asked = peer.ask("system.topic.subscribe", {"action": "request", "topic": place.topic})
        assert asked.json()["error"]["code"] == "FORBIDDEN"
        assert peer.ask(place.topic).json()["error"]["code"] == "FORBIDDEN"
        assert client.admin("create_mq", json.dumps({"mqName": place.topic, "mqMode": "1"})).status == 403
    assert seneca_error(secured, place.keys) == "forbidden"
    assert seneca_error(secured, place.keys, sync=True) == "forbidden"
    several = seed(place.keys, multiple=True)
    assert post(secured, several).json()["code"] == "forbidden"
    assert danube_error(secured, place.topic) in ("PERMISSION_DENIED", "UNAUTHENTICATED")


# ---- E7 --------------------------------------------------------------------------------------------------------------


def test_what_is_too_large_is_refused_in_each_wires_words(bus: OneBus, place: Place) -> None:
    """E7, L1. MB frame 16,751 bytes; Danube 4 MiB less 64 KiB; zbus 64 MiB; Seneca 8 MiB."""
    assert mb_error(bus.mb(), place.topic, b"x" * 16_385) == "MALFORMED_MESSAGE"
    with connect(bus.server, "tcp") as peer:
        peer.write_bytes(struct.pack(">I", 16_752))  # type: ignore[attr-defined]
        messages, _ = peer.until_closed()
        assert [message.topic for message in messages] == ["system.initialize"] * len(messages)
    with dial_server(bus.server) as client:
        client.write(f"POST / HTTP/1.1\r\ncmd: produce\r\nmq: x\r\ncontent-length: {64 * MIB + 1}\r\n\r\n".encode())
        assert client.receive().status == 413
    with Http(bus.server.port("seneca")) as http:
        http.announce(8 * MIB + 1)
        assert http.read().status == 413
    assert danube_error(bus.server, place.topic, b"x" * (4 * MIB - 64 * 1024)) == "INVALID_ARGUMENT"


def test_what_is_just_not_too_large_is_taken(bus: OneBus, place: Place) -> None:
    """E7, L1."""
    client = bus.zbus()
    client.create(place.topic)
    assert mb_error(bus.mb(), place.topic, b"x" * 16_384) == ""
    assert danube_error(bus.server, place.topic, b"x" * (4 * MIB - 65 * 1024)) == ""
    assert seneca_error(bus.server, place.keys | {"x": "x" * (8 * MIB - 1000)}) == ""
    client.produce(place.topic, b"x" * (16 * MIB))
    sizes = [len(client.take(place.topic).body) for _ in range(4)]
    assert (sizes[0], sizes[1], sizes[3]) == (16_384, 4 * MIB - 65 * 1024, 16 * MIB)
    assert 8 * MIB - 1000 < sizes[2] < 8 * MIB
