"""A small airport on all four wires, for tests that look at the console: traffic that goes on until it is told to stop,
messages that can be found again, and text that a careless page would run.

    with airport() as port:
        port.server, port.trace_id, port.needle …
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from raceway.client import DanubeClient, MbClient, SenecaClient, ZbusClient, connect
from raceway.errors import RacewayError, RemoteError
from tests.schema_rest import bind, call, register
from tests.server import Door, Server, running_server, wait_until

# Would set a mark if anything of it were taken for markup.
EVIL = "<img src=x onerror=\"document.body.dataset.owned='1'\"><script>document.body.dataset.owned='1'</script>"
# Topics are letters, digits and dots, so the bus refuses such a name; subjects, services and subscriptions may be
# anything.
EVIL_SUBJECT = "evil <b onclick=alert(1)>x<"
TURN_S = 0.1

BOARDING = {"type": "object", "properties": {"flight": {"type": "string"}, "seat": {"type": "string"}},
            "required": ["flight"]}  # fmt: skip
BOARDING_2 = {"type": "object", "properties": {"flight": {"type": "string"}, "seat": {"type": "string"},
              "gate": {"type": "string", "default": "A1"}}, "required": ["flight"]}  # fmt: skip


class Airport:
    """What is known of the traffic. `turns` counts rounds that were sent."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.needle = "needle-4711"
        self.turns = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._prepare()
        self._thread.start()
        wait_until(lambda: self.turns >= 20 or self.failure, 30, "twenty rounds of traffic")
        assert self.failure is None, self.failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)

    def ask(self, path: str) -> Any:
        status, body = self.server.http(path)
        assert status == 200, body
        return json.loads(body)

    @property
    def trace_id(self) -> str:
        """The correlation id of a conversation over several wires that is complete."""
        found = self.ask("/api/messages?kind=request&topic=baggage.tag&limit=20")["messages"]
        return str(found[-1]["correlation_id"])

    # ---- what stands before the traffic ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        register(self.server, "boarding", BOARDING)
        register(self.server, "boarding", BOARDING_2)
        bind(self.server, "gate.boarding", "boarding", "enforce")
        for payload in (b'{"seat": 17}', EVIL.encode()):
            assert call(self.server, "POST", "/topics/gate.boarding", payload).status == 422
        headers = {"x-evil": EVIL, "x-kind": "evil"}
        body = json.dumps({"text": EVIL, EVIL: 1}).encode()
        assert call(self.server, "POST", f"/topics/{quote(EVIL, safe='')}", body).status in (400, 404)
        answer = call(self.server, "POST", "/topics/evil.events", body, **headers)
        assert answer.status == 201, answer
        register(self.server, EVIL_SUBJECT, {"type": "object", "title": EVIL})
        needle = json.dumps({"order": {"lines": [{"sku": self.needle, "count": 3}]}}).encode()
        headers = {"x-order": self.needle}
        assert call(self.server, "POST", "/topics/shop.orders", needle, **headers).status == 201
        self._write_pipeline()

    def _write_pipeline(self) -> None:
        """What a pipeline would leave behind: a table and a word on its progress."""
        folder = self.server.data / "pipeline"
        part = folder / "tables" / "gold" / "topic_stats" / "bucket=20261115T1200"
        part.mkdir(parents=True)
        rows = {"topic": ["flight.updates", EVIL], "messages": [1200, 1], "payload": [b"plain", b"\xff\xfe"]}
        pq.write_table(pa.table(rows), part / "data.parquet")
        progress = {"pid": 2**22 + 1, "state": "running", "format": "parquet", "position": 80, "first_position": 0,
                    "committed": 99, "lag": 20, "batches": 2, "rows": 80, "updated_us": 1_700_000_000_000_000,
                    "last_batch": {"number": 2, "first": 40, "last": 79, "rows": 40, "seconds": 0.8},
                    "tables": {"gold.topic_stats": {"rows": 2, "parts": 1}}}  # fmt: skip
        (folder / "progress.json").write_text(json.dumps(progress))

    # ---- the traffic -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
        except BaseException as error:  # told to whoever waits
            self.failure = error

    async def _play(self) -> None:
        async with AsyncExitStack() as stack:

            async def enter(scheme: str, door: Door, **options: Any) -> Any:
                url = f"{scheme}://127.0.0.1:{self.server.port(door)}"
                return await stack.enter_async_context(connect(url, **options))

            desk, board = await enter("mb", "tcp"), await enter("mb+ws", "websocket")
            gates, belts = await enter("danube", "danube"), await enter("zbus", "zbus")
            kiosk = await enter("seneca", "seneca", name="kiosk")
            await self._serve(desk, board, belts)
            await self._subscribe(gates)
            while not self._stop.is_set():
                await self._turn(kiosk, gates, belts, board)
                self.turns += 1
                await asyncio.sleep(TURN_S)

    async def _serve(self, desk: MbClient, board: MbClient, belts: ZbusClient) -> None:
        await desk.register("desk", "gives out seats")
        await board.register(f"board {EVIL_SUBJECT}", EVIL)
        await board.subscribe("flight.#")
        await belts.create_queue("baggage.tag")
        await belts.create_queue("baggage.events")
        await belts.serve("baggage.tag", lambda delivery: b'{"tag": "RW-0017"}')

        async def seat(message: Any) -> Any:
            wish = message.json()
            if wish.get("seat") == "13F":
                raise RemoteError("NO_SEAT", "there is no row 13")
            tag = await desk.request("baggage.tag", {"flight": wish["flight"]})
            await desk.publish("flight.updates", {"flight": wish["flight"], "seat": wish["seat"]})
            return {"seat": wish["seat"], **json.loads(tag)}

        await desk.serve("checkin.seat", seat)

    async def _subscribe(self, gates: DanubeClient) -> None:
        producer = await gates.producer("gate.boarding", "gate-A1", subject="boarding")
        await producer.send({"flight": "RW101"})
        consumer = await gates.subscribe("gate.boarding", "display", type="shared", name="display-1")
        self._slow = consumer  # reads nothing: what it was sent stays in flight
        await gates.subscribe("gate.boarding", f"archive {EVIL_SUBJECT}", type="shared", name="archive-1")
        self._gate = producer

    async def _turn(self, kiosk: SenecaClient, gates: DanubeClient, belts: ZbusClient, board: MbClient) -> None:
        number = self.turns
        seat = "13F" if number % 10 == 9 else f"{number % 30 + 1}C"
        with suppress(RacewayError):  # row 13
            await kiosk.act("role:checkin,cmd:seat", {"flight": f"RW{number % 4}01", "seat": seat})
        await self._gate.send({"flight": "RW101", "seat": seat}, attributes={"x-gate": "A1", "x-note": EVIL})
        await belts.publish("baggage.events", {"bag": number, "belt": number % 6}, headers={"x-belt": str(number % 6)})


@contextmanager
def airport() -> Iterator[Airport]:
    with running_server() as server:
        port = Airport(server)
        port.start()
        try:
            yield port
        finally:
            port.stop()
