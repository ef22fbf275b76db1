"""Danube over TLS, with tokens: who is let in, and what each may do. The published client, and grpcio for the rest."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    Binding,
    BindingListRequest,
    BindingListResponse,
    BindingRequest,
    Empty,
    NamespaceListResponse,
    NewTopicRequest,
    Role,
    RoleListResponse,
    RoleRequest,
    SecurityResponse,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionFailurePolicy,
    SubscriptionResponse,
    TopicResponse,
)
from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    TopicLookupRequest,
    TopicLookupResponse,
)
from raceway.wires.danube.codec.pb.schema_registry_pb2 import RegisterSchemaRequest, RegisterSchemaResponse
from tests.rigs.danube_process import DanubeProcess, RefusedError, danube_process
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.danube_wire import DanubeWire
from tests.rigs.mb_wire import connect
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import dial_server

SECURITY = "danube_admin.SecurityAdmin/"
LOOKUP = "danube.Discovery/TopicLookup"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for part in certificate.cert_chain_pems:
        part.write_to_path(folder / "chain.pem", append=True)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__TLS_CERTIFICATE=folder / "chain.pem",
        RACEWAY_LISTEN__TLS_KEY=folder / "key.pem",
        RACEWAY_LISTEN__DANUBE__REFUSAL_MS=100,
        RACEWAY_SECURITY__ENABLED="true",
        RACEWAY_SECURITY__FREE_FAILURES=0,
        RACEWAY_SECURITY__TOKEN_SECRET=SECRET,
        RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER,
        RACEWAY_SECURITY__SUPER_ADMINS="root",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    return f"https://127.0.0.1:{server.port('danube')}"


@contextmanager
def wire_of(server: Server, folder: Path, authorization: str | None, **metadata: str) -> Iterator[DanubeWire]:
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    given = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    given += [("authorization", authorization)] if authorization is not None else []
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.secure_channel(f"127.0.0.1:{server.port('danube')}", credentials, options) as channel:
        yield DanubeWire(channel, given)


@pytest.fixture(scope="module")
def root(server: Server, folder: Path) -> Iterator[DanubeWire]:
    with wire_of(server, folder, f"Bearer {token('root')}") as wire:
        yield wire


@pytest.fixture
def name() -> str:
    return f"n{next(_numbers)}"


def status(wire: DanubeWire, method: str, request: Any, kind: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        wire.ask(method, request, kind)
    return refused.value.status


def allow(root: DanubeWire, principal: str, permissions: list[str], scope: str = "cluster", resource: str = "") -> str:
    """A role of these permissions for a service account; gives the binding's id."""
    role = f"role-{next(_numbers)}"
    root.ask(SECURITY + "CreateRole", Role(name=role, permissions=permissions), SecurityResponse)
    binding = Binding(
        principal_type="service_account", principal_name=principal, role=role, scope=scope, resource=resource
    )
    return root.ask(SECURITY + "CreateBinding", binding, Binding).id


# ---- who is let in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer nonsense",
        "Basic cm9vdDpyb290",
        "Bearer " + token("root", secret="another secret of thirty-two bytes or more"),
        "Bearer " + token("root", iss="somebody else"),
        "Bearer " + token("root", iss=None),
        "Bearer " + token("root", exp=int(time.time()) - 1),
        "Bearer " + token("root", exp=None),
        "Bearer " + token("root", principal_name=None),
        "Bearer " + token("root", principal_type="anonymous"),
        "Bearer " + token("root", algorithm="HS512"),
        "Bearer " + token("root", secret="", algorithm="none"),
    ],
    ids=["no token", "another scheme", "another secret", "another issuer", "no issuer", "expired", "no end", "no name",
         "anonymous", "another algorithm", "not signed"],
)  # fmt: skip
def test_a_token_that_is_not_good_is_refused_whatever_is_asked(
    server: Server, folder: Path, authorization: str
) -> None:
    with wire_of(server, folder, authorization) as wire:
        health = HealthCheckRequest(id=1)
        assert status(wire, "danube.HealthCheck/HealthCheck", health, HealthCheckResponse) == "UNAUTHENTICATED"
        assert status(wire, LOOKUP, TopicLookupRequest(topic="/default/x"), TopicLookupResponse) == "UNAUTHENTICATED"


