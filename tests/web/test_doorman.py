from __future__ import annotations

import base64

import pytest
from starlette.applications import Starlette

from raceway import config
from raceway.broker.broker import Broker
from raceway.model.security import Principal
from raceway.web.app import build_app
from raceway.web.doorman import permissions_for
from tests.danube_tokens import ISSUER, SECRET, token
from tests.doubles import Bench, RecordingPeer
from tests.web.asgi import Answer, ask
from tests.web.test_openapi import NoServices

READER = Principal("service_account", "reader")


@pytest.fixture
def broker() -> Broker:
    bench = Bench()
    security = config.Security(enabled=True, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",))
    return Broker(config.Broker(), bench.journal, bench.loop, bench.clock_us, security)


@pytest.fixture
def app(broker: Broker) -> Starlette:
    return build_app(broker, (), "the administrator's own")


def asked(app: Starlette, path: str, who: str = "", method: str = "GET") -> Answer:
    return ask(app, path, method, {"authorization": f"Bearer {who}"} if who else {})


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_whoever_watches_over_the_bus_needs_no_token(app: Starlette, path: str) -> None:
    assert asked(app, path).status == 200


@pytest.mark.parametrize("path", ["/api/topics", "/api/queues", "/nothing"])
def test_everything_else_is_denied_to_strangers(app: Starlette, path: str) -> None:
    answer = asked(app, path)
    assert (answer.status, answer.json()["error"]["code"]) == (403, "forbidden")
    answer = asked(app, path, "nonsense")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_strangers_are_denied_in_the_registrys_own_form_at_its_addresses(app: Starlette) -> None:
    answer = asked(app, "/subjects")
    assert (answer.status, answer.json()["error_code"]) == (403, 40301)
    answer = asked(app, "/schemas/ids/1", "nonsense")
    assert (answer.status, answer.json()["error_code"]) == (401, 40101)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/api/topics", "/subjects"])
def test_those_who_may_are_answered(app: Starlette, broker: Broker, path: str) -> None:
    assert asked(app, path, token("root")).status == 200
    assert asked(app, path, "the administrator's own").status == 200
    assert asked(app, path, token("reader")).status == 403
    broker.security.put_role("looker", ["Lookup"])
    broker.security.bind(READER, "looker", "cluster")
    assert asked(app, path, token("reader")).status == 200


def test_reading_is_not_changing(app: Starlette, broker: Broker) -> None:
    broker.security.put_role("looker", ["Lookup"])
    broker.security.bind(READER, "looker", "cluster")
    assert asked(app, "/config", token("reader"), "PUT").status == 403
    broker.security.put_role("looker", ["ManageSchema"])
    assert asked(app, "/config", token("reader"), "PUT").status not in (401, 403)


def test_a_client_that_knows_passwords_only_sends_its_token_as_one(app: Starlette) -> None:
    credentials = base64.b64encode(f"any:{token('root')}".encode()).decode()
    assert ask(app, "/subjects", headers={"authorization": f"Basic {credentials}"}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/subjects", ("Lookup", "ManageSchema")),
        ("POST", "/subjects/orders", ("Lookup", "ManageSchema")),
        ("POST", "/subjects/orders/versions", ("ManageSchema",)),
        ("POST", "/subjects/orders/versions/", ("ManageSchema",)),
        ("DELETE", "/subjects/orders", ("ManageSchema",)),
        ("POST", "/compatibility/subjects/orders/versions/1", ("Lookup", "ManageSchema")),
        ("PUT", "/api/topic-schemas/orders", ("ManageSchema",)),
        ("GET", "/api/topics", ("Lookup",)),
        ("GET", "/api/queues/q/messages", ("Consume",)),
        ("DELETE", "/api/queues/q/messages", ("Consume",)),
        ("POST", "/api/anything", ("ManageBroker",)),
    ],
)
def test_what_is_needed_for_what(method: str, path: str, wanted: tuple[str, ...]) -> None:
    assert permissions_for(method, path) == wanted


def test_with_security_off_the_doorman_sleeps() -> None:
    assert asked(build_app(Bench().broker, ()), "/api/topics").status == 200


@pytest.mark.parametrize("path", ["/api/queues", "/api/policies/namespaces/default", "/api/seneca/services"])
def test_whoever_may_look_around_needs_no_administrators_token_besides(broker: Broker, path: str) -> None:
    app = build_app(broker, (), "the administrator's own", services=NoServices())
    assert asked(app, path, token("reader")).status == 403
    broker.security.put_role("looker", ["Lookup"])
    broker.security.bind(READER, "looker", "cluster")
    assert asked(app, path, token("reader")).status == 200


def test_whoever_may_consume_sees_what_waits_without_the_queues_own_token(app: Starlette, broker: Broker) -> None:
    broker.queues.create(RecordingPeer(), "somebody", "vault", 1, "the queue's own")
    assert asked(app, "/api/queues/vault/messages", token("reader")).status == 403
    broker.security.put_role("reader", ["Consume"])
    broker.security.bind(READER, "reader", "cluster")
    assert asked(app, "/api/queues/vault/messages", token("reader")).status == 200
