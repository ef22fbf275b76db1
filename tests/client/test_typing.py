"""Type checkers know the methods of every client: mypy accepts and rejects the lines that it should."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raceway import client
from raceway.client import sync
from raceway.client.http import SCHEMES
from raceway.errors import ConfigError, UnsupportedError
from raceway.wires import schemes

ROOT = Path(__file__).parent.parent.parent

# A comment is a part of the error that mypy must report for its line. Other lines must be accepted.
ASYNCHRONOUS = """
from collections.abc import Mapping
import msgspec
from raceway.client import AnyMessage, Delivery, Message, connect

from raceway.client.app import App

class Price(msgspec.Struct): euros: int

def answer_any(message: AnyMessage) -> str: return message.text
def answer_mb(message: Message) -> str: return message.topic
def answer_zbus(delivery: Delivery) -> str: return delivery.queue

async def use(url: str) -> None:
    async with connect(url, reconnect=False) as bus, await bus.subscribe("t") as stream:
        await bus.publish("t", {"id": 7})
        text: bytes = await bus.request("t", timeout_ms=5)
        price = await bus.request("t", Price(1), reply=Price)
        price.euro  # "Price" has no attribute "euro"; maybe "euros"
        (await bus.publish("t")).no_route
        (await bus.publish("t")).norute  # "Receipt" has no attribute "norute"; maybe "no_route"
        (await bus.publish_many("t", [])).no_route
        async for typed in stream.typed(Price):
            typed.value.euros
            typed.value.dollars  # "Price" has no attribute "dollars"
            typed.message.text
        async with await stream.handle(answer_any, concurrency=8) as workers:
            await workers.wait()
        await stream.handle(answer_mb)  # arg-type
        await bus.consume("t", name="n", start=5, in_flight=3)
        await bus.consume("t", inflight=3)  # Unexpected keyword argument "inflight"
        (await bus.schemas.register("s", Price)).version
        await bus.schemas.bind("t", "s", policy="enforced")  # arg-type
        await bus.schemas.regster("s", Price)  # has no attribute "regster"; maybe "register"
        await bus.serve("t", answer_any)
        await bus.serve("t", answer_mb)  # arg-type
        await bus.publsh("t")  # "Client" has no attribute "publsh"; maybe "publish"
        await bus.publish("t", key="k")  # Unexpected keyword argument "key"
        await bus.queues()  # "Client" has no attribute "queues"
        found = await stream.get(1)
        found.text  # Item "None" of "AnyMessage | None" has no attribute "text"
    async with connect(url, wire="mb") as mb, await mb.subscribe("t", buffer_bytes=5) as messages:
        await mb.serve("t", answer_mb, priority=2)
        await mb.publsh("t")  # "MbClient" has no attribute "publsh"; maybe "publish"
        await mb.publish(7)  # arg-type
        (await mb.request("t", reply=Price, version="2.0.0")).euros
        (await mb.request("t", reply=Price)).euro  # "Price" has no attribute "euro"; maybe "euros"
        async for offer in messages.typed(Price):
            offer.message.topic.upper()
        async for message in messages:
            message.version.upper()
    async with connect(url, wire="danube") as danube, await danube.subscribe("t", "s", type="shared") as consumer:
        await danube.publish("t", b"", key="k")
        await danube.publsh("t")  # "DanubeClient" has no attribute "publsh"; maybe "publish"
        async for row in consumer:
            await consumer.ack(row)
            await consumer.ack(message)  # arg-type
            row.decode(Price).euros
            row.decode(Price).euro  # "Price" has no attribute "euro"; maybe "euros"
    async with connect(url, wire="zbus") as zbus, await zbus.consume("q", ["a"]) as deliveries:
        await zbus.serve("q", answer_zbus, at_once=3)
        await zbus.create_queue("q", mode="2")  # arg-type
        (await zbus.request("q", headers={}, reply=Price)).euros
        await zbus.publish("q", broker="b")  # Unexpected keyword argument "broker"
    async with connect(url, wire="zbus+track") as tracked:
        await tracked.publish("q", broker="b")
        (await tracked.request("q", broker="b", reply=Price)).euros
    async with connect(url, wire="seneca") as seneca:
        await seneca.act("a:1", custom=[])  # arg-type
        (await seneca.request("a:1", reply=Price)).euros
    async with connect(url, wire="http") as http:
        (await http.publish("t", key="k", headers={"x-a": "b"})).offset
        (await http.request("t", reply=Price, headers={})).euros
        await http.publsh("t")  # "HttpClient" has no attribute "publsh"; maybe "publish"
    connect(url, wire="nats")  # call-overload

