from __future__ import annotations

import base64
import re
from unittest.mock import ANY

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as PlainRoute

from raceway import config
from raceway.broker.broker import Broker
from raceway.model.security import PERMISSIONS, Permission, Principal
from raceway.web.app import build_app
from raceway.web.routing import LOOKUP, Access, Routes, WebRoute, checked, get, put, routes_of
from raceway.wires.seneca.listen.routes import SenecaRoutes
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, RecordingPeer
from tests.web.asgi import Answer, ask
from tests.web.test_openapi import NoServices

READER = Principal("service_account", "reader")
OWN_TOKEN = "the administrator's own"
REFUSED = (401, 403)


@pytest.fixture
def broker() -> Broker:
    return secured()


def secured(enabled: bool = True) -> Broker:
    """Bad tokens may come as quickly as a test sends them."""
    bench = Bench()
    security = config.SecuritySettings(
        enabled=enabled, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",), free_failures=0
    )
    return Broker(config.BrokerSettings(), bench.journal, bench.loop, bench.clock_us, security)


@pytest.fixture
def app(broker: Broker) -> Starlette:
    return build_app(DOOR(broker), (), OWN_TOKEN)


def asked(app: Starlette, path: str, who: str = "", method: str = "GET") -> Answer:
    return ask(app, path, method, {"authorization": f"Bearer {who}"} if who else {})


# ---- the whole table -------------------------------------------------------------------------------------------------

# Parts of addresses; a name that is also the end of other addresses must not open them.
NAMES = ("orders", "messages", "ns/messages", "versions")


def stopped(route: WebRoute) -> None:
    """Let the route answer 299 instead of doing its work: then the doorman alone decides what comes back."""
    route.app = PlainTextResponse("passed", status_code=299)


@pytest.fixture(scope="module")
def table() -> tuple[Starlette, Broker, list[tuple[str, str, Access]]]:
    """An application whose routes only say that they were reached; method, address and access of each of them."""
    broker = secured()
    app = build_app(DOOR(broker), (), OWN_TOKEN, more=[SenecaRoutes(NoServices())])
    for permission in PERMISSIONS:
        broker.security.put_role(permission, [permission])
        broker.security.bind(Principal("service_account", f"all-{permission}"), permission, "cluster")
        broker.security.bind(Principal("service_account", f"one-{permission}"), permission, "topic", "only-this")
    found = []
    for route in checked(app.routes):
        stopped(route)
        for method, access in route.access.items():
            for name in NAMES if ":path}" in route.path else NAMES[:1]:
                path = re.sub(r"{(\w+)(:\w+)?}", lambda part, name=name: _part(part, name), route.path)  # type: ignore[misc]
                if _first_match(app, method, path) is route:
                    found.append((method, path, access))
    return app, broker, found


def _part(part: re.Match[str], name: str) -> str:
    return "7" if part[2] == ":int" else name if part[2] else "1"


def _first_match(app: Starlette, method: str, path: str) -> WebRoute | None:
    routes = checked(app.routes)
    return next((each for each in routes if method in each.access and each.path_regex.match(path)), None)


def passes(app: Starlette, method: str, path: str, who: str) -> bool:
    status = asked(app, path, who, method).status
    assert status in (299, *REFUSED), (method, path, status)
    return status == 299


def test_the_table_has_every_route_and_method(table: tuple[Starlette, Broker, list[tuple[str, str, Access]]]) -> None:
    app, _, walked = table
    declared = {(method, route.path) for route in checked(app.routes) for method in route.access}
    assert len(declared) > 90
    assert len({(method, path) for method, path, _ in walked}) >= len(declared)


def test_strangers_pass_only_where_everybody_may(
    table: tuple[Starlette, Broker, list[tuple[str, str, Access]]],
) -> None:
    app, _, walked = table
    opened = {(method, path) for method, path, _ in walked if passes(app, method, path, "")}
    assert opened == {
        (method, path)
        for method in ("GET", "HEAD")
        for path in ("/healthz", "/readyz", "/metrics", "/", "/api/session", *(f"/console/{name}" for name in NAMES))
    }


def test_a_bad_token_passes_only_where_none_is_looked_at(
    table: tuple[Starlette, Broker, list[tuple[str, str, Access]]],
) -> None:
    app, _, walked = table
    for method, path, access in walked:
        assert passes(app, method, path, "nonsense") is (access.scope == "everybody"), (method, path)


