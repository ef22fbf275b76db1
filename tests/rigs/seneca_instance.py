"""An instance of a Seneca system as a process of its own: `python -m tests.rigs.seneca_instance NAME URL CONSOLE`.

The three flows of Seneca's protocol text, with its names: B answers `{a: 1}` with `{x: 1}`, keeps `{a: 2}`, and asks
C for `{b: 1}` before it answers `{a: 3}` with `{x: 2}`; C answers that with `{y: 1}` and keeps `{a: 2}` too. What an
instance sees is printed, one JSON document per line. A line on standard input is a message to send: as A does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from raceway.client import ActionMessage, SenecaClient, SenecaService, connect
from raceway.model.envelope import Hop


def say(**seen: Any) -> None:
    print(json.dumps(seen), flush=True)


def shown(trk: tuple[Hop, ...]) -> list[dict[str, Any]]:
    return [{"sid": hop.sid, "rid": hop.rid, "mid": hop.mid, "tms": list(hop.tms)} for hop in trk]


def service_of(name: str, bus: SenecaClient) -> SenecaService:
    service = SenecaService()

    def note(message: ActionMessage) -> None:
        say(received=message.data, mid=message.mid, cid=message.cid, sync=message.sync, trk=shown(message.trk))

    def keep(message: ActionMessage) -> None:
        note(message)

    def answer_first(message: ActionMessage) -> dict[str, int]:
        note(message)
        return {"x": 1}

    async def ask_further(message: ActionMessage) -> dict[str, int]:
        note(message)
        assert await bus.act({"b": 1}) == {"y": 1}
        return {"x": 2}

    def answer_second(message: ActionMessage) -> dict[str, int]:
        note(message)
        return {"y": 1}

    if name in ("B", "C"):
        service.add("a:2", keep)
    if name == "B":
        service.add("a:1", answer_first)
        service.add("a:3", ask_further)
    if name == "C":
        service.add("b:1", answer_second)
    return service


async def obey(bus: SenecaClient, order: dict[str, Any]) -> None:
    if order["sync"]:
        answer = await bus.ask(order["message"])
        say(result=answer.result, rid=answer.rid, trk=shown(answer.trk))
    else:
        await bus.send(order["message"])
        say(sent=order["message"])


async def main(name: str, url: str, console: str) -> None:
    async with connect(url, wire="seneca", name=name, console=console) as bus, await bus.host(service_of(name, bus)):
        say(ready=name)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await obey(bus, json.loads(line))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
