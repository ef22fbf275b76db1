from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

from raceway.net.sockets import bind
from raceway.server.standby import standby_port
from tests.rigs.ports import free_port_base


def ask(port: int, path: str) -> tuple[int, dict[str, object]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_a_standby_is_alive_and_not_ready() -> None:
    async def play() -> None:
        port = free_port_base()
        reasons = ["first", "then"]
        async with standby_port(bind("127.0.0.1", port), lambda: reasons[0]):
            status, body = await asyncio.to_thread(ask, port, "/healthz")
            assert (status, body["status"]) == (200, "ok")
            expected = (503, {"status": "standby", "reason": "first", "warnings": []})
            assert await asyncio.to_thread(ask, port, "/readyz") == expected
            reasons.pop(0)
            status, body = await asyncio.to_thread(ask, port, "/topics/a")
            assert (status, body["reason"]) == (503, "then")
        # The port is free again, for the bus.
        bind("127.0.0.1", port).close()

    asyncio.run(play())
