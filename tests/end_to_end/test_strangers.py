"""With security on: every door as somebody without credentials, and what such a one learns there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import Binding, Role, SecurityResponse
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.danube_wire import DanubeWire
from tests.rigs.http_door import call
from tests.rigs.http_door import post as http_post
from tests.rigs.mb_wire import SUCCESS, connect
from tests.rigs.seneca_wire import post, seed
from tests.rigs.server import Door, Server, running_server, wait_until
from tests.rigs.zbus_wire import Client, dial_server

ROOT, CLERK = token("root"), token("clerk")
OWN_TOKEN, TRACKER_TOKEN = "administrator", "among brokers"
SECURITY = "danube_admin.SecurityAdmin/"
TRACKER_OFFSET = 7


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    zbus = "RACEWAY_LISTEN__ZBUS__"
    settings: dict[str, Any] = {
        f"{zbus}TRACKER": "true", f"{zbus}TRACKER_TOKEN": TRACKER_TOKEN, f"{zbus}PROBE_MS": 60_000,
        "RACEWAY_SECURITY__ENABLED": "true", "RACEWAY_SECURITY__TOKEN_SECRET": SECRET,
        "RACEWAY_SECURITY__TOKEN_ISSUER": ISSUER, "RACEWAY_SECURITY__SUPER_ADMINS": "root",
        "RACEWAY_SECURITY__FREE_FAILURES": 0, "RACEWAY_LISTEN__DANUBE__REFUSAL_MS": 50,
    }  # fmt: skip
    with running_server(**settings) as server:
        with dial_server(server) as client:
            client.synchronise(token=ROOT)
            for mq in ("payroll", "orders"):
                client.create(mq, token=ROOT)
        assert (
            http_post(server, "/topics/payroll", b"{}", authorization=f"Bearer {ROOT}", x_message_id="m1").status == 201
        )
        permit(server, "clerk", "Consume", "/default/orders")
        yield server


def wire_of(server: Server, name: str = "") -> DanubeWire:
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port('danube')}", [("grpc.enable_http_proxy", 0)])
    return DanubeWire(channel, [("authorization", f"Bearer {token(name)}")] if name else [])


def permit(server: Server, principal: str, permission: str, topic: str) -> None:
    kind, _, name = principal.rpartition(":")
    with closing(wire_of(server, "root").channel) as channel:
        root = DanubeWire(channel, [("authorization", f"Bearer {ROOT}")])
        role = f"{principal}-{permission}"
        root.ask(SECURITY + "CreateRole", Role(name=role, permissions=[permission]), SecurityResponse)
        given = Binding(
            principal_type=kind or "service_account", principal_name=name, role=role, scope="topic", resource=topic
        )
        root.ask(SECURITY + "CreateBinding", given, Binding)


# ---- the walk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_mb(server: Server, transport: Any) -> None:
    with connect(server, transport) as peer:
        for asked in (
            peer.publish("payroll"),
            peer.ask("payroll"),
            peer.ask("system.topic.subscribe", {"action": "publish", "topic": "payroll"}),
            peer.ask("system.topic.subscribe", {"action": "publish", "topic": "#"}),
            peer.ask("system.topic.subscribe", {"action": "request", "topic": "payroll"}),
            peer.ask("system.service.list"),
            peer.ask("system.topic.list"),
            peer.ask("system.metrics"),
            peer.ask("system.log.subscribe", {"levels": ["error"]}),
            peer.ask("system.service.register", {"name": "payroll-service", "description": "me"}),
        ):
            assert asked.json()["error"]["code"] == "FORBIDDEN", asked


def test_a_name_on_mb_is_for_those_who_may_speak_or_listen_somewhere(server: Server) -> None:
    with connect(server, "tcp") as peer:
        wanted = {"name": "till", "description": "sells"}
        assert peer.ask("system.service.register", wanted).json()["error"]["code"] == "FORBIDDEN"
        permit(server, "anonymous:mb", "Produce", "/default/sales")
        assert peer.ask("system.service.register", wanted).payload == SUCCESS
    peers = call(server, "GET", "/api/peers", authorization=f"Bearer {ROOT}").json()["peers"]
    assert "payroll-service" not in {each["name"] for each in peers}


@pytest.mark.parametrize("port", ["zbus", "tracker"])
def test_zbus(server: Server, port: str) -> None:
    with Client(server.port_base + TRACKER_OFFSET if port == "tracker" else server.port("zbus")) as client:
        for cmd in ("produce", "consume", "request"):
            for mq in ("payroll", "no-such-queue", ""):
                assert client.ask(cmd, b"x", mq=mq).status == 403, (cmd, mq)
        for method in ("index", "data", "track_sub"):
            assert client.admin(method).status == 403
        assert client.admin("create_mq", b'{"mqName":"mine","mqMode":"1"}').status == 403
        assert client.ask("track_sub").status == 403


def test_seneca(server: Server) -> None:
    for sync in (True, False):
        assert post(server, seed({"role": "payroll"}, sync=sync)).json()["code"] == "forbidden"
    with socket.create_connection(("127.0.0.1", server.port("seneca_tcp"))) as line:
        line.sendall(b'{"id":"1/a","kind":"act","origin":"o","time":{},"act":{"role":"payroll"},"sync":true}\n')
        assert b"forbidden" in line.recv(65536)


def test_danube(server: Server) -> None:
    with closing(wire_of(server).channel) as channel:
        stranger = DanubeWire(channel, [])
        for topic in ("/default/payroll", "/default/no-such-topic"):
            for make in (stranger.producer, stranger.consumer):
                with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
                    make(topic)
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            stranger.ask(SECURITY + "CreateRole", Role(name="mine", permissions=["ManageCluster"]), SecurityResponse)


def test_the_console_port(server: Server) -> None:
    """Its whole table is walked in tests/web/test_doorman.py; here through a socket."""
    for path in ("/healthz", "/readyz", "/metrics", "/", "/api/session"):
        assert call(server, "GET", path).status == 200, path
    for method, path in (
        ("GET", "/api/overview"), ("GET", "/api/live"), ("GET", "/api/messages"), ("GET", "/topics/payroll"),
        ("POST", "/topics/payroll"), ("POST", "/requests/payroll"), ("GET", "/api/traces/m1"), ("GET", "/api/rejected"),
        ("POST", "/api/replay"), ("GET", "/subjects"), ("PUT", "/config"), ("GET", "/asyncapi.json"), ("GET", "/no"),
        ("OPTIONS", "/topics/payroll"), ("PATCH", "/topics/payroll"), ("GET", "/api/openapi.json"),
    ):  # fmt: skip
        assert call(server, method, path).status == 403, (method, path)
        assert call(server, method, path, authorization="Bearer nonsense").status == 401, (method, path)


def test_metrics_name_no_topic_to_strangers(server: Server) -> None:
    assert "payroll" not in server.http("/metrics")[1]


# ---- what they learn -------------------------------------------------------------------------------------------------


def test_whether_a_queue_exists_is_not_told_to_those_who_may_do_nothing_there(server: Server) -> None:
    with dial_server(server) as client:
        for who in ("", CLERK, "a guess"):
            keys = {"token": who} if who else {}
            for cmd in ("produce", "consume", "request"):
                answers = [client.ask(cmd, b"x", mq=mq, **keys) for mq in ("payroll", "payrolk")]
                assert [answer.status for answer in answers] == [403, 403]
                assert answers[0].body.replace(b"payroll", b"payrolk") == answers[1].body
        assert client.ask("consume", b"x", mq="orderz", token=ROOT).status == 404, "who may is told"


def test_a_trace_is_searched_only_for_those_who_may_consume_somewhere(server: Server) -> None:
    assert call(server, "GET", "/api/traces/m1").status == 403
    hidden = call(server, "GET", "/api/traces/m1", authorization=f"Bearer {CLERK}")
    absent = call(server, "GET", "/api/traces/m2", authorization=f"Bearer {CLERK}")
    assert (hidden.status, absent.status) == (404, 404)
    assert hidden.body.replace(b"m1", b"m2") == absent.body
    assert b"rows searched" not in absent.body
    assert call(server, "GET", "/api/traces/m1", authorization=f"Bearer {ROOT}").status == 200
    assert b"rows searched" in call(server, "GET", "/api/traces/m2", authorization=f"Bearer {ROOT}").body


def test_positions_of_rejected_messages_are_not_told(server: Server) -> None:
    root = f"Bearer {ROOT}"
    schema = json.dumps({"type": "json_schema", "definition": '{"type": "object"}'}).encode()
    assert http_post(server, "/api/schemas/strict/versions", schema, authorization=root).status == 201
    bound = json.dumps({"subject": "strict", "policy": "enforce", "validate_payload": True}).encode()
    assert call(server, "PUT", "/api/topic-schemas/strict", bound, authorization=root).status == 200
    assert http_post(server, "/topics/strict", b"[]", authorization=root).status == 422
    (row,) = wait_until(lambda: call(server, "GET", "/api/rejected", authorization=root).json()["rejected"])
    there, elsewhere = row["position"], row["position"] + 1_000_000
    for who, wanted in (("", 403), (f"Bearer {CLERK}", 404)):
        headers: dict[str, Any] = {"authorization": who} if who else {}
        for method, end in (("GET", ""), ("POST", "/redrive")):
            answers = [call(server, method, f"/api/rejected/{each}{end}", **headers) for each in (there, elsewhere)]
            assert [answer.status for answer in answers] == [wanted, wanted]
            assert answers[0].body.replace(str(there).encode(), str(elsewhere).encode()) == answers[1].body
    assert call(server, "GET", f"/api/rejected/{there}", authorization=root).status == 200


# ---- the tracker -----------------------------------------------------------------------------------------------------


def report(client: Client, address: str, **keys: str) -> None:
    table = {"payroll": {"broker": address, "name": "payroll", "mode": 1}}
    client.send("track_report", json.dumps({"broker": address, "lastUpdatedTime": 1, "mqTable": table}), **keys)


def brokers(client: Client) -> set[str]:
    return set(client.ask("track_sub", token=ROOT).json()["brokerTable"])


@pytest.mark.parametrize("offset", [3, TRACKER_OFFSET])
def test_only_brokers_report_themselves_to_the_tracker(server: Server, offset: int) -> None:
    with Client(server.port_base + offset) as client, socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        for keys in ({}, {"token": CLERK}, {"token": "a guess"}):
            report(client, address, **keys)
            assert client.receive().status == 403
        assert address not in brokers(client)
        report(client, address, token=TRACKER_TOKEN)
        wait_until(lambda: address in brokers(client), what="the report of a broker")
        assert client.ask("track_sub", token=CLERK).status == 403, "one topic is not the cluster"
        assert client.ask("track_sub", token=TRACKER_TOKEN).status == 403


def test_a_manager_of_the_broker_may_report_too(server: Server) -> None:
    with dial_server(server) as client:
        report(client, "127.0.0.1:27999", token=ROOT)
        wait_until(lambda: "127.0.0.1:27999" in brokers(client), what="the report of a manager")


# ---- one Host, one Origin --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["console", "seneca", "zbus"])
@pytest.mark.parametrize("name", ["Host", "Origin", "hOST"])
def test_two_hosts_or_two_origins_are_a_bad_request(server: Server, door: Door, name: str) -> None:
    own = f"127.0.0.1:{server.port(door)}"
    for values in ((own, "evil.example"), ("evil.example", own), (own, own)):
        prefix = "http://" if name == "Origin" else ""
        lines = ["GET /healthz?cmd=heartbeat HTTP/1.1", *(f"{name}: {prefix}{value}" for value in values), "", ""]
        with socket.create_connection(("127.0.0.1", server.port(door)), timeout=10) as connection:
            connection.sendall("\r\n".join(lines).encode())
            assert connection.recv(65536).split(b" ")[1] == b"400"


# ---- guessing --------------------------------------------------------------------------------------------------------


def test_whoever_guesses_must_wait_on_every_door_and_a_good_token_need_not() -> None:
    """One address has one count, whatever the door: one of signed tokens, and one of the administrator's."""
    bad, free = token("root", secret="a secret that is long enough, but another one"), 4
    with running_server(
        RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__TOKEN_SECRET=SECRET, RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER,
        RACEWAY_SECURITY__SUPER_ADMINS="root", RACEWAY_SECURITY__FREE_FAILURES=free,
        RACEWAY_SECURITY__FAILURE_WAIT_S=30, RACEWAY_SECURITY__ADMIN_TOKEN=OWN_TOKEN,
    ) as server, dial_server(server) as client:  # fmt: skip
        for _ in range(free):
            assert call(server, "GET", "/api/topics", authorization=f"Bearer {bad}").status == 401
        assert call(server, "GET", "/api/topics", authorization=f"Bearer {bad}").status == 429
        with closing(wire_of(server).channel) as channel:
            guessing = DanubeWire(channel, [("authorization", f"Bearer {bad}")])
            with pytest.raises(RefusedError, match="too many invalid tokens"):
                guessing.producer("/default/orders")
        assert call(server, "GET", "/api/topics", authorization=f"Bearer {OWN_TOKEN}").status == 200
        for _ in range(free):
            assert client.admin("data", token="a guess").status == 403
        assert client.admin("data", token="a guess").status == 429
        assert client.admin("data", token=OWN_TOKEN).status == 429, "not looked at meanwhile"
        assert call(server, "GET", "/api/topics", authorization=f"Bearer {OWN_TOKEN}").status == 429
        # Whoever has a good token, or needs none, does not notice.
        assert call(server, "GET", "/api/topics", authorization=f"Bearer {ROOT}").status == 200
        assert client.admin("data", token=ROOT).status == 200
        with closing(wire_of(server, "root").channel) as channel:
            DanubeWire(channel, [("authorization", f"Bearer {ROOT}")]).producer("/default/orders")
        assert server.http("/healthz")[0] == server.http("/readyz")[0] == 200
        assert server.metric("raceway_token_failures_total") >= 2 * free
        assert server.metric("raceway_token_failures_refused_total") >= 4


def test_codes_of_queues_are_not_guessed_quickly() -> None:
    settings: dict[str, Any] = {"RACEWAY_SECURITY__FREE_FAILURES": 3, "RACEWAY_SECURITY__FAILURE_WAIT_S": 0.4}
    with running_server(**settings) as server, dial_server(server) as client, dial_server(server) as known:
        for mq in ("vault", "other"):
            client.create(mq, access_token="its own")

        def produced(client: Client, code: str, mq: str = "vault") -> int:
            return client.ask("produce", b"x", mq=mq, token=code).status

        assert produced(known, "its own") == 200
        assert [produced(client, f"guess {number}") for number in range(5)] == [403, 403, 403, 429, 429]
        assert produced(client, "its own") == 429, "not looked at meanwhile"
        assert produced(known, "its own") == 200, "who has shown it on this connection does not wait"
        assert produced(client, "its own", "other") == 200, "another queue is another matter"
        wait_until(lambda: produced(client, "its own") == 200, what="its turn")
