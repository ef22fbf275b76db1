"""The actions of `tests/npm/peers.js`, hosted by `raceway.client`: callers must not be able to tell the difference.

As a process of its own, until its standard input ends: `python -m tests.rigs.seneca_math ROLE URL CONSOLE`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from raceway.client import ActionMessage, SenecaService
from raceway.client.sync import connect
from raceway.errors import RemoteError
from raceway.wires.seneca.client.actions import ActionHandler


def math_service(role: str, kept: list[ActionMessage] | None = None) -> SenecaService:
    """What comes in is added to `kept`."""
    service = SenecaService()
    seen: list[ActionMessage] = [] if kept is None else kept

    def action(cmd: str) -> Callable[[ActionHandler], ActionHandler]:
        def register(handler: ActionHandler) -> ActionHandler:
            def keeping(message: ActionMessage) -> Any:
                seen.append(message)
                return handler(message)

            service.add({"role": role, "cmd": cmd}, keeping)
            return handler

        return register

    @action("sum")
    def add(message: ActionMessage) -> dict[str, Any]:
        return {"sum": message["a"] + message["b"]}

    @action("div")
    def divide(message: ActionMessage) -> dict[str, Any]:
        if message["b"] == 0:
            raise RemoteError("div_zero", "division by zero", {"a": message["a"]})
        return {"q": message["a"] / message["b"]}

    @action("range")
    def count(message: ActionMessage) -> list[int]:
        return list(range(message["count"]))

    @action("nothing")
    def nothing(message: ActionMessage) -> None:
        return None

    @action("echo")
    def echo(message: ActionMessage) -> dict[str, Any]:
        return {"data": message["data"]}

    @action("slow")
    def slow(message: ActionMessage) -> dict[str, Any]:
        time.sleep(message["ms"] / 1000)
        return {"waited": message["ms"]}

    @action("custom")
    def custom(message: ActionMessage) -> dict[str, Any]:
        got = dict(message.custom)
        message.custom["region"] = "eu"
        return {"got": got}

    return service


def main(role: str, url: str, console: str) -> None:
    with connect(url, wire="seneca", console=console) as bus, bus.host(math_service(role)):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
