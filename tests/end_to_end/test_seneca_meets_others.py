"""Seneca, MB and zbus on one bus: requests and publishes that cross from one wire to another, and their rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.rigs.mb_wire import SUCCESS, Peer, connect
from tests.rigs.mb_wire import new_id as new_uuid
from tests.rigs.seneca_bus import RawService, raw_service, web
from tests.rigs.seneca_wire import Answer, attached, console, fresh_word, new_id, post, seed, wait_for_rows
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import Client


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_SENECA__RETRIES_MS="[50, 50, 50]") as server:
        yield server


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with connect(server, "tcp") as peer:
        yield peer


@pytest.fixture
def word() -> str:
    """The role that this test's messages have."""
    return fresh_word()


@pytest.fixture(scope="module")
def callers() -> Iterator[ThreadPoolExecutor]:
    """Calls that wait for an answer which the test itself will give."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def add(document: dict[str, Any]) -> dict[str, Any]:
    if document.get("a") == 0:
        raise ArithmeticError("division by zero")
    return {"sum": document["a"] + document["b"], "role": document["role"], "cmd": document["cmd"]}


@pytest.fixture
def service(server: Server, word: str) -> Iterator[RawService]:
    """A Seneca service behind the bus, known to other wires as `<word>.sum`, or anything else for `sum`."""
    with raw_service(web(add)) as service, attached(server, f"role:{word},cmd:*", service.url):
        yield service


# ---- asking a Seneca service ----------------------------------------------------------------------------------------


def test_mb_asks_a_seneca_service(server: Server, peer: Peer, word: str, service: RawService) -> None:
    message_id = new_uuid()
    answer = peer.ask(f"{word}.sum", {"a": 1, "b": 2}, message_id=message_id)
    assert answer.json() == {"sum": 3, "role": word, "cmd": "sum"}
    (asked,) = service.messages
    mid, _, cid = asked["meta$"]["id"].partition("/")
    assert message_id != mid, "the requester's id is not passed on"
    request, response = wait_for_rows(server, 2, topic=f"{word}.sum")
    assert (request["wire"], request["message_id"], response["wire"]) == ("mb", message_id, "seneca")
    assert (response["answers"], response["correlation_id"]) == (request["sequence"], message_id)
    assert cid == message_id, "the whole chain is found by its first id"
    (hop,) = response["hops"]
    assert (hop["rid"], hop["mid"], len(hop["tms"])) == ("B", message_id, 3)


def test_zbus_asks_a_seneca_service(client: Client, word: str, service: RawService) -> None:
    answer = client.reply(client.request(f"{word}.sum", b'{"a": 1, "b": 2}'))
    assert (answer.status, answer.json()) == (200, {"sum": 3, "role": word, "cmd": "sum"})
    assert len(service.messages) == 1


def test_an_error_of_a_seneca_service_is_an_error_on_every_wire(
    client: Client, peer: Peer, word: str, service: RawService
) -> None:
    error = peer.ask(f"{word}.sum", {"a": 0}).json()["error"]
    assert (error["code"], error["message"], error["details"]) == ("div_zero", "division by zero", {"a": 0})
    answer = client.reply(client.request(f"{word}.sum", b'{"a": 0}'))
    assert (answer.status, answer.json()["code"]) == (500, "div_zero")


def test_what_is_no_object_is_wrapped_for_seneca_and_comes_back_as_what_it_was(
    server: Server, client: Client, peer: Peer, word: str
) -> None:
    def echo(document: dict[str, Any]) -> dict[str, Any]:
        return {name: document[name] for name in ("data", "data_base64") if name in document}

    with raw_service(web(echo)) as service, attached(server, f"role:{word}", service.url):
        for payload in (b"hello", b"[1, 2]", b"17", b'"text"'):
            assert peer.ask(word, payload).payload == payload
        assert client.reply(client.request(word, b"\xff\x00")).body == b"\xff\x00"
        assert [message.get("data") for message in service.messages] == ["hello", [1, 2], 17, "text", None]


def test_a_service_that_asks_on_is_part_of_the_same_chain(server: Server, peer: Peer, word: str) -> None:
    """MB asks B, B asks C through the bus: one correlation id, and each row names what caused it."""
    inner = fresh_word()

    def ask_on(document: dict[str, Any]) -> dict[str, Any]:
        return {"c": post(server, document["next"]).json()["ok"]}

    with raw_service(web(lambda document: {"ok": True}, "C")) as c, attached(server, f"role:{inner}", c.url):

        def handle(received: Any, connection: Any) -> None:
            meta = received.document.get("meta$", {})
            if "id" in meta and received.document.get("role") == word:
                mid, _, cid = meta["id"].partition("/")
                trk = [{"sid": "mb", "rid": "B", "mid": mid, "tms": [1, 2]}]
                received.document["next"] = seed({"role": inner}, sid="B", cid=cid, mid="m-next")
                received.document["next"]["meta$"]["trk"] = [*trk, {"sid": "B", "mid": "m-next", "tms": [3]}]
            web(ask_on, "B")(received, connection)

        message_id = new_uuid()
        with raw_service(handle) as b, attached(server, f"role:{word}", b.url):
            assert peer.ask(word, {}, message_id=message_id).json() == {"c": True}
        (row, _) = wait_for_rows(server, 2, topic=inner)
        assert (row["parent_id"], row["correlation_id"]) == (message_id, message_id)


# ---- Seneca asks ----------------------------------------------------------------------------------------------------


def test_seneca_asks_an_mb_service(server: Server, peer: Peer, word: str, callers: ThreadPoolExecutor) -> None:
    peer.subscribe(f"{word}.sum", "request")
    mid, cid = new_id(), new_id("c")
    document = seed({"role": word, "cmd": "sum", "a": 1}, mid=mid, cid=cid)
    with connect(server, "tcp") as other:
        asking = callers.submit(post, server, document)
        request = peer.next_request()
        assert request.json() == {"role": word, "cmd": "sum", "a": 1}
        peer.answer(request, {"sum": 3})
        answer = asking.result(10)
        assert (answer.status, answer.data) == (200, {"sum": 3})
        (entry,) = answer.meta["trk"]
        assert (entry["sid"], entry["rid"], entry["mid"], len(entry["tms"])) == ("A", peer.service_id(), mid, 3)
        assert other.settled() == []
    asked, answered = wait_for_rows(server, 2, topic=f"{word}.sum")
    assert (asked["wire"], answered["wire"], answered["correlation_id"]) == ("seneca", "mb", cid)


def test_seneca_asks_a_zbus_service(server: Server, client: Client, word: str, callers: ThreadPoolExecutor) -> None:
    client.create(f"{word}.sum")
    armed = client.arm(f"{word}.sum")
    asking: Future[Answer] = callers.submit(post, server, seed({"role": word, "cmd": "sum", "a": 1}))
    delivery = client.reply(armed)
    assert json.loads(delivery.body) == {"role": word, "cmd": "sum", "a": 1}
    client.answer(delivery, b'{"sum": 3}')
    assert asking.result(10).data == {"sum": 3}


def test_an_error_of_an_mb_service_is_an_error_to_seneca(
    server: Server, peer: Peer, word: str, callers: ThreadPoolExecutor
) -> None:
    peer.subscribe(word, "request")
    asking: Future[Answer] = callers.submit(post, server, seed({"role": word}))
    peer.answer(peer.next_request(), {"error": {"code": "SOLD_OUT", "message": "no seats", "details": {"n": 0}}})
    answer = asking.result(10)
    assert (answer.status, answer.meta["error"]) == (500, True)
    assert answer.data == {"code": "SOLD_OUT", "message": "no seats", "details": {"n": 0}}


# ---- publishes ------------------------------------------------------------------------------------------------------


def test_what_seneca_publishes_reaches_mb_and_zbus(server: Server, client: Client, peer: Peer, word: str) -> None:
    client.create(word)
    peer.subscribe(word)
    assert post(server, seed({"role": word, "n": [1, {"x": "ü"}]}, sync=False)).status == 202
    wanted = {"role": word, "n": [1, {"x": "ü"}]}
    assert json.loads(peer.receive().payload) == wanted
    assert client.take(word).json() == wanted


def test_what_mb_and_zbus_publish_reaches_a_seneca_service(
    server: Server, client: Client, peer: Peer, word: str, service: RawService
) -> None:
    client.create(f"{word}.saved")
    assert peer.publish(f"{word}.saved", {"a": 1, "b": 1}).payload == SUCCESS
    client.produce(f"{word}.saved", b'{"a": 2, "b": 2}')
    messages = service.wait_for(2)
    assert [(m["role"], m["cmd"], m["a"], m["meta$"]["sync"]) for m in messages] == [
        (word, "saved", 1, False), (word, "saved", 2, False),
    ]  # fmt: skip


def test_a_pin_counts_as_somebody_who_listens(server: Server, peer: Peer, word: str, service: RawService) -> None:
    """MB answers a publish that nobody wants with NO_ROUTE_FOUND."""
    assert peer.publish(f"{word}.other", {"a": 1, "b": 1}).payload == SUCCESS
    assert peer.publish(fresh_word(), {}).json()["error"]["code"] == "NO_ROUTE_FOUND"


# ---- the console ----------------------------------------------------------------------------------------------------


def test_attached_services_are_listed_with_their_health(server: Server, word: str, service: RawService) -> None:
    found = console(server, "GET", "/api/seneca/services").json()["services"]
    (row,) = [row for row in found if row["url"] == service.url]
    assert (row["pin"], row["topic"], row["dialect"], row["state"]) == (f"cmd:*,role:{word}", f"{word}.+", "W", "up")
    assert server.metric("raceway_seneca_services", state="up") >= 1
    patterns = console(server, "GET", "/api/subscriptions").json()["subscriptions"]
    assert ("request", f"{word}.+") in {(row["kind"], row["pattern"]) for row in patterns}


PATH = "/api/seneca/services"


def test_attachments_survive_a_restart() -> None:
    with running_server() as own, raw_service(web(add)) as service:
        word = fresh_word()
        with pytest.raises(AssertionError), attached(own, "role:seneca", service.url):
            pass
        console(own, "POST", "/api/seneca/services", {"pin": f"role:{word},cmd:sum", "url": service.url})
        own.restart()
        assert post(own, seed({"role": word, "cmd": "sum", "a": 1, "b": 2})).data["sum"] == 3
        own.kill()
        own.start()
        assert post(own, seed({"role": word, "cmd": "sum", "a": 2, "b": 2})).data["sum"] == 4
        gone = {"pin": f"role:{word},cmd:sum", "url": service.url}
        assert console(own, "DELETE", "/api/seneca/services", gone).json() == {"detached": 1}
        own.restart()
        assert console(own, "GET", "/api/seneca/services").json() == {"services": []}


def test_a_name_given_to_a_pin_survives_a_restart_and_a_refused_list_leaves_nothing() -> None:
    def listed() -> dict[str, str]:
        return {row["pin"]: row["topic"] for row in console(own, "GET", PATH).json()["services"]}

    with running_server() as own, raw_service(web(lambda told: {"told": told})) as service:
        for key in ("foo", "faf"):
            raceway = [
                sys.executable,
                "-m",
                "raceway",
                "seneca",
                "attach",
                f"{key}:*",
                service.url,
                "--name",
                f"{key}s",
            ]
            console_url = f"http://127.0.0.1:{own.port('console')}"
            subprocess.run([*raceway, "--url", console_url], check=True, capture_output=True, timeout=60)
        refused = console(own, "POST", PATH, {"pin": "role:c,cmd:*;fif:*;fof:*", "url": service.url})
        assert (refused.status, "fof:*" in refused.json()["error"]["message"]) == (409, True)
        both = {"foo:*": "foos", "faf:*": "fafs"}
        assert listed() == both
        own.kill()
        own.start()
        assert listed() == both
        assert post(own, {"faf": 1}).json() == {"told": {"faf": 1}}
        gone = {"pin": "foo:*;faf:*", "url": service.url}
        assert console(own, "DELETE", PATH, gone).json() == {"detached": 2}


def test_a_call_is_answered_by_its_own_pin_where_topics_overlap(server: Server, peer: Peer, word: str) -> None:
    with (
        raw_service(web(lambda told: {"by": "general", "told": told})) as general,
        raw_service(web(lambda told: {"by": "special", "told": told})) as special,
        attached(server, f"plugin:{word}zz,cmd:*", general.url),
        attached(server, f"role:{word}zz,cmd:sum", special.url),
    ):
        for key, name in (("role", "special"), ("plugin", "general")):
            sent = {key: f"{word}zz", "cmd": "sum"}
            assert [post(server, sent).json() for _ in range(6)] == [{"by": name, "told": sent}] * 6
        answers = [json.loads(peer.ask(f"{word}zz.sum", {"n": 1}).payload) for _ in range(6)]
        assert answers == [{"by": "special", "told": {"n": 1, "role": f"{word}zz", "cmd": "sum"}}] * 6
