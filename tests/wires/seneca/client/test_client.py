"""The Seneca client and its service host, without a bus: against real npm listeners and clients, and each other."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raceway.client import ActionMessage, SenecaClient, SenecaHost, SenecaService, connect
from raceway.client.sync import connect as connect_sync
from raceway.errors import ConfigError, ConnectionLostError, PatternTextError, RemoteError, RequestTimeoutError
from raceway.wires.seneca.client.actions import Performer
from tests.rigs.node_peers import DIALECTS, Dialect, NodePeers, Outcome, node_peers
from tests.rigs.ports import free_port_base
from tests.rigs.seneca_math import math_service
from tests.rigs.seneca_wire import (
    Answer,
    Got,
    Http,
    Lines,
    Service,
    legacy_headers,
    line,
    new_id,
    seed,
    seed_answer,
    web,
)
from tests.rigs.server import wait_until


@pytest.fixture(scope="module")
def node() -> Iterator[NodePeers]:
    with node_peers() as node:
        yield node


@pytest.fixture(scope="module")
def listeners(node: NodePeers) -> dict[str, int]:
    base = free_port_base()
    ports: dict[str, int] = {dialect: base + number for number, dialect in enumerate(DIALECTS)}
    for dialect in DIALECTS:
        node.listen(f"listener-{dialect}", dialect, ports[dialect])
    return ports


@asynccontextmanager
async def hosted(service: SenecaService, sid: str = "B") -> AsyncIterator[SenecaHost]:
    """A service that listens on both transports, attached to nothing."""
    base = free_port_base()
    host = await SenecaHost(Performer(service, sid)).listen("127.0.0.1", base, base + 1)
    async with host:
        yield host


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1].partition("/")[0])


@asynccontextmanager
async def called(service: SenecaService, scheme: str = "seneca", **options: Any) -> AsyncIterator[SenecaClient]:
    """A client of a hosted service."""
    async with hosted(service) as host:
        port = port_of(host.tcp_url if scheme == "seneca+tcp" else host.url)
        async with connect(f"{scheme}://127.0.0.1:{port}", wire="seneca", **options) as client:
            yield client


# ---- our client, real listeners -------------------------------------------------------------------------------------


@pytest.fixture(params=["any-L", "any-W", "L-L", "W-W", "T-T"])
def route(request: pytest.FixtureRequest, listeners: dict[str, int]) -> tuple[str, str, str]:
    """URL and dialect of the client, dialect of the listener."""
    spoken, _, listener = request.param.partition("-")
    scheme = "seneca+tcp" if listener == "T" else "seneca"
    return f"{scheme}://127.0.0.1:{listeners[listener]}", spoken, listener


def test_a_real_listener_answers(route: tuple[str, str, str]) -> None:
    url, dialect, _ = route

    async def scenario() -> None:
        async with connect(url, wire="seneca", dialect=dialect) as client:
            assert await client.act("role:math,cmd:sum", {"a": 1, "b": 2}) == {"sum": 3}
            assert await client.act({"role": "math", "cmd": "range", "count": 3}) == [0, 1, 2]
            assert await client.act("role:math,cmd:nothing") is None
            data = {"Größe": ["\U0001f6eb", None, 1.5]}
            assert await client.act("role:math,cmd:echo", {"data": data}) == {"data": data}

    asyncio.run(scenario())


def test_a_failure_of_a_real_listener_has_its_own_code_and_words(route: tuple[str, str, str]) -> None:
    url, dialect, _ = route

    async def scenario() -> None:
        async with connect(url, wire="seneca", dialect=dialect) as client:
            with pytest.raises(RemoteError) as failed:
                await client.act("role:math,cmd:div", {"a": 1, "b": 0})
            assert (failed.value.reported, failed.value.text) == ("div_zero", "division by zero")
            assert failed.value.details["a"] == 1
            with pytest.raises(RemoteError) as nobody:
                await client.act("role:nobody")
            assert nobody.value.reported == "act_not_found"

    asyncio.run(scenario())


def test_custom_data_reaches_a_real_listener(route: tuple[str, str, str]) -> None:
    url, dialect, listener = route

    async def scenario() -> None:
        async with connect(url, wire="seneca", dialect=dialect) as client:
            answer = await client.ask("role:math,cmd:custom", custom={"tenant": "t1"})
            # A listener of L that is sent both forms reads neither place where W has it.
            if (dialect, listener) != ("any", "L"):
                assert answer.result == {"got": {"tenant": "t1"}}
            assert answer.custom == {"tenant": "t1"} | ({"region": "eu"} if listener == "W" else {})

    asyncio.run(scenario())


def test_a_message_that_nobody_has_to_answer_reaches_a_real_listener(
    route: tuple[str, str, str], node: NodePeers
) -> None:
    url, dialect, listener = route
    word = new_id()

    async def scenario() -> None:
        async with connect(url, wire="seneca", dialect=dialect) as client:
            await client.send("role:math,cmd:echo", {"data": word})

    asyncio.run(scenario())
    wait_until(lambda: any(kept.message.get("data") == word for kept in node.kept(f"listener-{listener}")))


def test_many_calls_at_once_get_their_own_answers(route: tuple[str, str, str]) -> None:
    url, dialect, _ = route

    async def scenario() -> None:
        async with connect(url, wire="seneca", dialect=dialect) as client:
            calls = [client.act("role:math,cmd:echo", {"data": n}) for n in range(200)]
            assert await asyncio.gather(*calls) == [{"data": n} for n in range(200)]

    asyncio.run(scenario())


# ---- real clients, our host -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_client_calls_our_service_directly(node: NodePeers, dialect: Dialect) -> None:
    name = f"direct-{dialect}-{new_id()}"

    async def scenario() -> list[Outcome]:
        async with hosted(math_service("math")) as host:
            node.client(name, dialect, port_of(host.tcp_url if dialect == "T" else host.url))

            def call() -> list[Outcome]:
                asked: list[dict[str, Any]] = [
                    {"cmd": "sum", "a": 1, "b": 2}, {"cmd": "range", "count": 2}, {"cmd": "nothing"},
                    {"cmd": "custom", "custom$": {"tenant": "t1"}}, {"cmd": "div", "a": 1, "b": 0}, {"cmd": "unknown"},
                ]  # fmt: skip
                return [node.act(name, role="math", **message) for message in asked]

            return await asyncio.to_thread(call)

    total, listed, nothing, custom, failed, unknown = asyncio.run(scenario())
    node.close_instance(name)
    assert total.result == {"sum": 3}
    assert listed.result == [0, 1]
    assert nothing == Outcome(None, {}, None)
    assert custom.result == {"got": {"tenant": "t1"}}
    assert custom.custom == {"tenant": "t1"} | ({"region": "eu"} if dialect == "W" else {})
    assert failed.error is not None
    assert unknown.error is not None
    told = [error["payload"] if dialect == "L" else error for error in (failed.error, unknown.error)]
    assert told[0]["code"] == ("div_zero" if dialect == "W" else "act_execute")
    assert "division by zero" in told[0]["message"]
    assert told[1]["code"] == "act_not_found"


# ---- our client, our host -------------------------------------------------------------------------------------------


@pytest.fixture(params=["seneca", "seneca+tcp"])
def scheme(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def test_results_of_all_kinds(scheme: str) -> None:
    async def scenario() -> None:
        async with called(math_service("math"), scheme) as client:
            assert await client.act("role:math,cmd:sum", {"a": 1, "b": 2}) == {"sum": 3}
            assert await client.act("role:math,cmd:range", {"count": 2}) == [0, 1]
            assert await client.act("role:math,cmd:nothing") is None
            big = "é" * 100_000
            assert await client.act("role:math,cmd:echo", {"data": big}) == {"data": big}

    asyncio.run(scenario())


def test_a_failure_keeps_code_words_and_details(scheme: str) -> None:
    async def scenario() -> None:
        async with called(math_service("math"), scheme) as client:
            with pytest.raises(RemoteError) as failed:
                await client.act("role:math,cmd:div", {"a": 1, "b": 0})
            assert (failed.value.reported, failed.value.text) == ("div_zero", "division by zero")
            assert failed.value.details == {"a": 1}

    asyncio.run(scenario())


def test_an_answer_tells_who_gave_it_and_how_the_message_went(scheme: str) -> None:
    async def scenario() -> None:
        async with called(math_service("math"), scheme, name="A") as client:
            began = time.time_ns() // 1_000_000
            answer = await client.ask("role:math,cmd:sum", {"a": 1, "b": 2})
            (hop,) = answer.trk
            assert (answer.rid, hop.sid, hop.rid) == ("B", "A", "B")
            assert len(hop.tms) == 4
            times = [began, *hop.tms, time.time_ns() // 1_000_000]
            assert times == sorted(times, key=lambda at: at or 0)

    asyncio.run(scenario())


def test_custom_data_is_returned_as_the_action_left_it(scheme: str) -> None:
    async def scenario() -> None:
        async with called(math_service("math"), scheme) as client:
            answer = await client.ask("role:math,cmd:custom", custom={"tenant": "t1"})
            assert answer.result == {"got": {"tenant": "t1"}}
            assert answer.custom == {"tenant": "t1", "region": "eu"}

    asyncio.run(scenario())


def chained(further: SenecaClient) -> SenecaService:
    """A service that asks others before it answers."""
    service = SenecaService()

    @service.action("order:price")
    async def price(message: ActionMessage) -> dict[str, Any]:
        message.custom["seen"] = "B"
        tax = await further.act("tax:rate", {"country": "IE"})
        return {"price": 10 * (1 + tax["rate"]), "cid": tax["cid"], "custom": tax["custom"], "trk": tax["trk"]}

    @service.action("order:lost")
    async def lost(message: ActionMessage) -> dict[str, Any]:
        with pytest.raises(RequestTimeoutError):
            await further.act("tax:slow", timeout_ms=50)
        await further.act("tax:rate", {"country": "IE"})
        return {}

    return service


def taxes() -> SenecaService:
    service = SenecaService()

    @service.action("tax:rate")
    def rate(message: ActionMessage) -> dict[str, Any]:
        trk = [[hop.sid, hop.rid, hop.mid, len(hop.tms)] for hop in message.trk]
        return {"rate": 0.5, "cid": message.cid, "custom": message.custom, "trk": trk}

    @service.action("tax:slow")
    async def slow(message: ActionMessage) -> None:
        await asyncio.sleep(0.5)

    return service


@asynccontextmanager
async def chain() -> AsyncIterator[SenecaClient]:
    """A calls B, B calls C."""
    async with (
        hosted(taxes(), "C") as c,
        connect(f"seneca://127.0.0.1:{port_of(c.url)}", wire="seneca", name="B") as further,
        hosted(chained(further), "B") as b,
        connect(f"seneca://127.0.0.1:{port_of(b.url)}", wire="seneca", name="A") as client,
    ):
        yield client


def test_what_is_sent_while_working_belongs_to_the_flow() -> None:
    async def scenario() -> None:
        async with chain() as client:
            answer = await client.ask("order:price", custom={"tenant": "t1"})
            first, second = answer.trk
            assert answer.result["price"] == 15
            assert (first.sid, first.rid, len(first.tms)) == ("A", "B", 4)
            assert (second.sid, second.rid, len(second.tms)) == ("B", "C", 4)
            # What C saw: its ancestors with the times that were known then, and its own entry.
            assert answer.result["trk"] == [["A", "B", first.mid, 2], ["B", "C", second.mid, 2]]
            assert answer.result["custom"] == {"tenant": "t1", "seen": "B"}
            assert first.mid != second.mid

    asyncio.run(scenario())


def test_a_flow_keeps_its_correlation_id_and_two_flows_have_two() -> None:
    async def scenario() -> None:
        async with chain() as client:
            answers = await asyncio.gather(*(client.act("order:price") for _ in range(20)))
            assert len({answer["cid"] for answer in answers}) == 20

    asyncio.run(scenario())


def test_a_request_without_answer_is_listed_with_the_times_known() -> None:
    async def scenario() -> None:
        async with chain() as client:
            answer = await client.ask("order:lost")
            assert [(hop.sid, hop.rid, len(hop.tms)) for hop in answer.trk] == [
                ("A", "B", 4),
                ("B", "", 1),
                ("B", "C", 4),
            ]

    asyncio.run(scenario())


def test_a_message_without_answer_is_accepted_when_the_action_is_done(scheme: str) -> None:
    service, seen = SenecaService(), list[tuple[Any, bool]]()

    @service.action("evt:saved")
    async def saved(message: ActionMessage) -> None:
        await asyncio.sleep(0)
        seen.append((message["id"], message.sync))

    async def scenario() -> None:
        async with called(service, scheme) as client:
            await client.send("evt:saved", {"id": 9})
            await asyncio.to_thread(wait_until, lambda: seen, 5)

    asyncio.run(scenario())
    assert seen == [(9, False)]


def test_a_refused_message_says_so_over_http() -> None:
    async def scenario() -> None:
        async with called(SenecaService()) as client:
            with pytest.raises(RemoteError) as refused:
                await client.send("evt:saved")
            assert refused.value.reported == "act_not_found"

    asyncio.run(scenario())


def test_an_action_that_raises_is_a_failure_and_no_result_is_made_up(scheme: str) -> None:
    service = SenecaService()

    @service.action("a:1")
    def boom(message: ActionMessage) -> None:
        raise KeyError("x")

    @service.action("a:2")
    def scalar(message: ActionMessage) -> int:
        return 7

    async def scenario() -> None:
        async with called(service, scheme) as client:
            for pattern, code in (("a:1", "act_execute"), ("a:2", "result_not_objarr")):
                with pytest.raises(RemoteError) as failed:
                    await client.act(pattern)
                assert failed.value.reported == code

    asyncio.run(scenario())


def test_the_pattern_that_wins_is_senecas_rule() -> None:
    service = SenecaService()
    for pattern in ("a:1", "b:1,c:1", "d:*", "d:x"):
        service.add(pattern, lambda message, pattern=pattern: {"won": pattern})  # type: ignore[misc]
    assert service.pins == ["a:1", "b:1,c:1", "d:*", "d:x"]

    async def scenario() -> None:
        async with called(service) as client:
            assert await client.act("a:1,b:1,c:1") == {"won": "a:1"}
            assert await client.act("d:y") == {"won": "d:*"}
            assert await client.act("d:x") == {"won": "d:x"}

    asyncio.run(scenario())


def test_the_same_id_twice_is_one_action_and_one_result() -> None:
    service, ran = SenecaService(), list[int]()

    @service.action("a:1")
    async def slowly(message: ActionMessage) -> dict[str, int]:
        ran.append(1)
        await asyncio.sleep(0.2)
        return {"run": len(ran)}

    async def scenario() -> list[Answer]:
        async with hosted(service) as host:
            document = seed({"a": 1}, mid="m1", cid="c1")

            def call() -> Answer:
                with Http(port_of(host.url)) as http:
                    return http.post(document)

            first, second = await asyncio.gather(asyncio.to_thread(call), asyncio.to_thread(call))
            return [first, second, await asyncio.to_thread(call)]

    assert [answer.data for answer in asyncio.run(scenario())] == [{"run": 1}] * 3
    assert ran == [1]


def test_a_message_without_answer_that_failed_is_tried_again_when_it_comes_again() -> None:
    service, ran = SenecaService(), list[int]()

    @service.action("a:1")
    def second_time(message: ActionMessage) -> None:
        ran.append(1)
        if len(ran) == 1:
            raise RemoteError("not_yet", "come again")

    async def scenario() -> list[int]:
        async with hosted(service) as host:
            document = seed({"a": 1}, sync=False, mid="m1", cid="c1")

            def call() -> int:
                with Http(port_of(host.url)) as http:
                    return http.post(document).status

            return [await asyncio.to_thread(call) for _ in range(3)]

    assert asyncio.run(scenario()) == [500, 202, 202]
    assert ran == [1, 1]


# ---- the host on the wire -------------------------------------------------------------------------------------------


def test_the_host_answers_in_the_dialect_it_was_asked_in() -> None:
    async def scenario() -> None:
        async with hosted(math_service("math")) as host:
            await asyncio.to_thread(check, port_of(host.url), port_of(host.tcp_url))

    def check(port: int, tcp_port: int) -> None:
        message = {"role": "math", "cmd": "sum", "a": 1, "b": 2}
        with Http(port) as http:
            assert http.post(message).json() == {"sum": 3}
            legacy = http.post({**message, "custom$": {}}, legacy_headers("m1", "c1", "A"))
            assert legacy.json() == {"sum": 3}
            assert (legacy.headers["seneca-id"], legacy.headers["seneca-origin"]) == ("m1/c1", "A")
            assert http.post(web(message)).meta["remote"] is True
            assert http.post(seed(message)).meta["res"] is True
            assert http.post(message, path="/other").status == 404
            assert http.post(b"[]").status == 400
            http.announce(9 << 20)
            assert http.read().status == 413
        with Lines(tcp_port) as lines:
            assert lines.ask(line(message))["res"] == {"sum": 3}
            assert lines.ask(seed(message))["meta$"]["res"] is True
            lines.send(b"nonsense")
            with pytest.raises(EOFError):
                lines.receive()

    asyncio.run(scenario())


def test_the_host_answers_pipelined_requests_in_order_and_closes_when_asked() -> None:
    async def scenario() -> bytes:
        async with hosted(math_service("math")) as host:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(host.url))
            for number in range(3):
                body = json.dumps({"role": "math", "cmd": "echo", "data": number}).encode()
                last = b"connection: close\r\n" if number == 2 else b""
                writer.write(b"POST /act HTTP/1.1\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), last, body))
            writer.write(b"POST /act HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
            async with asyncio.timeout(10):
                found = await reader.read()
            writer.close()
            return found

    found = asyncio.run(scenario())
    assert [found.index(b'{"data":%d}' % number) for number in range(3)] == sorted(
        found.index(b'{"data":%d}' % number) for number in range(3)
    )
    assert found.count(b"HTTP/1.1 ") == 3


# ---- life -----------------------------------------------------------------------------------------------------------


def test_nobody_there_is_said_at_once(scheme: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectionLostError):
            await connect(f"{scheme}://127.0.0.1:{free_port_base()}").open()

    asyncio.run(scenario())


def test_no_answer_in_time_is_said(scheme: str) -> None:
    async def scenario() -> None:
        async with hosted(taxes()) as host:
            port = port_of(host.tcp_url if scheme == "seneca+tcp" else host.url)
            async with connect(f"{scheme}://127.0.0.1:{port}", wire="seneca") as client:
                began = time.monotonic()
                with pytest.raises(RequestTimeoutError):
                    await client.act("tax:slow", timeout_ms=100)
                assert time.monotonic() - began < 5

    asyncio.run(scenario())


def test_a_kept_connection_that_was_closed_meanwhile_costs_no_call() -> None:
    """The server closes after each answer without saying so."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n{"a":1}')
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, connect(f"seneca://127.0.0.1:{port}", wire="seneca", dialect="L") as client:
            for _ in range(20):
                assert await client.act("role:x") == {"a": 1}

    asyncio.run(scenario())


