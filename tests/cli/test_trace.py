"""`raceway trace` and `raceway rejected` against a started server, and from the files of a stopped one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raceway.cli.app import app
from raceway.client.sync import connect
from tests.rigs.http_door import call, get, post
from tests.rigs.server import Server, running_server, wait_until

SCHEMA = {"type": "json_schema", "definition": '{"type":"object","required":["bag"]}'}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server, connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as desk:
        desk.register("calc", "adds")
        desk.serve("math.sum", lambda message: {"sum": 3})
        post(server, "/requests/math.sum", b"{}", x_message_id="ask-1")
        post(server, "/topics/math.log", b"{}", x_message_id="log-1", x_parent_id="ask-1", x_correlation_id="ask-1")
        yield server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def console(server: Server) -> str:
    return f"http://127.0.0.1:{server.port('console')}"


def lines(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# ---- trace ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["ask-1", "log-1"])
def test_a_trace_is_a_tree_with_times_from_the_files_and_from_the_bus(server: Server, wanted: str) -> None:
    for where in (["--data", str(server.data)], ["--url", console(server), "--since", "1h"]):
        result = run("trace", wanted, *where)
        assert result.exit_code == 0, result.output
        text = result.stdout
        assert "ask-1  3 messages over http, mb in" in text
        assert "derived from the correlation id" in text
        request, answer, publish = (
            next(line for line in text.splitlines() if mark in line)
            for mark in ("request math.sum  http", "answer  mb  calc", "publish math.log")
        )
        assert text.index(request) < text.index(answer) < text.index(publish)
        assert "handed over after" in answer
        assert publish.index("publish") > request.index("request")  # one level deeper


def test_a_request_that_nobody_serves_shows_how_it_ended(server: Server) -> None:
    assert post(server, "/requests/math.sqrt", b"{}", x_message_id="ask-2").status == 404

    def shown() -> str | None:
        text = run("trace", "ask-2", "--data", str(server.data)).stdout
        return text if "error no_route  http  raceway" in text else None

    assert "no answer" not in wait_until(shown, 10, "the refusal in the journal")
    (found,) = lines(run("trace", "ask-2", "--url", console(server), "--json"))
    (span,) = found["spans"]
    assert (span["answered"], span["error"], span["responder"]) == (True, "no_route", "raceway")
    assert span["end_us"] >= span["begin_us"]


def test_json_has_the_same_spans_both_ways(server: Server) -> None:
    (files,) = lines(run("trace", "ask-1", "--data", str(server.data), "--topic", "math.sum", "--json"))
    (bus,) = lines(run("trace", "ask-1", "--url", console(server), "--topic", "math.sum", "--json"))
    assert files["spans"] == bus["spans"]
    assert [(span["kind"], span["depth"], span["responder"]) for span in files["spans"]] == [
        ("request", 0, "calc"), ("publish", 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["--data", "--url"])
def test_an_id_that_nobody_has_ends_with_status_1(server: Server, where: str) -> None:
    result = run("trace", "nobody", where, str(server.data) if where == "--data" else console(server))
    assert result.exit_code == 1
    assert "no message has the id nobody" in result.stderr


def test_a_time_that_is_none_is_a_usage_error(server: Server) -> None:
    result = run("trace", "x", "--since", "yesterday", "--data", str(server.data))
    assert result.exit_code == 2


def test_strangers_ids_cannot_steer_the_terminal(server: Server) -> None:
    event = {"specversion": "1.0", "id": "esc\u202e", "source": "\u2066s", "type": "t"}
    sent = post(server, "/topics/odd", json.dumps(event).encode(), content_type="application/cloudevents+json")
    assert sent.status == 201
    shown = run("trace", "esc\u202e", "--data", str(server.data)).stdout
    assert "\u202e" not in shown
    assert "\\u202e" in shown


@pytest.mark.parametrize("query", ["rows=x", "since_us=-1", "until_us=" + "9" * 30])
def test_searches_that_cannot_be_are_refused(server: Server, query: str) -> None:
    assert get(server, f"/api/traces/x?{query}").status == 400


# ---- rejected -------------------------------------------------------------------------------------------------------


@pytest.fixture
def orders(server: Server, request: pytest.FixtureRequest) -> str:
    """A topic that holds to a schema, with two messages against it."""
    topic = f"orders.{abs(hash(request.node.name)) % 10**8}a"
    assert post(server, f"/api/schemas/{topic}/versions", json.dumps(SCHEMA).encode()).status == 201
    hold(server, topic, "enforce")
    for number in range(2):
        refused = post(
            server, f"/topics/{topic}", b'{"no":%d}' % number, x_correlation_id=f"chain-{number}", x_shop="north"
        )
        assert refused.status == 422
    wait_until(lambda: len(get(server, f"/api/rejected?topic={topic}").json()["rejected"]) == 2, what="their commit")
    return topic


def hold(server: Server, topic: str, policy: str) -> None:
    settings = json.dumps({"subject": topic, "policy": policy, "validate_payload": True}).encode()
    assert call(server, "PUT", f"/api/topic-schemas/{topic}", settings).status == 200


def test_rejected_messages_are_listed_newest_first_and_shown(server: Server, orders: str) -> None:
    rows = lines(run("rejected", "list", "--topic", orders, "--data", str(server.data), "--json"))
    assert [row["correlation_id"] for row in rows] == ["chain-1", "chain-0"]
    assert {(row["source"], row["code"], row["subject"], row["redriven"]) for row in rows} == {
        ("rejected", "payload_invalid", orders, None)
    }
    shown = run("rejected", "show", str(rows[0]["position"]), "--data", str(server.data))
    assert '{"no":1}' in shown.stdout
    assert "chain-1" in shown.stdout
    page = get(server, f"/api/rejected?topic={orders}&limit=1").json()
    assert [row["position"] for row in page["rejected"]] == [rows[0]["position"]]
    older = get(server, f"/api/rejected?topic={orders}&limit=1&after={page['after']}").json()
    assert [row["position"] for row in older["rejected"]] == [rows[1]["position"]]


def test_a_redrive_passes_the_schema_anew_and_keeps_the_chain(server: Server, orders: str) -> None:
    again = run("rejected", "redrive", "--all", "--topic", orders, "--data", str(server.data))
    assert again.exit_code == 1
    assert "2 refused" in again.stderr
    rows = lines(run("rejected", "list", "--topic", orders, "--data", str(server.data), "--json"))
    assert len(rows) == 2  # refused again, and not kept twice
    hold(server, orders, "none")
    results = lines(run("rejected", "redrive", "--all", "--topic", orders, "--data", str(server.data), "--json"))
    assert [result["offset"] for result in results] == [0, 1]
    stored = get(server, f"/topics/{orders}").json()["messages"]
    assert [(row["payload"], row["correlation_id"], row["attributes"]["x-shop"]) for row in stored] == [
        ('{"no":0}', "chain-0", "north"), ('{"no":1}', "chain-1", "north"),
    ]  # fmt: skip
    rows = lines(run("rejected", "list", "--topic", orders, "--data", str(server.data), "--json"))
    assert [row["redriven"]["offset"] for row in rows] == [1, 0]
    assert (
        "0 published again" in run("rejected", "redrive", "--all", "--topic", orders, "--data", str(server.data)).stderr
    )


def test_a_redrive_may_go_to_another_topic(server: Server, orders: str) -> None:
    position = get(server, f"/api/rejected?topic={orders}").json()["rejected"][0]["position"]
    result = run("rejected", "redrive", str(position), "--to", f"{orders}.mended", "--data", str(server.data))
    assert result.exit_code == 0, result.output
    assert get(server, f"/topics/{orders}.mended").json()["messages"][0]["payload"] == '{"no":1}'


def test_positions_that_hold_no_rejected_message_are_404(server: Server) -> None:
    assert get(server, "/api/rejected/0").status == 404
    assert post(server, "/api/rejected/99999999/redrive").status == 404
    assert get(server, "/api/rejected?source=other").status == 400


def test_which_to_redrive_must_be_said(server: Server) -> None:
    for arguments in ([], ["--all"], ["5", "--all", "--topic", "x"]):
        assert run("rejected", "redrive", *arguments, "--data", str(server.data)).exit_code == 2