app = App("mb://x")

@app.consume("t", concurrency=8)
async def bill(price: Price) -> None: await app.bus.publsh("t")  # "Client" has no attribute "publsh"; maybe "publish"

@app.consume("t", concurency=8)  # Unexpected keyword argument "concurency"
def log(price: Price) -> None: ...

@app.srve("t")  # "App" has no attribute "srve"
def answer(price: Price) -> Price: return price
"""
CALLS, _, _ = ASYNCHRONOUS.partition("\napp = App")
BLOCKING = re.sub(r'"(\w*Client)" has', r'"Sync\1" has', re.sub(r"\b(await|async) ", "", CALLS)).replace(
    "import AnyMessage, Delivery, Message, connect",
    "import AnyMessage, Delivery, Message\nfrom raceway.client.sync import connect",
)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """Errors of both programs, by name of the program and line. Checked together: mypy starts slowly."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "asynchronous.py").write_text(ASYNCHRONOUS, "utf-8")
    (folder / "blocking.py").write_text(BLOCKING, "utf-8")
    options = ["--config-file", "pyproject.toml", "--cache-dir", ".mypy_cache", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(folder / "asynchronous.py"), str(folder / "blocking.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.stderr == ""
    found: dict[str, dict[int, str]] = {"asynchronous": {}, "blocking": {}}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r".*?(\w+)\.py:(\d+): error: (.*)", line)
        if match is not None:
            found[match[1]].setdefault(int(match[2]), match[3])
    return found


CLASSES: dict[str, type[client.Client]] = {
    "mb": client.MbClient, "danube": client.DanubeClient, "zbus": client.ZbusClient,
    "zbus+track": client.TrackedClient, "seneca": client.SenecaClient, "http": client.HttpClient,
}  # fmt: skip


# Scheme of a URL to what `connect(wire=…)` calls its clients.
NAMES = {scheme: found.name for scheme, found in schemes().items()} | dict.fromkeys(SCHEMES, "http")


@pytest.mark.parametrize(("form", "program"), [("asynchronous", ASYNCHRONOUS), ("blocking", BLOCKING)])
def test_mypy_finds_every_mistake_and_no_other(reported: dict[str, dict[int, str]], form: str, program: str) -> None:
    errors = reported[form]
    for number, line in enumerate(program.splitlines(), 1):
        _, _, expected = line.partition("  # ")
        assert (number in errors) == bool(expected), (line, errors.get(number))
        assert expected in errors.get(number, ""), line


@pytest.mark.parametrize("wire", sorted(CLASSES))
def test_wire_must_be_that_of_the_url(wire: str) -> None:
    connect: Any = client.connect
    for scheme, name in NAMES.items():
        if name == wire:
            assert type(connect(f"{scheme}://127.0.0.1:1", wire=wire)) is CLASSES[wire]
        else:
            with pytest.raises(ConfigError, match="wire: is"):
                connect(f"{scheme}://127.0.0.1:1", wire=wire)


def public_methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and inspect.isfunction(getattr(kind, name))}


@pytest.mark.parametrize("made", sync.FORMS)
def test_blocking_form_has_every_method(made: type[client.Client]) -> None:
    form = sync.FORMS[made]
    assert isinstance(form, type)
    asynchronous_only = {"open", "wrap_handler", "changed", "client_of", "choose_source"}
    assert public_methods(form) == public_methods(made) - asynchronous_only
    for name in public_methods(form) - {"close"}:
        assert inspect.signature(getattr(form, name)) == inspect.signature(getattr(made, name)), name


@pytest.mark.parametrize(
    ("wire", "missing"),
    [
        ("mb", set()),
        ("danube", {"request", "serve"}),
        ("zbus", {"subscribe"}),
        ("zbus+track", {"subscribe"}),
        ("seneca", {"subscribe", "consume", "serve"}),
        ("http", {"serve"}),
    ],
)
def test_methods_that_a_wire_lacks_are_refused(wire: str, missing: set[str]) -> None:
    made = CLASSES[wire]
    inherited = {name for name in public_methods(client.Client) if name not in vars(made)} - {"wrap_handler"}
    assert inherited == missing
    bus = next(client.connect(f"{scheme}://127.0.0.1:1") for scheme, name in NAMES.items() if name == wire)
    for name in missing:
        call = getattr(bus, name)
        with pytest.raises(UnsupportedError, match=f"{made.__name__} has no {name}: "):
            asyncio.run(call("t", print) if name == "serve" else call("t"))
