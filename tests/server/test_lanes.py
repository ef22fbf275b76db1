"""A bus of several lanes, each a process, seen from outside: as one bus, also while a lane or the parent dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from typer.testing import CliRunner, Result

from raceway import config, wires
from raceway.cli.app import app
from raceway.client import Delivery, connect
from raceway.errors import ConfigError, JournalError, RacewayError
from raceway.journal import open_journal
from raceway.journal.lanes import lane_folder
from raceway.journal.read.reader import Reader
from raceway.model.lanes import LaneTable
from raceway.server.lanes import run_lanes
from tests.rigs.ports import free_port_base
from tests.rigs.server import Server, wait_until

LANES = 3
TABLE = LaneTable(LANES)
TOPICS = [f"orders.n{number}" for number in range(9)]
# Enough connections that the kernel gives every process some.
CLIENTS = 6
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lanes")
    settings = {"RACEWAY_LANES__COUNT": LANES, "RACEWAY_BROKER__DRAIN_S": 5, "RACEWAY_LANES__RESTART_S": 0.01}
    server = Server(folder / "data", folder, settings, "raceway")
    server.port_base = free_port_base(config.PORTS_IN_A_ROW + LANES)
    try:
        server.start()
        yield server
        if server.is_running():
            server.stop()
    finally:
        server.kill()


def console(server: Server, number: int) -> str:
    """The URL of a lane's console."""
    port = server.port("console") if number == 0 else server.port_base + config.PORTS_IN_A_ROW + number - 1
    return f"http://127.0.0.1:{port}"


def processes(server: Server) -> dict[int, psutil.Process]:
    """The processes of the lanes, by number: each holds the port of its own console."""
    ports = {urlsplit(console(server, number)).port: number for number in range(LANES)}
    return {
        ports[each.laddr.port]: child
        for child in psutil.Process(server.pid).children()
        for each in child.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port in ports
    }


