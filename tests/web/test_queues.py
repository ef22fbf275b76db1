from __future__ import annotations

import base64

import pytest
from starlette.applications import Starlette

from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import Answer, ask

TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    maker = bench.peer()
    bench.broker.queues.create(maker, "127.0.0.1:9", "orders", 1, "")
    bench.broker.queues.create(maker, "127.0.0.1:9", "vault", 1, "s3cret")
    bench.broker.queues.create(maker, "127.0.0.1:9", "ticks", 2, "")
    for topic in (b"orders", b"vault"):
        bench.publish(bench.peer(), *(Message(topic, payload=b"%d\xff" % number) for number in range(3)))
    bench.loop.settle()
    return bench


@pytest.fixture
def app(bench: Bench) -> Starlette:
    return build_app(DOOR(bench.broker), ())


@pytest.fixture
def guarded(bench: Bench) -> Starlette:
    return build_app(DOOR(bench.broker), (), "s3cret")


def payloads(answer: Answer) -> list[bytes]:
    return [base64.b64decode(row["payload"]) for row in answer.json()["messages"]]


def waiting(app: Starlette, headers: dict[str, str] | None = None) -> dict[str, int]:
    return {row["name"]: row["waiting"] for row in ask(app, "/api/queues", headers=headers).json()["queues"]}


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["error"]["code"]


def test_queues_are_listed_without_their_tokens(app: Starlette) -> None:
    answer = ask(app, "/api/queues")
    rows = answer.json()["queues"]
    assert [(row["name"], row["mode"], row["guarded"], row["waiting"], row["consumers"]) for row in rows] == [
        ("orders", 1, False, 3, 0), ("ticks", 2, False, 0, 0), ("vault", 1, True, 3, 0),
    ]  # fmt: skip
    assert rows[0]["creator"] == "127.0.0.1:9"
    assert b"token" not in answer.body


def test_what_waits_is_shown_oldest_first_and_stays(app: Starlette) -> None:
    answer = ask(app, "/api/queues/orders/messages")
    assert payloads(answer) == [b"0\xff", b"1\xff", b"2\xff"]
    assert [row["offset"] for row in answer.json()["messages"]] == [0, 1, 2]
    assert answer.json()["waiting"] == 3
    assert waiting(app)["orders"] == 3


@pytest.mark.parametrize(("query", "shown"), [("limit=2", 2), ("limit=0", 0), ("limit=999", 3)])
def test_as_many_are_shown_as_asked_for(app: Starlette, query: str, shown: int) -> None:
    assert len(payloads(ask(app, f"/api/queues/orders/messages?{query}"))) == shown


@pytest.mark.parametrize("limit", ["-1", "1.5", "ten", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused(app: Starlette, limit: str) -> None:
    assert code(ask(app, f"/api/queues/orders/messages?limit={limit}")) == (400, "malformed")


def test_a_purge_drops_what_waits(bench: Bench, app: Starlette) -> None:
    answer = ask(app, "/api/queues/orders/messages", "DELETE", settle=bench.loop.settle)
    assert (answer.status, answer.json()) == (200, {"purged": 3})
    bench.loop.settle()
    assert waiting(app) == {"orders": 0, "ticks": 0, "vault": 3}
    assert payloads(ask(app, "/api/queues/orders/messages")) == []
    assert bench.journal.state.get("cursors", "queue:orders") == {"topic": "orders", "offset": 3}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_queue_with_a_token_wants_it(bench: Bench, app: Starlette, method: str) -> None:
    path = "/api/queues/vault/messages"
    assert code(ask(app, path, method)) == (403, "forbidden")
    assert code(ask(app, path, method, {"Authorization": "Bearer guess"})) == (403, "forbidden")
    assert waiting(app)["vault"] == 3
    assert ask(app, path, method, TOKEN, settle=bench.loop.settle).status == 200


def test_an_admin_token_is_wanted_for_all_of_it_and_opens_every_queue(bench: Bench, guarded: Starlette) -> None:
    for path, method in (
        ("/api/queues", "GET"), ("/api/queues/orders/messages", "GET"), ("/api/queues/orders/messages", "DELETE"),
        ("/api/queues/nosuch/messages", "GET"),
    ):  # fmt: skip
        assert code(ask(guarded, path, method)) == (403, "forbidden")
    assert waiting(guarded, TOKEN) == {"orders": 3, "ticks": 0, "vault": 3}
    assert len(payloads(ask(guarded, "/api/queues/vault/messages", headers=TOKEN))) == 3
    purged = ask(guarded, "/api/queues/orders/messages", "DELETE", TOKEN, settle=bench.loop.settle)
    assert purged.json() == {"purged": 3}


def test_queues_that_do_not_exist_or_keep_nothing_are_refused(app: Starlette) -> None:
    assert code(ask(app, "/api/queues/nosuch/messages")) == (404, "unknown_queue")
    assert code(ask(app, "/api/queues/nosuch/messages", "DELETE")) == (404, "unknown_queue")
    assert code(ask(app, "/api/queues/ticks/messages")) == (409, "queue_kind")
    assert ask(app, "/api/queues/orders/messages", "POST").status == 405


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_other_sites_purge_nothing(app: Starlette, headers: dict[str, str]) -> None:
    assert code(ask(app, "/api/queues/orders/messages", "DELETE", headers)) == (403, "forbidden")
    assert waiting(app)["orders"] == 3
