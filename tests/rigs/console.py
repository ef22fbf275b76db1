"""A small airport on all four wires, for tests that look at the console: traffic that goes on until it is told to stop,
messages that can be found again, a printer that fails, and, once they are let in, strangers whose text a careless page
would run.

    with airport() as port:
        port.server, port.trace_id, port.needle …
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import math
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import write_deltalake

from raceway.client import DanubeClient, DanubeConsumer, MbClient, SenecaClient, SenecaService, ZbusClient, connect
from raceway.errors import RacewayError, RemoteError
from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    DeadLetter,
    Fixed,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionFailurePolicy,
    SubscriptionResponse,
)
from tests.rigs.danube_wire import danube_wire
from tests.rigs.schema_rest import bind, call, register
from tests.rigs.server import Door, Server, running_server, wait_until

# Would set a mark if anything of it were taken for markup.
EVIL = "<img src=x onerror=\"document.body.dataset.owned='1'\"><script>document.body.dataset.owned='1'</script>"
# Topics are letters, digits and dots, so the bus refuses such a name; subjects, services and subscriptions may be
# anything.
EVIL_SUBJECT = "evil <b onclick=alert(1)>x<"
# Names of headers are tokens of HTTP, which leaves less to a stranger.
EVIL_HEADER = "x-evil-onerror'"
TURN_S = 0.1
# Rounds of traffic that are there from the beginning, one right after the other.
FIRST_TURNS = 20
# Figures of the console are renewed so often, and pages with them.
LIVE_MS = 100
# There is no such seat, the desk says; on another the printer of boarding passes fails.
NO_SEAT = "13F"
JAMMING = "1C"
DEAD_LETTERS = "gate.jammed"

BOARDING = {"type": "object", "properties": {"flight": {"type": "string"}, "seat": {"type": "string"}},
            "required": ["flight"]}  # fmt: skip
BOARDING_2 = {"type": "object", "properties": {"flight": {"type": "string"}, "seat": {"type": "string"},
              "gate": {"type": "string", "default": "A12"}}, "required": ["flight"]}  # fmt: skip


class Airport:
    """What is known of the traffic. `turns` counts rounds that were sent, `printed` are boarding passes."""

    def __init__(self, server: Server, turn_s: float) -> None:
        self.server = server
        self.needle = "needle-4711"
        self.turns = 0
        self.printed: list[dict[str, Any]] = []
        self.printer_works = False
        self.failure: BaseException | None = None
        self._turn_s = turn_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._prepare()
        self._thread.start()
        wait_until(lambda: self.turns >= FIRST_TURNS or self.failure, 120, "the first rounds of traffic")
        assert self.failure is None, self.failure

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(60)

    def ask(self, path: str) -> Any:
        status, body = self.server.http(path)
        assert status == 200, body
        return json.loads(body)

    @property
    def trace_id(self) -> str:
        """The correlation id of a complete conversation over all wires on which the printer did not fail."""
        found = self.ask("/api/messages?attribute=x-gate&limit=20")["messages"]
        return str([each for each in found if f'"{JAMMING}"' not in each["payload"]][-1]["correlation_id"])

    def light_the_runway(self, lights: int) -> None:
        """So many publishes at once."""
        self._do(self._board.publish_many("runway.lights", [b"on"] * lights, confirm=False))

    def let_strangers_in(self) -> None:
        """Services, subscriptions, subjects, messages and rows of tables whose text is markup."""
        headers = {"x-evil": EVIL, "x-kind": "evil", EVIL_HEADER: "1"}
        body = json.dumps({"text": EVIL, EVIL: 1}).encode()
        assert call(self.server, "POST", f"/topics/{quote(EVIL, safe='')}", body).status in (400, 404)
        assert call(self.server, "POST", "/topics/evil.events", body, **headers).status == 201
        assert call(self.server, "POST", "/topics/gate.boarding", EVIL.encode()).status == 422
        register(self.server, EVIL_SUBJECT, {"type": "object", "title": EVIL})
        self._write_table("gold", "strangers", {"topic": [EVIL], EVIL_SUBJECT: [EVIL]})
        self._do(self._strangers())

    # ---- what stands before the traffic ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        register(self.server, "boarding", BOARDING)
        register(self.server, "boarding", BOARDING_2)
        bind(self.server, "gate.boarding", "boarding", "enforce")
        assert call(self.server, "POST", "/topics/gate.boarding", b"RW101 is boarding").status == 422
        needle = json.dumps({"order": {"lines": [{"sku": self.needle, "count": 3}]}}).encode()
        headers = {"x-order": self.needle}
        assert call(self.server, "POST", "/topics/shop.orders", needle, **headers).status == 201

    def write_pipeline(self) -> None:
        """What a pipeline leaves behind: tables, and a word on its progress."""
        stats: dict[str, list[Any]] = {"topic": ["flight.updates"], "messages": [1200], "payload": [b"\xff\xfe"]}
        self._write_table("gold", "topic_stats", stats)
        hour = datetime.datetime(2026, 11, 14, 9, tzinfo=datetime.UTC)
        calls: dict[str, list[Any]] = {
            "source": ["journal"] * 3, "hour": [hour, hour + datetime.timedelta(hours=1), hour],
            "topic": ["checkin.seat", "checkin.seat", "lounge.door"], "caller": ["kiosk", "kiosk", "desk"],
            "wire": ["seneca", "seneca", "mb"], "callee": ["desk", "desk", "nobody"], "callee_wire": ["mb", "mb", ""],
            "calls": [300, 100, 7], "errors": [10, 0, 0], "timeouts": [2, 1, 7], "late": [0, 1, 0], "open": [0, 0, 0],
            "latency_p50_us": [4000.0, 8000.0, None], "latency_p95_us": [9000.0, 9500.0, None],
            "latency_p99_us": [12000.0, 21000.0, None],
        }  # fmt: skip
        self._write_table("gold", "service_graph", calls)
        progress = {"pid": 2**22 + 1, "state": "running", "position": 80, "first_position": 0,
                    "committed": 99, "lag": 20, "batches": 2, "rows": 80, "updated_us": 1_700_000_000_000_000,
                    "last_batch": {"number": 2, "first": 40, "last": 79, "rows": 40, "seconds": 0.8},
                    "tables": {"gold.topic_stats": {"rows": 2, "parts": 1}}}  # fmt: skip
        (self.server.data / "pipeline" / "progress.json").write_text(json.dumps(progress))

    def _write_table(self, schema: str, name: str, columns: dict[str, list[Any]]) -> None:
        write_deltalake(self.server.data / "pipeline" / "tables" / schema / name, pa.table(columns))

    # ---- the traffic -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
        except BaseException as error:  # told to whoever waits
            self.failure = error

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        """In the thread of the traffic."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _play(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as self._stack:
            desk, board = await self._enter("mb", "tcp"), await self._enter("mb+ws", "websocket")
            self._board = board
            self._gates, belts = await self._enter("danube", "danube"), await self._enter("zbus", "zbus")
            console = f"http://127.0.0.1:{self.server.port('console')}"
            kiosk = await self._enter("seneca", "seneca", name="kiosk", console=console)
            await self._subscribe(self._gates)
            await self._serve(desk, board, belts, kiosk)
            self._readers.append(asyncio.create_task(self._move_bags(belts)))
            while not self._ended.is_set():
                await self._turn(kiosk, board)
                self.turns += 1
                if self.turns > FIRST_TURNS:
                    await asyncio.sleep(self._turn_s / (1 + 0.6 * math.sin(time.monotonic() / 9)))
            for reader in self._readers:
                reader.cancel()

    async def _enter(self, scheme: str, door: Door, **options: Any) -> Any:
        url = f"{scheme}://127.0.0.1:{self.server.port(door)}"
        return await self._stack.enter_async_context(connect(url, **options))

    async def _serve(self, desk: MbClient, board: MbClient, belts: ZbusClient, kiosk: SenecaClient) -> None:
        await desk.register("desk", "gives out seats")
        await board.register("board", "shows departures")
        await board.subscribe("flight.#")
        await belts.create_queue("baggage.tag")
        await belts.create_queue("baggage.events")

        async def tag(delivery: Any) -> bytes:
            await asyncio.sleep(0.004)
            return b'{"tag": "RW-0017"}'

        await belts.serve("baggage.tag", tag)
        loyalty = SenecaService()
        loyalty.add("role:loyalty,cmd:points", lambda message: {"points": 1200})
        await kiosk.host(loyalty)

        async def seat(message: Any) -> Any:
            wish = message.json()
            if wish.get("seat") == NO_SEAT:
                raise RemoteError("NO_SEAT", "there is no row 13")
            label = await desk.request("baggage.tag", {"flight": wish["flight"]})
            points = await desk.request("loyalty.points", {"passenger": wish["passenger"]})
            await self._gate.send(
                {"flight": wish["flight"], "seat": wish["seat"]},
                attributes={"x-gate": "A12", "x-parent-id": message.id},
            )
            await desk.publish("flight.updates", {"flight": wish["flight"], "seat": wish["seat"]})
            return {"seat": wish["seat"], **json.loads(label), **json.loads(points)}

        await desk.serve("checkin.seat", seat)

    async def _subscribe(self, gates: DanubeClient) -> None:
        self._gate = await gates.producer("gate.boarding", "gate-A12", subject="boarding")
        await self._gate.send({"flight": "RW101"})
        # Reads nothing: what it was sent stays in flight.
        await gates.subscribe("gate.boarding", "display", type="shared", name="display-1")
        archive = await gates.subscribe("gate.boarding", "archive", type="shared", name="archive-1")
        printer = await gates.subscribe("gate.boarding", "printer", type="shared", name="printer-1")
        await asyncio.to_thread(self._send_failures_to, DEAD_LETTERS)
        self._readers = [asyncio.create_task(self._read(archive)), asyncio.create_task(self._print(printer))]

    def _send_failures_to(self, topic: str) -> None:
        policy = SubscriptionFailurePolicy(
            max_redelivery_count=1, ack_timeout_ms=30_000, base_redelivery_delay_ms=1, max_redelivery_delay_ms=10,
            backoff_strategy=Fixed, poison_policy=DeadLetter, dead_letter_topic=f"/default/{topic}",
        )  # fmt: skip
        request = SetSubscriptionFailurePolicyRequest(
            topic="/default/gate.boarding", subscription="printer", failure_policy=policy
        )
        with danube_wire(self.server) as wire:
            wire.ask("danube_admin.TopicAdmin/SetSubscriptionFailurePolicy", request, SubscriptionResponse)

    async def _read(self, consumer: DanubeConsumer) -> None:
        async for message in consumer:
            await consumer.ack(message)

    async def _print(self, consumer: DanubeConsumer) -> None:
        async for message in consumer:
            boarding = json.loads(message.payload)
            if boarding.get("seat") == JAMMING and not self.printer_works:
                await consumer.nack(message, reason="paper jam")
            else:
                self.printed.append({**boarding, "attributes": message.attributes})
                await consumer.ack(message)

    async def _move_bags(self, belts: ZbusClient) -> None:
        """In a rhythm of its own."""
        for bag in itertools.count():
            await belts.publish("baggage.events", {"bag": bag, "belt": bag % 6}, headers={"x-belt": str(bag % 6)})
            await asyncio.sleep(self._turn_s / (2 + 1.5 * math.sin(time.monotonic() / 5)))

    async def _turn(self, kiosk: SenecaClient, board: MbClient) -> None:
        number = self.turns
        seat = NO_SEAT if number % 12 == 11 else f"{number % 30 + 1}C"
        wish = {"flight": f"RW{number % 4 + 1}01", "seat": seat, "passenger": f"P{number:05d}"}
        with suppress(RacewayError):  # row 13
            await kiosk.act("role:checkin,cmd:seat", wish)
        if number % 4 == 0:
            await board.publish("flight.updates", {"flight": f"RW{number % 4 + 1}01", "status": "boarding"})
        if number % 8 == 0:
            weather = b'{"wind_kn": 12, "visibility_m": 8000}'
            await asyncio.to_thread(call, self.server, "POST", "/topics/weather.report", weather)
        if number % 50 == 49:  # against the schema
            await asyncio.to_thread(call, self.server, "POST", "/topics/gate.boarding", b'{"flight": 101}')

    async def _strangers(self) -> None:
        board = await self._enter("mb+ws", "websocket")
        await board.register(f"board {EVIL_SUBJECT}", EVIL)
        await board.subscribe("flight.#")
        await self._gates.subscribe("gate.boarding", f"archive {EVIL_SUBJECT}", type="shared", name="evil-1")
        await self._gate.send({"flight": EVIL}, attributes={"x-note": EVIL, EVIL: EVIL})


@contextmanager
def airport(turn_s: float = TURN_S, live_ms: int = LIVE_MS) -> Iterator[Airport]:
    with running_server(RACEWAY_LISTEN__HTTP__LIVE_MS=live_ms, RACEWAY_HISTORY__INTERVAL_S=1) as server:
        port = Airport(server, turn_s)
        port.start()
        try:
            yield port
        finally:
            port.stop()