def test_whoever_does_not_say_who_it_is_may_do_nothing(server: Server, folder: Path) -> None:
    with wire_of(server, folder, None) as wire:
        assert status(wire, LOOKUP, TopicLookupRequest(topic="/default/x"), TopicLookupResponse) == "PERMISSION_DENIED"
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            wire.producer("/default/x")


def test_claiming_to_be_a_broker_helps_nobody(server: Server, folder: Path) -> None:
    with wire_of(server, folder, None, x_danube_internal_broker="broker-1") as wire:
        assert status(wire, LOOKUP, TopicLookupRequest(topic="/default/x"), TopicLookupResponse) == "PERMISSION_DENIED"


def test_a_token_is_good_until_it_ends_also_when_it_was_seen_before(server: Server, folder: Path) -> None:
    with wire_of(server, folder, f"Bearer {token('root', exp=int(time.time()) + 2)}") as wire:
        assert wire.ask("danube_admin.BrokerAdmin/ListNamespaces", Empty(), NamespaceListResponse).namespaces
        deadline = time.monotonic() + 10
        while True:
            try:
                wire.ask("danube_admin.BrokerAdmin/ListNamespaces", Empty(), NamespaceListResponse)
            except RefusedError as refused:
                assert refused.status == "UNAUTHENTICATED"  # noqa: PT017
                return
            assert time.monotonic() < deadline


def test_plain_connections_are_not_answered(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port("danube")), timeout=10) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
        with suppress(ConnectionResetError):
            assert plain.recv(100)[3:4] != b"\4"  # no settings: at most an alert of TLS


# ---- what each may do ------------------------------------------------------------------------------------------------


@contextmanager
def client_of(url: str, folder: Path, principal: str) -> Iterator[DanubeProcess]:
    with danube_process(url, ca_file=str(folder / "ca.pem"), token=token(principal)) as client:
        yield client


def test_the_published_client_works_within_its_roles(url: str, folder: Path, root: DanubeWire, name: str) -> None:
    topic = f"/default/{name}"
    allow(root, f"seller-{name}", ["Lookup", "Produce"], "topic", topic)
    allow(root, f"buyer-{name}", ["Lookup", "Consume"], "topic", topic)
    with client_of(url, folder, f"seller-{name}") as seller, client_of(url, folder, f"buyer-{name}") as buyer:
        seller.create("p", topic)
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            seller.subscribe("c", topic, "s")
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            buyer.create("p", topic)
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            seller.create("q", topic + "-else")
        buyer.subscribe("c", topic, "s")
        seller.send("p", b"1", b"2")
        got = buyer.receive("c", 2, ack=True)
        assert [message.payload for message in got] == [b"1", b"2"]
        assert got[0].broker == url


def test_a_token_alone_makes_the_published_client_speak_tls(
    server: Server, folder: Path, root: DanubeWire, name: str
) -> None:
    """Whatever the address says. It then trusts the roots of its machine, which a variable of gRPC's names."""
    allow(root, name, ["Lookup", "Produce", "Consume"], "topic", f"/default/{name}")
    url = f"http://127.0.0.1:{server.port('danube')}"
    roots = str(folder / "ca.pem")
    with danube_process(url, token=token(name), GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=roots) as client:
        client.create("p", f"/default/{name}")
        client.subscribe("c", f"/default/{name}", "s")
        client.send("p", b"1")
        assert [message.payload for message in client.receive("c", ack=True)] == [b"1"]
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            client.create("q", f"/default/{name}-else")