def test_the_administrator_passes_everywhere(table: tuple[Starlette, Broker, list[tuple[str, str, Access]]]) -> None:
    app, _, walked = table
    for method, path, _ in walked:
        for who in (OWN_TOKEN, token("root")):
            assert passes(app, method, path, who), (method, path)


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_single_permission_opens_what_asks_for_it_and_nothing_else(
    table: tuple[Starlette, Broker, list[tuple[str, str, Access]]], permission: Permission
) -> None:
    app, _, walked = table
    for method, path, access in walked:
        is_open = access.scope in ("everybody", "known")
        everywhere = is_open or permission in access.permissions
        assert passes(app, method, path, token(f"all-{permission}")) is everywhere, (method, path)
        somewhere = is_open or (access.scope == "topic" and permission in access.permissions)
        assert passes(app, method, path, token(f"one-{permission}")) is somewhere, (method, path)


def test_reading_never_asks_for_more_than_looking_and_changing_never_for_less(
    table: tuple[Starlette, Broker, list[tuple[str, str, Access]]],
) -> None:
    """The declarations themselves: nothing that changes the bus is open to those who may only look or consume."""
    for method, path, access in table[2]:
        if method in ("PUT", "DELETE") and not path.startswith("/api/queues/"):
            assert access.permissions in (("ManageSchema",), ("ManageBroker",), ("ManageTopic",)), (method, path)
        if method == "HEAD":
            assert ("GET", path, access) in table[2]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PATCH", "BREW", "POST"])
def test_what_is_not_there_is_told_to_those_who_may_look(
    table: tuple[Starlette, Broker, list[tuple[str, str, Access]]], method: str
) -> None:
    app = table[0]
    for path in ("/nothing", "/api", "/console", "//api/topics", "/api/topics/../messages/x"):
        if _first_match(app, method, path) is None:
            assert asked(app, path, "", method).status == 403
            assert asked(app, path, token("all-Consume"), method).status == 403
            assert asked(app, path, token("all-Lookup"), method).status in (404, 405)
    for path in ("/config/messages", "/api/policies/topics/messages", "/healthz"):
        if _first_match(app, method, path) is None:
            assert asked(app, path, "", method).status == 403
            assert asked(app, path, token("all-Lookup"), method).status == 405


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/config/messages"),
        ("DELETE", "/subjects/messages"),
        ("PUT", "/api/policies/topics/messages"),
        ("PUT", "/api/policies/topics//ns/messages"),
        ("DELETE", "/api/topic-schemas/messages"),
    ],
)
def test_a_name_at_the_end_of_an_address_opens_nothing(app: Starlette, broker: Broker, method: str, path: str) -> None:
    broker.security.put_role("reader", ["Consume"])
    broker.security.bind(READER, "reader", "cluster")
    assert asked(app, path, token("reader"), method).status == 403


# ---- declarations ----------------------------------------------------------------------------------------------------


async def _handler(request: Request) -> Response:
    raise AssertionError("never asked")


def test_a_route_without_a_permission_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="PUT /api/new has no access"):
        put("/api/new", None)(_handler)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'access'"):
        get("/api/new")(_handler)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="/api/new has no access"):
        checked([PlainRoute("/api/new", _handler)])


def test_a_handler_takes_only_what_its_route_has() -> None:
    async def handler(name: str, place: str) -> Response:
        raise AssertionError("never asked")

    with pytest.raises(TypeError, match=r"GET /api/new/\{name} takes place, which is not in the path"):
        get("/api/new/{name}", LOOKUP)(handler)


def test_a_method_of_a_path_is_declared_once() -> None:
    class Twice(Routes):
        one = get("/api/new", LOOKUP)(_handler)
        two = get("/api/new", LOOKUP)(_handler)

    with pytest.raises(TypeError, match="a method of /api/new is declared twice"):
        routes_of([Twice()])


