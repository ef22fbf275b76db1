"""`raceway.client` over Seneca and a bus: calls, several answers, late ones, services that come and go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.client import ActionMessage, SenecaClient, SenecaService, connect
from raceway.errors import ConnectionLostError, RemoteError
from tests.rigs.seneca_wire import console, fresh_word, post, rows, wait_for_rows
from tests.rigs.server import Server, running_server, wait_until

HOLD_MS = 100


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__SENECA__HOLD_MS=HOLD_MS, RACEWAY_SENECA__RETRY_MS=50) as server:
        yield server


def client_of(server: Server, scheme: str = "seneca", **options: Any) -> SenecaClient:
    port = server.port("seneca_tcp" if scheme == "seneca+tcp" else "seneca")
    client: SenecaClient = connect(
        f"{scheme}://127.0.0.1:{port}", wire="seneca", console=f"http://127.0.0.1:{server.port('console')}", **options
    )
    return client


def pricing(word: str, price: int, after_s: float = 0) -> SenecaService:
    service = SenecaService()

    @service.action({"role": word, "cmd": "price"})
    async def quote(message: ActionMessage) -> dict[str, Any]:
        await asyncio.sleep(after_s)
        message.custom["quoted"] = True
        return {"price": price, "for": message.get("sku")}

    return service


@pytest.fixture(params=["seneca", "seneca+tcp"])
def scheme(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def test_a_call_through_the_bus(server: Server, scheme: str) -> None:
    word = fresh_word()

    async def scenario() -> None:
        async with (
            client_of(server, name="B") as desk,
            await desk.host(pricing(word, 5)),
            client_of(server, scheme, name="A") as client,
        ):
            answer = await client.ask(f"role:{word},cmd:price", {"sku": "k7"}, custom={"tenant": "t1"})
            assert (answer.result, answer.rid) == ({"price": 5, "for": "k7"}, "B")
            assert answer.custom == {"tenant": "t1", "quoted": True}
            assert [(hop.sid, hop.rid, len(hop.tms)) for hop in answer.trk] == [("A", "B", 4)]
            with pytest.raises(RemoteError) as nobody:
                await client.act(f"role:{word},cmd:none")
            assert nobody.value.reported == "act_not_found"

    asyncio.run(scenario())


def test_two_hundred_calls_at_once(server: Server, scheme: str) -> None:
    word = fresh_word()

    async def scenario() -> None:
        async with client_of(server) as desk, await desk.host(pricing(word, 5)), client_of(server, scheme) as client:
            calls = (client.act(f"role:{word},cmd:price", {"sku": n}) for n in range(200))
            assert [answer["for"] for answer in await asyncio.gather(*calls)] == list(range(200))

    asyncio.run(scenario())


def test_several_answers_to_one_question(server: Server, scheme: str) -> None:
    word = fresh_word()

    async def scenario() -> None:
        async with (
            client_of(server, name="C") as first,
            await first.host(pricing(word, 5)),
            client_of(server, name="D") as second,
            await second.host(pricing(word, 6)),
            client_of(server, scheme, name="A") as client,
        ):
            answers = await client.ask_all(f"role:{word},cmd:price", {"sku": "k7"})
            assert sorted((answer.result["price"], answer.rid) for answer in answers) == [(5, "C"), (6, "D")]

    asyncio.run(scenario())


def test_a_message_without_answer_is_stored_and_reaches_every_service(server: Server) -> None:
    word, seen = fresh_word(), list[str]()

    def listening(name: str) -> SenecaService:
        service = SenecaService()
        service.add({"role": word, "cmd": "saved"}, lambda message: seen.append(f"{name}{message['id']}"))
        return service

    async def scenario() -> None:
        async with (
            client_of(server) as desk,
            await desk.host(listening("B")),
            await desk.host(listening("C")),
            client_of(server, name="A") as client,
        ):
            await client.send(f"role:{word},cmd:saved", {"id": 9})
            assert len(rows(server, topic=f"{word}.saved", kind="publish")) == 1
            await asyncio.to_thread(wait_until, lambda: len(seen) == 2)

    asyncio.run(scenario())
    assert sorted(seen) == ["B9", "C9"]


def test_a_late_answer_comes_by_the_return_path(server: Server) -> None:
    word = fresh_word()

    async def scenario() -> None:
        async with (
            client_of(server) as desk,
            await desk.host(pricing(word, 5, after_s=5 * HOLD_MS / 1000)),
            client_of(server, name="A", returns="http://127.0.0.1:0/rtn") as client,
        ):
            answer = await client.ask(f"role:{word},cmd:price")
            assert answer.result == {"price": 5, "for": None}
            assert len(answer.trk[0].tms) == 4

    asyncio.run(scenario())
    (request,) = wait_for_rows(server, 1, topic=f"{word}.price", kind="request")
    assert request["reply_to"].endswith("/rtn")


def test_a_service_is_attached_while_it_is_hosted(server: Server) -> None:
    word = fresh_word()

    def attached() -> list[str]:
        listed = json.loads(console(server, "GET", "/api/seneca/services").body)["services"]
        return [row["url"] for row in listed if word in row["pin"]]

    async def scenario() -> None:
        async with client_of(server) as desk:
            async with await desk.host(pricing(word, 5)) as host:
                assert await asyncio.to_thread(attached) == [host.url]
            assert await asyncio.to_thread(attached) == []
            await desk.host(pricing(word, 5))
        assert await asyncio.to_thread(attached) == [], "closed with its client"

    asyncio.run(scenario())


def test_a_pattern_that_the_bus_refuses_is_said_and_nothing_stays(server: Server) -> None:
    word = fresh_word()
    service = pricing(word, 5)
    service.add("role:seneca,cmd:stats", lambda message: None)

    async def scenario() -> None:
        async with client_of(server) as desk:
            with pytest.raises(RemoteError):
                await desk.host(service)

    asyncio.run(scenario())
    assert word not in console(server, "GET", "/api/seneca/services").body.decode()


def test_a_console_that_is_not_there_is_said(server: Server) -> None:
    async def scenario() -> None:
        async with client_of(server) as desk:
            pass
        async with connect(str(desk.address), wire="seneca", console="http://127.0.0.1:9") as lost:
            with pytest.raises(ConnectionLostError):
                await lost.host(pricing("x", 5))

    asyncio.run(scenario())


def test_a_service_that_breaks_answers_with_an_error_at_once(server: Server) -> None:
    service, word = SenecaService(), fresh_word()

    @service.action({"role": word})
    def boom(message: ActionMessage) -> None:
        raise ZeroDivisionError("by zero")

    async def scenario() -> None:
        async with client_of(server) as desk, await desk.host(service), client_of(server) as client:
            began = time.monotonic()
            with pytest.raises(RemoteError, match="by zero"):
                await client.act({"role": word})
            assert time.monotonic() - began < 3

    asyncio.run(scenario())


def test_a_client_and_its_service_survive_a_restart_of_the_bus(scheme: str) -> None:
    word = fresh_word()

    async def scenario(server: Server) -> None:
        async with (
            client_of(server) as desk,
            await desk.host(pricing(word, 5)),
            client_of(server, scheme, backoff_s=0.05) as client,
        ):
            assert (await client.act(f"role:{word},cmd:price"))["price"] == 5
            await asyncio.to_thread(server.restart)
            assert (await client.act(f"role:{word},cmd:price"))["price"] == 5

    with running_server() as server:
        asyncio.run(scenario(server))


def test_curl_and_our_service_understand_each_other(server: Server) -> None:
    word = fresh_word()

    async def scenario() -> None:
        async with client_of(server) as desk, await desk.host(pricing(word, 5)):
            answer = await asyncio.to_thread(post, server, {"role": word, "cmd": "price", "sku": "é"}, {})
            assert answer.json() == {"price": 5, "for": "é"}

    asyncio.run(scenario())
