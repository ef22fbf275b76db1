"""With security on: one question at one door, whatever the wire, and its answer holds from the moment it changes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import Binding, BindingRequest, Role, SecurityResponse
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.danube_wire import DanubeWire
from tests.rigs.http_door import Answer, call, event_stream
from tests.rigs.http_door import post as http_post
from tests.rigs.mb_wire import SUCCESS, Peer, connect
from tests.rigs.one_bus import Place
from tests.rigs.seneca_wire import post, seed
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import Client, dial_server

SECURITY = "danube_admin.SecurityAdmin/"
ROOT = token("root")
_roles = (f"role{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__TOKEN_SECRET=SECRET, RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER,
        RACEWAY_SECURITY__SUPER_ADMINS="root", RACEWAY_LISTEN__DANUBE__REFUSAL_MS=50,
    ) as server:  # fmt: skip
        with dial_server(server) as client:
            client.synchronise(token=ROOT)
        yield server


def wire_of(server: Server, name: str) -> DanubeWire:
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port('danube')}", [("grpc.enable_http_proxy", 0)])
    return DanubeWire(channel, [("authorization", f"Bearer {token(name)}")])


@pytest.fixture(scope="module")
def root(server: Server) -> Iterator[DanubeWire]:
    wire = wire_of(server, "root")
    yield wire
    wire.channel.close()


class Permits:
    """What is allowed in a test, and may be taken back."""

    def __init__(self, root: DanubeWire, place: Place) -> None:
        self._root, self._place = root, place

    def give(self, principal: str, *permissions: str, everywhere: bool = False) -> str:
        """On the place, or everywhere. `anonymous:mb` or the name of a service account. The binding's id."""
        role, (kind, _, name) = next(_roles), principal.partition(":")
        self._root.ask(SECURITY + "CreateRole", Role(name=role, permissions=permissions), SecurityResponse)
        binding = Binding(
            principal_type=kind if name else "service_account", principal_name=name or kind, role=role,
            scope="cluster" if everywhere else "topic", resource="" if everywhere else self._place.danube,
        )  # fmt: skip
        return str(self._root.ask(SECURITY + "CreateBinding", binding, Binding).id)

    def take_back(self, binding: str) -> None:
        self._root.ask(SECURITY + "DeleteBinding", BindingRequest(id=binding), SecurityResponse)


@pytest.fixture
def permits(root: DanubeWire, place: Place) -> Permits:
    return Permits(root, place)


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with connect(server, "tcp") as peer:
        yield peer


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with dial_server(server) as client:
        yield client


def publish(server: Server, place: Place, payload: bytes) -> None:
    assert http_post(server, f"/topics/{place.topic}", payload, authorization=f"Bearer {ROOT}").status == 201


def make_queue(server: Server, place: Place, mode: int = 1, code: str = "") -> None:
    wanted = json.dumps({"mqName": place.topic, "mqMode": str(mode), "accessToken": code})
    with dial_server(server) as client:
        assert client.ask("admin", wanted, method="create_mq", token=ROOT).status == 200


# ---- every door, every verb ------------------------------------------------------------------------------------------


def test_what_is_not_allowed_is_forbidden_for_each_verb_on_each_wire(
    server: Server, place: Place, peer: Peer, client: Client
) -> None:
    """D8, E6. Publish, subscribe, consume, ask, look around, administrate: MB, zbus, Seneca, Danube and HTTP."""
    publish(server, place, b"{}")
    make_queue(server, place)
    for asked in (
        peer.publish(place.topic),
        peer.ask(place.topic),
        peer.ask("system.topic.subscribe", {"action": "publish", "topic": place.topic}),
        peer.ask("system.topic.subscribe", {"action": "request", "topic": place.topic}),
        peer.ask("system.topic.subscribe", {"action": "publish", "topic": "#"}),
        peer.ask("system.service.list"),
        peer.ask("system.log.subscribe", {"levels": ["error"]}),
    ):
        assert asked.json()["error"]["code"] == "FORBIDDEN", asked
    for status in (
        client.ask("produce", b"x", mq=place.topic).status,
        client.ask("consume", mq=place.topic).status,
        client.ask("request", b"x", mq=place.topic).status,
        client.ask("admin", b"", method="data").status,
        client.ask("admin", b'{"mqName":"more","mqMode":"1"}', method="create_mq").status,
    ):
        assert status == 403
    for sync in (True, False):
        assert post(server, seed(place.keys, sync=sync)).json()["code"] == "forbidden"
    nobody = wire_of(server, "nobody")
    for make in (nobody.producer, nobody.consumer):
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            make(place.danube)
    nobody.channel.close()


