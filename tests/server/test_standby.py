from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

from raceway.net.sockets import bind
from raceway.server.standby import STYLE, standby_port
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


def test_a_browser_is_told_where_the_console_is() -> None:
    """Text of other nodes stays text."""
    said = 'this node is a standby; <i>"one"</i> (http://one.example:8600) owns the lane (epoch 7)'

    async def play() -> None:
        port = free_port_base()
        async with standby_port(bind("127.0.0.1", port), lambda: said):
            status, headers, text = await asyncio.to_thread(look, port, "/")
            assert (status, headers["content-type"]) == (503, "text/html; charset=utf-8")
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "This node is a standby; &lt;i&gt;&quot;one&quot;&lt;/i&gt; (<a" in text
            assert '<a href="http://one.example:8600">http://one.example:8600</a>) owns' in text
            status, headers, _ = await asyncio.to_thread(look, port, STYLE)
            assert (status, headers["content-type"]) == (200, "text/css; charset=utf-8")
            assert (await asyncio.to_thread(ask, port, "/"))[1]["reason"] == said, "programs read JSON"

    asyncio.run(play())


def look(port: int, path: str) -> tuple[int, dict[str, str], str]:
    """What a browser gets."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"accept": "text/html,*/*;q=0.8"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, dict(refusal.headers), refusal.read().decode()