def test_a_connection_that_breaks_in_the_middle_of_an_answer_is_an_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 70\r\n\r\n{")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, connect(f"seneca://127.0.0.1:{port}", wire="seneca") as client:
            with pytest.raises(ConnectionLostError):
                await client.act("role:x")

    asyncio.run(scenario())


def test_lines_come_back_after_a_loss() -> None:
    async def scenario() -> None:
        base = free_port_base()
        performer = Performer(math_service("math"), "B")
        host = await SenecaHost(performer).listen("127.0.0.1", base, base + 1)
        async with connect(f"seneca+tcp://127.0.0.1:{base + 1}", wire="seneca", backoff_s=0.01) as client:
            assert await client.act("role:math,cmd:sum", {"a": 1, "b": 2}) == {"sum": 3}
            await host.close()
            async with await SenecaHost(performer).listen("127.0.0.1", base, base + 1):
                assert await client.act("role:math,cmd:sum", {"a": 2, "b": 2}) == {"sum": 4}

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_named() -> None:
    async def scenario() -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            with pytest.raises(ConfigError, match="cannot listen on"):
                await SenecaHost(Performer(SenecaService(), "B")).listen("127.0.0.1", holder.getsockname()[1])

    asyncio.run(scenario())


def test_texts_that_are_no_pattern_and_dialects_that_are_none_are_refused() -> None:
    async def scenario() -> None:
        async with called(math_service("math")) as client:
            with pytest.raises(PatternTextError):
                await client.act("a:x y")
            with pytest.raises(PatternTextError):
                SenecaService().add("a", lambda message: None)

    asyncio.run(scenario())
    with pytest.raises(ConfigError, match="dialect"):
        connect("seneca://127.0.0.1:1", dialect="T")
    with pytest.raises(ConfigError, match="dialect"):
        connect("seneca+tcp://127.0.0.1:1", dialect="W")


# ---- the return path -------------------------------------------------------------------------------------------------


def test_an_answer_may_come_by_the_return_path_instead() -> None:
    """Stands for a bus that holds no call: 202, and the answer a moment later, twice; then one nobody waits for."""
    told: list[int] = []

    def bring(got: Got) -> None:
        document = seed_answer(got, {"late": True}, "B")
        urn = got.meta["rtn"]["urn"]
        with Http(int(urn.split(":")[2].split("/")[0])) as http:
            stranger = {**document, "meta$": {**document["meta$"], "mid": "other"}}
            for body, path in (
                (document, "/rtn"),
                (document, "/rtn"),
                (stranger, "/rtn"),
                (b"[]", "/rtn"),
                (document, "/"),
            ):
                told.append(http.post(body, path=path).status)

    def react(got: Got) -> tuple[int, Any]:
        threading.Thread(target=bring, args=(got,)).start()
        return 202, {}

    async def scenario(port: int) -> None:
        async with connect(
            f"seneca://127.0.0.1:{port}", wire="seneca", name="A", returns="http://127.0.0.1:0/rtn"
        ) as client:
            answer = await client.ask("role:report")
            assert (answer.result, answer.rid) == ({"late": True}, "B")
            assert [(hop.sid, hop.rid, len(hop.tms)) for hop in answer.trk] == [("A", "B", 4)]
            await asyncio.to_thread(wait_until, lambda: len(told) == 5)

    with Service(react) as service:
        asyncio.run(scenario(service.port))
    assert told == [200, 200, 404, 400, 404]


def test_an_answer_that_does_not_come_by_the_return_path_either_is_too_late() -> None:
    async def scenario(port: int) -> None:
        async with connect(f"seneca://127.0.0.1:{port}", wire="seneca", returns="http://127.0.0.1:0") as client:
            with pytest.raises(RequestTimeoutError):
                await client.act("role:report", timeout_ms=100)
        async with connect(f"seneca://127.0.0.1:{port}", wire="seneca") as client:
            with pytest.raises(RemoteError, match="no_result"):
                await client.act("role:report")

    with Service(lambda got: (202, {})) as service:
        asyncio.run(scenario(service.port))
    with pytest.raises(ConfigError, match="returns"):
        connect("seneca://127.0.0.1:1", returns="rtn")


# ---- as the other wires have it -------------------------------------------------------------------------------------


def test_publish_and_request_take_payloads(scheme: str) -> None:
    service, seen = SenecaService(), list[dict[str, Any]]()

    @service.action("evt:saved")
    def saved(message: ActionMessage) -> None:
        seen.append(message.data)

    @service.action("what:came")
    def came(message: ActionMessage) -> dict[str, Any]:
        return message.data

    async def scenario() -> None:
        async with called(service, scheme) as client:
            await client.publish("evt:saved", {"id": 1})
            assert await client.publish_many("evt:saved", [b'{"id":2}', "text", b"[3]", b"", b"\xff"]) == 5
            assert json.loads(await client.request("what:came", '{"id":4}')) == {"what": "came", "id": 4}
            await asyncio.to_thread(wait_until, lambda: len(seen) == 6, 5)

    asyncio.run(scenario())
    assert seen[0] == {"evt": "saved", "id": 1}
    rest = [{key: value for key, value in data.items() if key != "evt"} for data in seen[1:]]
    assert sorted(rest, key=str) == sorted(
        [{"id": 2}, {"data": "text"}, {"data": [3]}, {}, {"data": "\ufffd"}], key=str
    )


def test_the_blocking_client_hosts_and_calls() -> None:
    with connect_sync(f"seneca://127.0.0.1:{_listening()}", wire="seneca", dialect="S", name="A") as outer:
        service = math_service("math")
        with outer.host(service, tcp_port=0, attach=False) as host:
            with connect_sync(f"seneca://127.0.0.1:{port_of(host.url)}", wire="seneca") as client:
                assert client.act("role:math,cmd:sum", {"a": 1, "b": 2}) == {"sum": 3}
                assert client.ask("role:math,cmd:custom", custom={"t": 1}).custom == {"t": 1, "region": "eu"}
                client.send("role:math,cmd:nothing")
                client.heartbeat()
                assert client.request("role:math,cmd:range", {"count": 2}) == b"[0,1]"
            assert host.tcp_url.startswith("tcp://127.0.0.1:")


def _listening() -> int:
    """A port where connections are taken and nothing is said."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    _held.append(listener)
    port: int = listener.getsockname()[1]
    return port


_held: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    while _held:
        _held.pop().close()


def test_a_call_made_by_a_blocking_action_belongs_to_the_flow() -> None:
    further = SenecaService()
    further.add("tax:rate", lambda message: {"cid": message.cid})
    service = SenecaService()
    with (
        connect_sync(f"seneca://127.0.0.1:{_listening()}", wire="seneca", name="C") as third,
        third.host(further, attach=False) as far,
        connect_sync(_seneca(far.url), wire="seneca", name="B") as second,
    ):

        @service.action("order:price")
        def price(message: ActionMessage) -> dict[str, Any]:
            return {"same": second.act("tax:rate")["cid"] == message.cid}

        with (
            second.host(service, attach=False) as near,
            connect_sync(_seneca(near.url), wire="seneca", name="A") as first,
        ):
            answer = first.ask("order:price")
    assert answer.result == {"same": True}
    assert [(hop.sid, hop.rid) for hop in answer.trk] == [("A", "B"), ("B", "C")]


def _seneca(url: str) -> str:
    return f"seneca://127.0.0.1:{port_of(url)}"
