"""`raceway queue …`, and `pub`, `sub`, `request` over zbus."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode, exit_code_of
from raceway.client import sync
from raceway.errors import ConnectionLostError, RemoteError, RequestTimeoutError
from tests.rigs import http_door
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import zbus_port

numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def zbus(server: Server) -> Iterator[sync.SyncZbusClient]:
    with sync.connect(url_of(server), wire="zbus") as client:
        yield client


@pytest.fixture
def queue(zbus: sync.SyncZbusClient) -> str:
    name = f"cli{next(numbers)}"
    zbus.create_queue(name)
    return name


def url_of(server: Server) -> str:
    return f"zbus://127.0.0.1:{zbus_port(server)}"


def run(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)


def on_folder(server: Server, *arguments: str, stdin: str | None = None) -> Any:
    return run(*arguments, "--data", str(server.data), stdin=stdin)


def waiting(server: Server, queue: str) -> int:
    rows = json.loads(on_folder(server, "queue", "list", "--json").stdout)
    (count,) = [row["waiting"] for row in rows if row["name"] == queue]
    assert isinstance(count, int)
    return count


# ---- queue -----------------------------------------------------------------------------------------------------------


def test_a_queue_is_made_and_listed_by_folder_and_by_url(server: Server) -> None:
    made = on_folder(server, "queue", "create", "made.here")
    assert (made.exit_code, made.stdout) == (0, "")
    assert "made.here" in made.stderr
    made = run("queue", "create", "ticks", "--pubsub", "--url", url_of(server), "--json")
    assert json.loads(made.stdout) == {"queue": "ticks", "pubsub": True, "guarded": False}
    rows = json.loads(run("queue", "list", "--url", url_of(server), "--json").stdout)
    kinds = {row["name"]: (row["pubsub"], row["mode"], row["waiting"], row["consumers"]) for row in rows}
    assert kinds["made.here"] == (False, 1, 0, 0)
    assert kinds["ticks"] == (True, 2, 0, 0)
    table = on_folder(server, "queue", "list").stdout
    assert "publish/subscribe" in table
    assert url_of(server).removeprefix("zbus://") in table


def test_a_queue_of_another_kind_is_not_replaced(server: Server, queue: str) -> None:
    with pytest.raises(RemoteError) as refused:
        on_folder(server, "queue", "create", queue, "--pubsub")
    assert refused.value.reported == "400"


def test_peek_shows_what_waits_and_takes_nothing(server: Server, zbus: sync.SyncZbusClient, queue: str) -> None:
    zbus.publish_many(queue, [b"first", b"esc \x1b[31m", b"\xff"])
    shown = on_folder(server, "queue", "peek", queue)
    assert shown.exit_code == 0
    assert "first" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "\\x1b[31m" in shown.stdout
    assert "3 waiting" in shown.stderr
    console = f"http://127.0.0.1:{server.port('console')}"
    lines = run("queue", "peek", queue, "--count", "2", "--json", "--url", console).stdout.splitlines()
    assert [json.loads(line)["payload"] for line in lines] == ["first", "esc \x1b[31m"]
    assert waiting(server, queue) == 3
    with zbus.consume(queue) as consumer:
        assert consumer.get(10).payload == b"first"  # type: ignore[union-attr]


def test_purge_drops_what_waits_when_it_is_meant(server: Server, zbus: sync.SyncZbusClient, queue: str) -> None:
    zbus.publish_many(queue, ["a", "b"])
    assert on_folder(server, "queue", "purge", queue, stdin="n\n").exit_code == 1
    assert waiting(server, queue) == 2
    done = on_folder(server, "queue", "purge", queue, stdin="y\n")
    assert "dropped 2 messages" in done.stderr
    assert waiting(server, queue) == 0
    zbus.publish(queue, "c")
    assert json.loads(on_folder(server, "queue", "purge", queue, "--yes", "--json").stdout)["purged"] == 1
    zbus.publish(queue, "after")
    with zbus.consume(queue) as consumer:
        assert consumer.get(10).text == "after"  # type: ignore[union-attr]


def test_a_queue_is_deleted_when_it_is_meant(server: Server, zbus: sync.SyncZbusClient, queue: str) -> None:
    zbus.publish(queue, "a")
    assert on_folder(server, "queue", "delete", queue, stdin="n\n").exit_code == 1
    assert waiting(server, queue) == 1
    done = on_folder(server, "queue", "delete", queue, stdin="y\n")
    assert done.stderr.endswith(f"the queue {queue} is deleted\n")
    with pytest.raises(RemoteError, match="Not Found"):
        on_folder(server, "queue", "peek", queue)


def test_a_token_is_wanted_for_what_waits(server: Server) -> None:
    on_folder(server, "queue", "create", "vault", "--queue-token", "open")
    url = url_of(server)
    assert run("pub", "vault", "gold", "--url", url, "--token", "open").exit_code == 0
    for command in (["pub", "vault", "x", "--url", url], ["queue", "peek", "vault", "--data", str(server.data)]):
        with pytest.raises(RemoteError) as refused:
            run(*command)
        assert exit_code_of(refused.value) == ExitCode.FAILED
        assert refused.value.reported == "403"
    assert "gold" in on_folder(server, "queue", "peek", "vault", "--token", "open").stdout
    taken = run("sub", "vault", "--count", "1", "--timeout", "10", "--url", url, "--token", "open")
    assert taken.stdout == "vault gold\n"


def test_an_admin_token_is_wanted_where_one_is_set() -> None:
    with running_server(RACEWAY_SECURITY__ADMIN_TOKEN="s3cret") as server:
        for command in (["queue", "create", "q"], ["queue", "list"], ["queue", "peek", "q"]):
            with pytest.raises(RemoteError) as refused:
                on_folder(server, *command)
            assert refused.value.reported == "403"
        created = on_folder(server, "queue", "create", "q", "--token", "s3cret", "--queue-token", "")
        assert (created.exit_code, created.stderr) == (0, "the queue q is there\n")
        assert "q" in on_folder(server, "queue", "list", "--token", "s3cret").stdout
        assert on_folder(server, "queue", "peek", "q", "--token", "s3cret").exit_code == 0
        assert on_folder(server, "queue", "purge", "q", "--yes", "--token", "s3cret").exit_code == 0


def test_a_queue_that_does_not_exist_is_an_error(server: Server) -> None:
    for command in (["peek", "nosuch"], ["purge", "nosuch", "--yes"], ["delete", "nosuch", "--yes"]):
        with pytest.raises(RemoteError) as refused:
            on_folder(server, "queue", *command)
        assert (refused.value.reported, refused.value.text) == ("404", "MQ(nosuch) Not Found")


def test_a_wrong_kind_of_address_is_explained(server: Server, tmp_path: Any) -> None:
    assert run("queue", "list", "--url", "mb://127.0.0.1:1").exit_code == ExitCode.USAGE
    assert run("queue", "peek", "q", "--url", url_of(server)).exit_code == ExitCode.USAGE
    assert run("topics", "--url", url_of(server)).exit_code == ExitCode.USAGE
    assert run("queue", "peek", "q", "--data", str(tmp_path)).exit_code == ExitCode.UNREACHABLE
    assert run("queue", "list", "--data", str(tmp_path)).exit_code == ExitCode.UNREACHABLE
    with pytest.raises(ConnectionLostError):
        run("queue", "peek", "q", "--url", "http://127.0.0.1:9")


# ---- pub, sub, request -----------------------------------------------------------------------------------------------


def test_pub_and_sub_go_through_a_queue_and_take_no_more_than_they_show(server: Server, queue: str) -> None:
    url = url_of(server)
    sent = run("pub", queue, "--lines", "--url", url, "--json", stdin="one\ntwo\nthree\n")
    assert json.loads(sent.stdout)["acknowledged"] is True
    assert run("sub", queue, "--count", "2", "--url", url).stdout == f"{queue} one\n{queue} two\n"
    assert waiting(server, queue) == 1
    assert run("pub", queue, "four", "--no-ack", "--url", url).exit_code == 0
    late = run("sub", queue, "--count", "3", "--timeout", "0.5", "--url", url, "--json")
    assert late.exit_code == ExitCode.TIMEOUT
    assert [json.loads(line)["payload"] for line in late.stdout.splitlines()] == ["three", "four"]


def test_pub_into_a_queue_that_nobody_made_fails(server: Server) -> None:
    with pytest.raises(RemoteError) as refused:
        run("pub", "nosuch", "x", "--url", url_of(server))
    assert exit_code_of(refused.value) == ExitCode.FAILED


def test_sub_takes_from_one_queue(server: Server) -> None:
    assert run("sub", "a", "b", "--url", url_of(server)).exit_code == ExitCode.USAGE


def test_pub_names_the_subject_of_a_pubsub_queue(server: Server, zbus: sync.SyncZbusClient) -> None:
    zbus.create_queue("prices", 2)
    with zbus.consume("prices", ["hk"]) as consumer:
        assert run("pub", "prices", "1", "--subject", "sse", "--url", url_of(server)).exit_code == 0
        assert run("pub", "prices", "2", "--subject", "hk", "--url", url_of(server)).exit_code == 0
        assert consumer.get(10).text == "2"  # type: ignore[union-attr]


def test_request_prints_the_answer_of_a_service(server: Server, zbus: sync.SyncZbusClient, queue: str) -> None:
    def answer(delivery: Any) -> str:
        if delivery.text == "bad":
            raise RemoteError("422", "no such seat")
        return str(delivery.text).upper()

    with zbus.serve(queue, answer):
        assert run("request", queue, "hi", "--url", url_of(server)).stdout == "HI\n"
        with pytest.raises(RemoteError) as refused:
            run("request", queue, "bad", "--url", url_of(server))
        assert exit_code_of(refused.value) == ExitCode.ERROR_ANSWER
    with pytest.raises(RequestTimeoutError):
        run("request", queue, "x", "--timeout-ms", "50", "--url", url_of(server))


@pytest.mark.parametrize(("start", "first"), [("first", b"0"), ("1", b"1"), ("2001-01-01T00:00:00Z", b"0")])
def test_a_queue_begins_where_it_is_told_to(
    server: Server, zbus: sync.SyncZbusClient, start: str, first: bytes
) -> None:
    name = f"cli{next(numbers)}"
    for payload in (b"0", b"1"):
        http_door.post(server, f"/topics/{name}", payload)
    assert on_folder(server, "queue", "create", name, "--start", start).exit_code == 0
    with zbus.consume(name) as consumer:
        assert consumer.get(10).payload == first  # type: ignore[union-attr]


def test_a_start_that_cannot_be_is_refused(server: Server, zbus: sync.SyncZbusClient) -> None:
    name = f"cli{next(numbers)}"
    with pytest.raises(RemoteError, match="yesterday"):
        on_folder(server, "queue", "create", name, "--start", "yesterday")
    assert on_folder(server, "queue", "create", name, "--pubsub", "--start", "first").exit_code == ExitCode.USAGE
    with pytest.raises(RemoteError, match="start"):
        zbus.create_queue(name, 2, start="first")
    assert all(row.name != name for row in zbus.queues())


def test_the_old_names_of_the_admin_token_are_read_with_a_warning() -> None:
    with running_server(RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN="s3cret") as server:
        assert "setting renamed" in server.stderr
        assert "s3cret" not in server.stderr
        created = on_folder(server, "queue", "create", "q", "--admin-token", "s3cret", "--token", "open", "--json")
        assert json.loads(created.stdout)["guarded"], "beside it, --token was the queue's"
        assert "--admin-token is now called --token" in created.stderr
        assert "--queue-token" in created.stderr
        listed = on_folder(server, "queue", "list", "--admin-token", "s3cret")
        assert "q" in listed.stdout
        assert listed.stderr == "--admin-token is now called --token\n"
        with pytest.raises(RemoteError):
            run("pub", "q", "x", "--url", url_of(server))
        assert run("pub", "q", "x", "--url", url_of(server), "--token", "open").exit_code == 0


def test_a_token_alone_creates_no_queue_that_is_open_by_mistake(server: Server) -> None:
    done = on_folder(server, "queue", "create", "open-by-mistake", "--token", "secret")
    assert done.exit_code == ExitCode.USAGE
    assert "--queue-token" in done.stderr
    assert "open-by-mistake" not in on_folder(server, "queue", "list").stdout