def test_replay_dead_letters_and_search_ask_too(server: Server, place: Place, permits: Permits) -> None:
    """D8. Messages that are long stored are as private as new ones."""
    publish(server, place, b"{}")
    make_queue(server, place)
    clerk = f"Bearer {token(place.word)}"

    def asked() -> list[int]:
        replay = json.dumps({"topic": place.topic, "from": "first"}).encode()
        answers: list[Answer] = [
            http_post(server, "/api/replay", replay, authorization=clerk),
            call(server, "GET", f"/topics/{place.topic}", authorization=clerk),
            call(server, "GET", "/api/rejected?source=dead_letter", authorization=clerk),
            call(server, "GET", "/api/rejected?source=rejected", authorization=clerk),
            call(server, "GET", f"/api/messages?topic={place.topic}", authorization=clerk),
        ]
        return [answer.status for answer in answers]

    assert asked()[:2] == [403, 403]
    permits.give(place.word, "Consume")
    assert asked() == [200, 200, 403, 403, 403], "of one topic: not what was rejected elsewhere, nor all messages"
    permits.give(place.word, "Consume", everywhere=True)
    assert asked() == [200] * 5


def test_an_answer_comes_only_from_who_was_allowed_to_be_asked(
    server: Server, place: Place, permits: Permits, peer: Peer, client: Client
) -> None:
    """D8. Consuming is what lets a service be asked, on zbus as on MB."""
    make_queue(server, place)
    headers: dict[str, Any] = {"authorization": f"Bearer {ROOT}", "timeout_ms": "5000"}
    assert client.ask("consume", mq=place.topic).status == 403
    assert http_post(server, f"/requests/{place.topic}", b"?", **headers).status == 404
    permits.give("anonymous:zbus", "Consume")
    armed = client.arm(place.topic)
    with dial_server(server) as asking:
        asked = asking.request(place.topic, b"?", token=ROOT)
        client.answer(client.reply(armed), b"!")
        assert asking.reply(asked).body == b"!"


# ---- tokens of zbus --------------------------------------------------------------------------------------------------


def test_a_token_of_zbus_may_name_a_principal(server: Server, place: Place, permits: Permits, client: Client) -> None:
    """D8. Message by message: one connection may speak for several."""
    make_queue(server, place)
    permits.give(f"{place.word}-in", "Produce")
    permits.give(f"{place.word}-out", "Consume")
    writer, reader = token(f"{place.word}-in"), token(f"{place.word}-out")
    assert client.ask("produce", b"1", mq=place.topic, token=writer).status == 200
    assert client.ask("produce", b"2", mq=place.topic, token=reader).status == 403
    assert client.ask("produce", b"3", mq=place.topic).status == 403
    assert client.ask("consume", mq=place.topic, token=writer).status == 403
    delivery = client.ask("consume", mq=place.topic, token=reader)
    assert (delivery.body, "token" in delivery.headers) == (b"1", False)
    assert client.ask("produce", b"4", mq=place.topic, token=token(f"{place.word}-in", exp=1)).status == 403


def test_messages_of_one_segment_have_the_permissions_of_their_own_tokens(
    server: Server, place: Place, permits: Permits, client: Client
) -> None:
    """D8. However many come at once."""
    make_queue(server, place)
    permits.give(place.word, "Produce", "Consume")
    good, ids = token(place.word), [f"m{number}" for number in range(6)]
    lines = [f"token: {good}\r\n" if number % 2 else "" for number in range(6)]
    start = f"POST / HTTP/1.1\r\ncmd: produce\r\nmq: {place.topic}\r\ncontent-length: 1\r\n"
    heads = [f"{start}msgid: {msgid}\r\n{line}\r\nx" for msgid, line in zip(ids, lines, strict=True)]
    client.write("".join(heads).encode())
    assert [client.reply(msgid).status for msgid in ids] == [403, 200] * 3
    got = [client.ask("consume", mq=place.topic, token=good).raw_id for _ in range(3)]
    assert got == ids[1::2]


def test_who_is_known_by_name_needs_no_code_of_a_queue_and_who_is_not_needs_both(
    server: Server, place: Place, permits: Permits, client: Client
) -> None:
    """D8. The queue's own token guards it as before, and is not enough."""
    make_queue(server, place, code="sesame")
    assert client.ask("produce", b"1", mq=place.topic, token="sesame").status == 403
    permits.give("anonymous:zbus", "Produce")
    assert client.ask("produce", b"1", mq=place.topic).status == 403
    assert client.ask("produce", b"1", mq=place.topic, token="sesame").status == 200
    permits.give(place.word, "Consume")
    assert client.ask("consume", mq=place.topic, token=token(place.word)).body == b"1"