def ask(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def run(story: Callable[[], Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await story()

    return asyncio.run(limited())


@contextlib.asynccontextmanager
async def clients(server: Server, wire: str, count: int = CLIENTS) -> AsyncIterator[list[Any]]:
    port = server.port({"mb": "tcp", "zbus": "zbus"}[wire])  # type: ignore[arg-type]
    async with contextlib.AsyncExitStack() as stack:
        made: list[Any] = [connect(f"{wire}://127.0.0.1:{port}") for _ in range(count)]
        yield [await stack.enter_async_context(each) for each in made]


async def refusals(client: Any, *topics: str) -> list[BaseException | None]:
    """What publishes are refused with, if they are."""
    told = await asyncio.gather(*(client.publish(topic, b"y") for topic in topics), return_exceptions=True)
    return [each if isinstance(each, BaseException) else None for each in told]


def test_clients_of_all_processes_are_on_one_bus(server: Server) -> None:
    async def story() -> None:
        async with clients(server, "mb") as peers:
            streams = [await peer.subscribe("orders.#") for peer in peers]
            for number, topic in enumerate(TOPICS):
                await peers[number % CLIENTS].publish(topic, b"%d" % number)
            for stream in streams:
                found = sorted([(await stream.get()).payload for _ in TOPICS])
                assert found == [b"%d" % number for number in range(len(TOPICS))]
            for peer in peers:
                await peer.serve(f"sum.n{peers.index(peer)}", lambda message: message.payload + b"!")
            for number, peer in enumerate(peers):
                assert await peer.request(f"sum.n{(number + 1) % CLIENTS}", b"7") == b"7!"
            counted = await peers[0].metrics()
            assert counted["router.publish.count"] == len(TOPICS)
            assert counted["connection.active"] == CLIENTS

    run(story)
    listening = [
        number
        for number, child in processes(server).items()
        if any(each.laddr.port == server.port("tcp") for each in child.net_connections("tcp"))
    ]
    assert sorted(listening) == list(range(LANES)), "every process accepts connections of every wire"


def test_queues_are_seen_and_served_from_every_process(server: Server) -> None:
    queues = [f"work{number}" for number in range(6)]
    assert len({TABLE.lane_of(name.encode()) for name in queues}) > 1

    async def story() -> None:
        async with clients(server, "zbus") as peers:
            for number, name in enumerate(queues):
                await peers[number].create_queue(name)
            for peer in peers:
                assert {each.name for each in await peer.queues()} >= set(queues)
            for number, name in enumerate(queues):
                assert await peers[number - 1].publish_many(name, ["a", "b", "c"]) == 3
                async with await peers[number - 2].consume(name) as stream:
                    deliveries = [await stream.get() for _ in range(3)]
                    assert [each.text for each in deliveries if isinstance(each, Delivery)] == ["a", "b", "c"]

    run(story)


def test_a_console_has_its_lane_and_names_that_of_another_topic(server: Server) -> None:
    topic = "bills.n1"
    own = TABLE.lane_of(topic.encode())

    async def story() -> None:
        async with clients(server, "mb", 1) as (peer,):
            stream = await peer.subscribe(topic)
            for number in range(LANES):
                status, told = await asyncio.to_thread(ask, f"{console(server, number)}/topics/{topic}", "POST", b"x")
                if number == own:
                    assert (status, told["offset"]) == (201, 0)
                else:
                    assert status == 421
                    assert told["error"] == {
                        "code": "other_lane",
                        "message": f"'{topic}' is in lane {own}: ask its console, {console(server, own)}",
                    }
            assert (await stream.get()).payload == b"x"

    run(story)
    for number in range(LANES):
        assert ask(f"{console(server, number)}/readyz")[0] == 200
        _, told = ask(f"{console(server, number)}/api/doors")
        assert set(told["doors"]) == {"mb", "mb+ws", "zbus", "console"}
        with urllib.request.urlopen(f"{console(server, number)}/metrics", timeout=DEADLINE_S) as metrics:
            assert f'raceway_topics{{lane="{number}"}}' in metrics.read().decode()


def test_commands_find_the_bus_and_say_that_it_has_lanes(server: Server) -> None:
    def raceway(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--data", str(server.data)])

    for topic in TOPICS[:3]:
        assert raceway("pub", topic, "x").exit_code == 0
    assert f"the bus has {LANES} lanes, and this is of lane 0 alone" in raceway("topics").stderr
    found = {each["subject"]: each["verdict"] for each in json.loads(raceway("doctor", "--json").stdout)}
    assert "bad" not in {verdict for subject, verdict in found.items() if subject.startswith(("port", "journal"))}
    verified = raceway("journal", "verify")
    assert verified.exit_code != 0
    assert f"has {LANES} lanes" in verified.stderr


def test_a_lane_that_dies_fails_its_topics_alone_and_comes_back(server: Server) -> None:
    dying = TABLE.lane_of(TOPICS[0].encode())
    dead = processes(server)[dying]
    dead.kill()
    dead.wait(DEADLINE_S)

    async def story() -> None:
        # On a process that lives, or on the one that follows.
        async with clients(server, "mb", 1) as (peer,):
            for topic, outcome in zip(TOPICS, await refusals(peer, *TOPICS), strict=True):
                if TABLE.lane_of(topic.encode()) != dying:
                    assert outcome is None, topic
            while isinstance((await refusals(peer, TOPICS[0]))[0], RacewayError):  # noqa: ASYNC110 - the lane is asked
                await asyncio.sleep(0.02)

    run(story)
    wait_until(lambda: len(processes(server)) == LANES or None, what="the lane is there again")


def test_a_stop_keeps_everything_and_a_killed_parent_takes_its_lanes_along(server: Server) -> None:
    async def story() -> None:
        async with clients(server, "mb", 1) as (peer,):
            assert await refusals(peer, *TOPICS) == [None] * len(TOPICS)

    run(story)
    children = list(processes(server).values())
    server.process.kill()
    server.process.wait(DEADLINE_S)
    server._was_ended = True
    server.start()
    assert not [each for each in children if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    server.stop()
    found: dict[str, list[int]] = {}
    for number in range(LANES):
        reader = Reader(lane_folder(server.data, number))
        for batch in reader.read(0):
            for row in batch.to_pylist():
                if row["kind"] == "publish" and row["topic"].startswith("orders."):
                    assert TABLE.lane_of(row["topic"].encode()) == number
                    found.setdefault(row["topic"], []).append(row["offset"])
        reader.close()
    assert set(found) == set(TOPICS)
    for offsets in found.values():
        assert offsets == list(range(len(offsets)))


def settings(folder: Path, **more: Any) -> config.Settings:
    flags = {"journal.folder": str(folder), "listen.port_base": free_port_base(), "lanes.count": 2}
    return config.load(environment={}, flags=flags | more, sections=wires.sections())


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("security.enabled", {"security.enabled": True, "security.token_secret": "x" * 32}),
        ("cluster.url", {"cluster.url": "kafka://127.0.0.1:1/orders"}),
        ("journal.archive", {"journal.archive": "/nowhere"}),
        ("listen.zbus.trackers", {"listen.zbus.trackers": ["127.0.0.1:1"]}),
    ],
)
def test_what_needs_one_lane_is_refused_by_its_key(tmp_path: Path, key: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{key}: does not go with several lanes"):
        run_lanes(settings(tmp_path / "data", **more))
    assert not (tmp_path / "data").exists()


def test_a_journal_of_one_lane_is_refused_and_one_of_several_is_not_served_as_one(tmp_path: Path) -> None:
    alone = settings(tmp_path)
    open_journal(alone.config.journal, lambda call: None).close()
    with pytest.raises(JournalError, match="holds a journal of one lane"):
        run_lanes(alone)


def test_a_port_that_another_process_has_is_named(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "data")
    port = chosen.config.listen.port_base + 3
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match=f"port {port} on .* is in use"):
        run_lanes(chosen)
