"""Changes over the console port leave an entry on `raceway.audit`; traffic, questions and refused changes do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.web.app import build_app
from raceway.web.routing import WebRoute
from tests.rigs import http_door
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.rigs.schema_rest import call
from tests.rigs.server import Server, running_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def entries(server: Server) -> list[dict[str, Any]]:
    answer = http_door.get(server, "/topics/raceway.audit")
    return list(answer.json()["messages"]) if answer.status == 200 else []


def newest(server: Server, count: int) -> dict[str, Any]:
    """The entry after the first `count` ones."""
    return wait_until(lambda: next(iter(entries(server)[count:]), None))


def test_a_change_is_recorded_with_who_and_what(server: Server) -> None:
    before = len(entries(server))
    made = call(server, "POST", "/api/subscriptions", {"topic": "a.b", "name": "billing", "create_topic": True})
    assert made.status == 201
    entry = newest(server, before)
    facts = entry["attributes"]
    assert (facts["method"], facts["path"], facts["status"]) == ("POST", "/api/subscriptions", "201")
    assert facts["action"] == "Create a subscription that starts at a position, before it has consumers"
    assert (facts["principal"], facts["address"]) == (entry["producer"], "127.0.0.1")
    assert json.loads(entry["payload"]) == {"topic": "a.b", "name": "billing", "create_topic": True}


def test_a_query_is_recorded_and_a_secret_is_not(server: Server) -> None:
    before = len(entries(server))
    assert call(server, "POST", "/api/queues", {"name": "jobs", "token": "very secret"}).status == 201
    assert json.loads(newest(server, before)["payload"]) == {"name": "jobs", "token": "***"}
    assert call(server, "DELETE", "/api/subscriptions?topic=a.b&name=billing").status == 200
    assert newest(server, before + 1)["attributes"]["query"] == "topic=a.b&name=billing"
    assert b"very secret" not in json.dumps(entries(server)).encode()


def test_what_changes_nothing_is_not_recorded(server: Server) -> None:
    before = len(entries(server))
    http_door.post(server, "/topics/a.b", b"{}")
    assert call(server, "POST", "/api/subscriptions", {"topic": "not there", "name": "x"}).status >= 400
    assert call(server, "GET", "/api/lag").status == 200
    assert call(server, "POST", "/api/queues", {"name": "later"}).status == 201
    assert newest(server, before)["attributes"]["path"] == "/api/queues"
    assert len(entries(server)) == before + 1


def test_every_route_that_changes_something_says_so() -> None:
    """By its access: what takes a permission to change is a change."""
    routes = [route for route in build_app(DOOR(Bench().broker), ()).routes if isinstance(route, WebRoute)]
    operations = [each for route in routes for each in route.operations.values() if each.method != "GET"]
    others = {f"{each.method} {each.path}" for each in operations if not each.is_change}
    assert all(name.startswith("POST") for name in others)
    assert {name for name in others if "/check" not in name and "/compatibility" not in name} == {
        "POST /topics/{name:path}", "POST /requests/{name:path}", "POST /subjects/{subject:path}",
    }  # fmt: skip


def test_the_principal_is_whoever_signed_in() -> None:
    """With security on, the subject of the token; with the administrator's token alone, the administrator."""
    with running_server(
        RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__TOKEN_SECRET=SECRET, RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER,
        RACEWAY_SECURITY__SUPER_ADMINS="root", RACEWAY_SECURITY__ADMIN_TOKEN="open-sesame",
    ) as server:  # fmt: skip
        for number, bearer in enumerate((token("root"), "open-sesame")):
            made = call(server, "POST", "/api/queues", {"name": f"q{number}"}, authorization=f"Bearer {bearer}")
            assert made.status == 201
        asked = {"authorization": f"Bearer {token('root')}"}
        rows = wait_until(
            lambda: (found := http_door.get(server, "/topics/raceway.audit", **asked).json()["messages"])[1:] and found
        )
        principals = [row["attributes"]["principal"] for row in rows]
        assert principals[0].endswith(":root")
        assert principals[1] != principals[0]