# ---- changes ---------------------------------------------------------------------------------------------------------


def test_an_mb_subscription_ends_when_it_is_no_longer_allowed(
    server: Server, place: Place, permits: Permits, peer: Peer
) -> None:
    """D8. Of both kinds; and what is still allowed goes on."""
    everywhere = permits.give("anonymous:mb", "Consume", "Lookup", everywhere=True)
    narrow = permits.give("anonymous:mb", "Consume")
    peer.subscribe(place.topic)
    peer.subscribe(place.topic, "request")
    peer.subscribe(f"{place.word}.#")
    publish(server, place, b"1")
    assert [peer.receive().payload] == [b"1"], "one copy, however many patterns match"
    permits.take_back(everywhere)
    publish(server, place, b"2")
    assert peer.receive().payload == b"2", "the topic itself is still allowed"
    permits.take_back(narrow)
    publish(server, place, b"3")
    headers: dict[str, Any] = {"authorization": f"Bearer {ROOT}"}
    assert http_post(server, f"/requests/{place.topic}", b"?", **headers).status == 404
    assert [message for message in peer.settled() if message.topic == place.topic] == []
    refused = peer.ask("system.topic.subscribe", {"action": "publish", "topic": place.topic})
    assert refused.json()["error"]["code"] == "FORBIDDEN"
    permits.give("anonymous:mb", "Consume")
    peer.subscribe(place.topic)
    publish(server, place, b"4")
    assert peer.receive().payload == b"4"


@pytest.mark.parametrize("mode", [1, 2], ids=["queue", "pubsub"])
def test_a_zbus_consumer_is_told_when_it_is_no_longer_allowed(
    server: Server, place: Place, permits: Permits, client: Client, mode: int
) -> None:
    """D8. Its waiting consume is answered with 403, and the next message is for somebody else."""
    make_queue(server, place, mode)
    topic = {"topic": "*"} if mode == 2 else {}
    binding = permits.give("anonymous:zbus", "Consume")
    armed = client.arm(place.topic, window="-1", **topic)
    publish(server, place, b"1")
    assert client.reply(armed).body == b"1"
    permits.take_back(binding)
    assert client.reply(armed).status == 403
    publish(server, place, b"2")
    assert client.settled() == []
    assert client.ask("consume", mq=place.topic, **topic).status == 403
    with dial_server(server) as other:
        armed = other.arm(place.topic, token=ROOT, **topic)
        if mode == 2:
            publish(server, place, b"2")
        assert other.reply(armed).body == b"2"


def test_streams_of_danube_and_http_end_when_they_are_no_longer_allowed(
    server: Server, place: Place, permits: Permits
) -> None:
    """D8. Before the next message."""
    publish(server, place, b"0")
    binding = permits.give(place.word, "Consume")
    wire = wire_of(server, place.word)
    stream = wire.listen(wire.consumer(place.danube))
    with event_stream(server, f"/topics/{place.topic}", authorization=f"Bearer {token(place.word)}") as reader:
        events = reader.events()
        publish(server, place, b"1")
        assert (next(stream).payload, next(events).data["payload"]) == (b"1", "1")
        permits.take_back(binding)
        publish(server, place, b"2")
        assert list(events) == []
        with pytest.raises(grpc.RpcError) as refused:
            next(stream)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    wire.channel.close()


def test_a_role_that_loses_a_permission_takes_it_from_all_who_have_the_role(
    server: Server, root: DanubeWire, place: Place, permits: Permits, peer: Peer
) -> None:
    """D8. Not only a binding that goes."""
    role = next(_roles)
    root.ask(SECURITY + "CreateRole", Role(name=role, permissions=["Consume", "Produce"]), SecurityResponse)
    binding = Binding(
        principal_type="anonymous", principal_name="mb", role=role, scope="topic", resource=place.danube
    )  # fmt: skip
    root.ask(SECURITY + "CreateBinding", binding, Binding)
    peer.subscribe(place.topic)
    assert peer.publish(place.topic, b"1").payload == SUCCESS
    assert peer.receive().payload == b"1"
    root.ask(SECURITY + "CreateRole", Role(name=role, permissions=["Produce"]), SecurityResponse)
    wait_until(lambda: peer.publish(place.topic, b"2").json()["error"]["code"] == "NO_ROUTE_FOUND")
    assert [message for message in peer.settled() if message.payload == b"2"] == []
