"""Every program in `examples/` is run against a bus."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.server import Server, running_server

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_publish_subscribe_prints_what_was_published(server: Server) -> None:
    assert run("mb_publish_subscribe.py", f"mb://127.0.0.1:{server.port('tcp')}").splitlines() == [
        "baggage.events {'bag': 17, 'belt': 3}",
        "baggage.events {'bag': 18}",
        "baggage.events {'bag': 19, 'last': True}",
    ]


def test_request_answer_prints_an_answer_and_a_refusal(server: Server) -> None:
    urls = f"mb://127.0.0.1:{server.port('tcp')}", f"mb+ws://127.0.0.1:{server.port('websocket')}"
    assert run("mb_request_answer.py", *urls).splitlines() == [
        'answer: {"seat":"7C"}',
        "refused: SEAT_TAKEN: seat 12A is taken",
    ]


def test_read_journal_prints_the_rows_of_a_topic(server: Server) -> None:
    run("mb_publish_subscribe.py", f"mb://127.0.0.1:{server.port('tcp')}")
    lines = run("read_journal.py", str(server.data)).splitlines()
    assert lines[0].startswith("committed up to position ")
    assert lines[2] == '0 {"bag":17,"belt":3}'
    assert len(lines) == 5


def test_zbus_queue_prints_what_came_late_first(server: Server) -> None:
    assert run("zbus_queue.py", f"zbus://127.0.0.1:{server.port('zbus')}").splitlines() == [
        "nothing yet",
        "{'bag': 17} 3",
        "{'bag': 18} None",
        "{'bag': 19, 'last': True} None",
    ]


def test_zbus_service_prints_an_answer_and_a_refusal(server: Server) -> None:
    assert run("zbus_service.py", f"zbus://127.0.0.1:{server.port('zbus')}").splitlines() == [
        'answer: {"seat":"7C"}',
        "refused: 409: seat 12A is taken",
    ]


def test_seneca_service_prints_an_answer_and_a_refusal(server: Server) -> None:
    urls = f"seneca://127.0.0.1:{server.port('seneca')}", f"http://127.0.0.1:{server.port('console')}"
    assert run("seneca_service.py", *urls).splitlines() == [
        "answer: {'seat': '7C', 'by': 'Ada'}",
        "refused: seat_taken: seat 12A is taken {'seat': '12A'}",
    ]


def test_durable_consumer_prints_what_it_handled(server: Server) -> None:
    assert run("durable_consumer.py", f"danube://127.0.0.1:{server.port('danube')}").splitlines() == [
        "stored: True",
        "weighed: [17, 18, 19]",
    ]


def test_typed_requests_prints_a_seat_and_the_wrong_field(server: Server) -> None:
    assert run("typed_requests.py", f"mb://127.0.0.1:{server.port('tcp')}").splitlines() == [
        "seat: 7A",
        "refused: MALFORMED_MESSAGE: payload is not of type Wish: $.window: Expected `bool`, got `str`",
        "nobody listens: True",
    ]


def test_app_with_schemas_prints_what_its_handlers_did(server: Server) -> None:
    urls = f"mb://127.0.0.1:{server.port('tcp')}", f"http://127.0.0.1:{server.port('console')}"
    assert run("app_with_schemas.py", *urls).splitlines() == ["fee: 60", "checked in: Ada", "refused: INVALID_REQUEST"]


def test_schema_versions_prints_what_may_follow(server: Server) -> None:
    urls = f"mb://127.0.0.1:{server.port('tcp')}", f"http://127.0.0.1:{server.port('console')}"
    assert run("schema_versions.py", *urls).splitlines() == [
        "version 1",
        "a field with a default: True",
        "another field instead: False",
        "version 2",
        "gates.changed must match gates",
        "latest: 2",
    ]


def test_testing_without_a_server_needs_none() -> None:
    assert run("testing_without_a_server.py") == "passed\n"


def test_no_example_is_forgotten() -> None:
    here = Path(__file__).read_text("utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'run("{path.name}"' not in here] == []
