from __future__ import annotations

import pytest
from starlette.applications import Starlette

from raceway import config
from raceway.broker.broker import Broker
from raceway.model.security import PERMISSIONS, Principal
from raceway.web.app import build_app
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import Answer, ask


@pytest.fixture
def broker() -> Broker:
    bench = Bench()
    security = config.SecuritySettings(enabled=True, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",))
    return Broker(config.BrokerSettings(), bench.journal, bench.loop, bench.clock_us, security)


def asked(app: Starlette, who: str = "") -> Answer:
    return ask(app, "/api/session", headers={"authorization": f"Bearer {who}"} if who else {})


def test_without_security_everybody_may_do_everything() -> None:
    assert asked(build_app(DOOR(Bench().broker), ())).json() == {
        "security": "off", "principal": "anonymous:http", "is_known": False, "permissions": list(PERMISSIONS),
    }  # fmt: skip


def test_the_administrators_token_opens_what_it_guards() -> None:
    app = build_app(DOOR(Bench().broker), (), "sesame")
    stranger, known = asked(app, "guess").json(), asked(app, "sesame").json()
    assert (stranger["security"], stranger["is_known"], stranger["permissions"]) == (
        "admin_token", False, ["Lookup", "Produce"],
    )  # fmt: skip
    assert (known["principal"], known["is_known"], known["permissions"]) == ("administrator", True, list(PERMISSIONS))


def test_with_security_each_token_says_who_and_what(broker: Broker) -> None:
    app = build_app(DOOR(broker), (), "sesame")
    assert asked(app).json() == {
        "security": "tokens", "principal": "anonymous:http", "is_known": False, "permissions": [],
    }  # fmt: skip
    broker.security.put_role("looker", ["Lookup"])
    broker.security.bind(Principal("service_account", "reader"), "looker", "cluster")
    reader = asked(app, token("reader")).json()
    assert (reader["principal"], reader["is_known"], reader["permissions"]) == (
        "service_account:reader", True, ["Lookup"],
    )  # fmt: skip
    assert asked(app, "sesame").json()["permissions"] == list(PERMISSIONS)


def test_a_token_that_is_not_good_is_no_session(broker: Broker) -> None:
    for bad in ("nonsense", token("reader", exp=1)):
        answer = asked(build_app(DOOR(broker), ()), bad)
        assert (answer.status, answer.json()["error"]["code"]) == (401, "unauthenticated")
