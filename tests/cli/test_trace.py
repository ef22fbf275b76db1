"""`raceway trace` against a started server, and from the files of a stopped one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raceway.cli.app import app
from raceway.client.sync import connect
from tests.rigs.http_door import get, post
from tests.rigs.server import Server, running_server, wait_until


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


def test_without_an_id_the_newest_message_of_the_topic_is_shown(server: Server) -> None:
    for where in (["--data", str(server.data)], ["--url", console(server)]):
        assert "ask-1  3 messages over http, mb in" in run("trace", "--topic", "math.log", *where).stdout


def test_without_an_id_and_a_topic_the_command_says_what_to_name(server: Server) -> None:
    result = run("trace", "--data", str(server.data))
    assert (result.exit_code, "--topic TOPIC" in result.stderr) == (2, True)


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