@pytest.mark.parametrize(("scope", "resource"), [("cluster", ""), ("namespace", "default")])
def test_a_wider_scope_includes_the_narrower(
    server: Server, folder: Path, root: DanubeWire, name: str, scope: str, resource: str
) -> None:
    allow(root, name, ["Produce"], scope, resource)
    with wire_of(server, folder, f"Bearer {token(name)}") as wire:
        wire.producer(f"/default/{name}")
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            wire.consumer(f"/default/{name}")


def test_permissions_of_another_type_of_principal_do_not_count(
    server: Server, folder: Path, root: DanubeWire, name: str
) -> None:
    allow(root, name, ["Produce"])
    with (
        wire_of(server, folder, f"Bearer {token(name, principal_type='user')}") as wire,
        pytest.raises(RefusedError, match="PERMISSION_DENIED"),
    ):
        wire.producer(f"/default/{name}")


def test_a_role_that_is_taken_away_is_missed_at_once(server: Server, folder: Path, root: DanubeWire, name: str) -> None:
    topic = f"/default/{name}"
    produce = allow(root, name, ["Produce"], "topic", topic)
    consume = allow(root, name, ["Consume"], "topic", topic)
    with wire_of(server, folder, f"Bearer {token(name)}") as wire:
        producer_id = wire.producer(topic)
        stream = wire.listen(wire.consumer(topic))
        wire.send(producer_id, topic, b"1")
        message = next(stream)
        assert message.payload == b"1"
        root.ask(SECURITY + "DeleteBinding", BindingRequest(id=consume), SecurityResponse)
        wire.send(producer_id, topic, b"2")
        with pytest.raises(grpc.RpcError) as refused:
            next(stream)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            wire.ack(message)
        root.ask(SECURITY + "DeleteBinding", BindingRequest(id=produce), SecurityResponse)
        with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
            wire.send(producer_id, topic, b"3")


def test_schemas_and_topics_have_permissions_of_their_own(
    server: Server, folder: Path, root: DanubeWire, name: str
) -> None:
    schema = RegisterSchemaRequest(subject=name, schema_type="string", schema_definition=b"x")
    topic = NewTopicRequest(name=f"/default/{name}")
    with wire_of(server, folder, f"Bearer {token(name)}") as wire:
        register = "danube_schema.SchemaRegistry/RegisterSchema"
        assert status(wire, register, schema, RegisterSchemaResponse) == "PERMISSION_DENIED"
        assert status(wire, "danube_admin.TopicAdmin/CreateTopic", topic, TopicResponse) == "PERMISSION_DENIED"
        allow(root, name, ["ManageSchema", "ManageTopic"])
        wire.ask(register, schema, RegisterSchemaResponse)
        wire.ask("danube_admin.TopicAdmin/CreateTopic", topic, TopicResponse)
        assert status(wire, SECURITY + "ListRoles", Empty(), RoleListResponse) == "PERMISSION_DENIED"


def test_dead_letters_go_only_where_their_sender_may(server: Server, folder: Path, root: DanubeWire, name: str) -> None:
    topic = f"/default/{name}"
    root.producer(topic)
    root.consumer(topic)
    allow(root, name, ["ManageTopic"])
    policy = SubscriptionFailurePolicy(ack_timeout_ms=1000, dead_letter_topic=topic + "-dead")
    request = SetSubscriptionFailurePolicyRequest(topic=topic, subscription="s", failure_policy=policy)
    method = "danube_admin.TopicAdmin/SetSubscriptionFailurePolicy"
    with wire_of(server, folder, f"Bearer {token(name)}") as wire:
        assert status(wire, method, request, SubscriptionResponse) == "PERMISSION_DENIED"
        allow(root, name, ["Produce"], "topic", topic + "-dead")
        wire.ask(method, request, SubscriptionResponse)