def test_an_application_with_a_route_of_another_kind_is_not_built(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raceway.web.app.routes_of", lambda groups: [PlainRoute("/api/new", _handler)])
    with pytest.raises(TypeError, match="/api/new"):
        build_app(DOOR(broker), ())


# ---- who is who ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_whoever_watches_over_the_bus_needs_no_token(app: Starlette, path: str) -> None:
    assert asked(app, path).status == 200


@pytest.mark.parametrize("path", ["/api/topics", "/api/queues", "/nothing"])
def test_everything_else_is_denied_to_strangers(app: Starlette, path: str) -> None:
    answer = asked(app, path)
    assert answer.status == 403
    assert answer.json() in ({"error_code": 40301, "message": ANY}, {"error": {"code": "forbidden", "message": ANY}})
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
    assert asked(app, path, OWN_TOKEN).status == 200
    assert asked(app, path, token("reader")).status == 403
    broker.security.put_role("looker", ["Lookup"])
    broker.security.bind(READER, "looker", "cluster")
    assert asked(app, path, token("reader")).status == 200


def test_a_client_that_knows_passwords_only_sends_its_token_as_one(app: Starlette) -> None:
    credentials = base64.b64encode(f"any:{token('root')}".encode()).decode()
    assert ask(app, "/subjects", headers={"authorization": f"Basic {credentials}"}).status == 200


def test_with_security_off_the_doorman_sleeps() -> None:
    assert asked(build_app(DOOR(Bench().broker), ()), "/api/topics").status == 200


@pytest.mark.parametrize("path", ["/api/queues", "/api/policies/namespaces/default", "/api/seneca/services"])
def test_whoever_may_look_around_needs_no_administrators_token_besides(broker: Broker, path: str) -> None:
    app = build_app(DOOR(broker), (), OWN_TOKEN, more=[SenecaRoutes(NoServices())])
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


# ---- an administrator's token and no other security ------------------------------------------------------------------


def test_an_administrators_token_keeps_all_messages_and_changes_from_others() -> None:
    """Looking around and publishing stay open; whatever shows a message, or changes something, needs the token."""
    app = build_app(DOOR(secured(enabled=False)), (), OWN_TOKEN, more=[SenecaRoutes(NoServices())])
    for route in checked(app.routes):
        stopped(route)
        path = re.sub(r"{(\w+)(:\w+)?}", lambda part: _part(part, "orders"), route.path)
        for method, access in route.access.items():
            is_open = access.scope in ("everybody", "known") or {"Lookup", "Produce"} & set(access.permissions)
            is_listed = path in ("/api/queues", "/api/services", "/api/seneca/services")
            wanted = 299 if is_open and not is_listed else 403
            if _first_match(app, method, path) is route:
                assert asked(app, path, "", method).status == wanted, (method, path)
                assert asked(app, path, "a guess", method).status == wanted, (method, path)
                assert asked(app, path, OWN_TOKEN, method).status == 299, (method, path)


# ---- guessing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_whoever_guesses_must_wait_and_a_good_token_need_not(enabled: bool) -> None:
    bench = Bench()
    security = config.SecuritySettings(
        enabled=enabled, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",), free_failures=3
    )
    broker = Broker(config.BrokerSettings(), bench.journal, bench.loop, bench.clock_us, security)
    app = build_app(DOOR(broker), (), OWN_TOKEN)
    answers = [asked(app, "/api/messages", f"guess {number}") for number in range(5)]
    refused = 401 if enabled else 403
    assert [answer.status for answer in answers] == [refused] * 3 + [429] * 2
    assert answers[-1].headers["retry-after"] == "1"
    assert asked(app, "/api/messages", OWN_TOKEN).status == 429, "a code is not looked at meanwhile"
    assert asked(app, "/api/session", OWN_TOKEN).status == 429, "nor is it told whether it is good"
    for path in ("/healthz", "/readyz", "/metrics"):
        assert asked(app, path).status == 200
    assert asked(app, "/api/topics").status == (403 if enabled else 200), "who shows no token guesses none"
    if enabled:
        assert asked(app, "/api/topics", token("root")).status == 200
        assert asked(app, "/subjects", "guess").json() == {"error_code": 42901, "message": ANY}
    broker.security.guesses._failures.clear()
    assert asked(app, "/api/messages", OWN_TOKEN).status == 200
    text = asked(app, "/metrics").body.decode()
    assert "raceway_token_failures_total 3.0" in text
    assert "raceway_token_failures_refused_total" in text