def test_roles_and_bindings_are_managed(root: DanubeWire, name: str) -> None:
    role = Role(name=name, permissions=["produce", "LOOKUP"])
    root.ask(SECURITY + "CreateRole", role, SecurityResponse)
    shown = root.ask(SECURITY + "GetRole", RoleRequest(name=name), Role)
    assert list(shown.permissions) == ["Lookup", "Produce"]
    assert name in [each.name for each in root.ask(SECURITY + "ListRoles", Empty(), RoleListResponse).roles]
    binding = Binding(principal_type="user", principal_name=name, role=name, scope="Topic", resource=f"/default/{name}")
    made = root.ask(SECURITY + "CreateBinding", binding, Binding)
    assert root.ask(SECURITY + "CreateBinding", binding, Binding) == made
    assert root.ask(SECURITY + "GetBinding", BindingRequest(id=made.id), Binding) == made
    assert (made.scope, made.resource) == ("topic", f"/default/{name}")
    of_topic = BindingListRequest(scope="topic", resource=f"/default/{name}")
    assert list(root.ask(SECURITY + "ListBindings", of_topic, BindingListResponse).bindings) == [made]
    assert made in root.ask(SECURITY + "ListAllBindings", Empty(), BindingListResponse).bindings
    assert status(root, SECURITY + "DeleteRole", RoleRequest(name=name), SecurityResponse) == "FAILED_PRECONDITION"
    root.ask(SECURITY + "DeleteBinding", BindingRequest(id=made.id), SecurityResponse)
    root.ask(SECURITY + "DeleteRole", RoleRequest(name=name), SecurityResponse)
    assert status(root, SECURITY + "GetRole", RoleRequest(name=name), Role) == "NOT_FOUND"
    assert status(root, SECURITY + "GetBinding", BindingRequest(id=made.id), Binding) == "NOT_FOUND"


@pytest.mark.parametrize(
    "wrong",
    [
        {"scope": "planet"}, {"scope": "topic", "resource": ""}, {"scope": "cluster", "resource": "/default/x"},
        {"scope": "topic", "resource": "x"}, {"principal_type": "robot"}, {"principal_name": ""},
    ],
)  # fmt: skip
def test_a_binding_that_cannot_be_is_an_invalid_argument(root: DanubeWire, wrong: dict[str, str]) -> None:
    root.ask(SECURITY + "CreateRole", Role(name="any", permissions=["Lookup"]), SecurityResponse)
    fields = {"principal_type": "user", "principal_name": "u", "role": "any", "scope": "cluster"} | wrong
    assert status(root, SECURITY + "CreateBinding", Binding(**fields), Binding) == "INVALID_ARGUMENT"


def test_a_permission_that_does_not_exist_is_an_invalid_argument(root: DanubeWire) -> None:
    role = Role(name="any", permissions=["Everything"])
    assert status(root, SECURITY + "CreateRole", role, SecurityResponse) == "INVALID_ARGUMENT"


# ---- other wires -----------------------------------------------------------------------------------------------------


def test_mb_peers_are_anonymous_and_may_do_what_anonymous_ones_may(server: Server, root: DanubeWire) -> None:
    name = f"secured{next(_numbers)}"
    with connect(server, "tcp") as peer:
        assert peer.publish(name, b"x").json()["error"]["code"] == "FORBIDDEN"
        asked = peer.ask("system.topic.subscribe", {"action": "publish", "topic": name})
        assert asked.json()["error"]["code"] == "FORBIDDEN"
        role = Role(name="guest", permissions=["Produce"])
        root.ask(SECURITY + "CreateRole", role, SecurityResponse)
        binding = Binding(
            principal_type="anonymous", principal_name="mb", role="guest", scope="topic", resource=f"/default/{name}"
        )
        root.ask(SECURITY + "CreateBinding", binding, Binding)
        assert peer.publish(name, b"x").json()["error"]["code"] == "NO_ROUTE_FOUND"  # taken; nobody listens


def test_zbus_peers_are_anonymous_too(server: Server) -> None:
    with dial_server(server) as client:
        assert client.admin("create_mq", '{"mqName": "q", "mqMode": "1"}').status == 403
