"""All wires of one server at once, spoken by the clients people use: who publishes and who listens, who asks and who
answers, each by the name of its wire.

    mouth(bus, "mb", place).say({"n": 1})         ear(bus, "danube", place).take(1)
    asker(bus, "zbus", place).ask({"a": 1})       answerer(bus, "seneca", place, act)

Danube is the published `danube-client`, Seneca is npm `seneca`, zbus is a plain socket and curl, MB a plain socket.
A place is a topic that every wire can spell: `word.cmd`, which Seneca calls `role:word,cmd:cmd`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, Protocol

from tests.rigs.danube_process import DanubeProcess, danube_process
from tests.rigs.danube_wire import danube_url
from tests.rigs.mb_wire import Peer, PeerClosed, connect
from tests.rigs.node_peers import NodePeers, node_peers
from tests.rigs.ports import free_port_base
from tests.rigs.seneca_wire import attached, fresh_word
from tests.rigs.server import PROGRAM, Server, running, wait_until
from tests.rigs.zbus_wire import Client, ClosedByServer, dial_server, zbus_port

WIRES = ("mb", "danube", "zbus", "seneca")
ASKING = ("mb", "zbus", "seneca")
DEADLINE_S = 20.0

_numbers = itertools.count()


def fresh(prefix: str = "n") -> str:
    return f"{prefix}{next(_numbers)}"


class Place(NamedTuple):
    word: str
    cmd: str = "echo"

    @property
    def topic(self) -> str:
        return f"{self.word}.{self.cmd}"

    @property
    def danube(self) -> str:
        return f"/default/{self.topic}"

    @property
    def keys(self) -> dict[str, str]:
        return {"role": self.word, "cmd": self.cmd}

    @property
    def pin(self) -> str:
        return f"role:{self.word},cmd:{self.cmd}"


def fresh_place(cmd: str = "echo") -> Place:
    return Place(fresh_word(), cmd)


class OneBus:
    """A server and one process each for the published clients of Danube and Seneca."""

    def __init__(self, server: Server, danube: DanubeProcess, callers: NodePeers, hosts: NodePeers) -> None:
        self.server, self.danube, self.callers, self.hosts = server, danube, callers, hosts
        self._stack = ExitStack()
        self._born: set[str] = set()

    def bear(self, place: Place) -> None:
        """A topic must be there before Danube can read it. Born elsewhere, it is read reliably."""
        if place.topic not in self._born:
            self._born.add(place.topic)
            self.mb().publish(place.topic, b"{}")

    def open(self, manager: Any) -> Any:
        """Closed at the end of the test."""
        return self._stack.enter_context(manager)

    def mb(self) -> Peer:
        peer: Peer = self.open(connect(self.server, "tcp"))
        return peer

    def zbus(self) -> Client:
        client: Client = self.open(dial_server(self.server))
        return client

    def close(self) -> None:
        self._stack.close()
        self._stack = ExitStack()


@contextmanager
def one_bus(module: str = PROGRAM, /, **env: object) -> Iterator[OneBus]:
    with (
        running(module, None, env) as server,
        danube_process(danube_url(server)) as danube,
        node_peers() as callers,
        node_peers() as hosts,
    ):
        bus = OneBus(server, danube, callers, hosts)
        try:
            yield bus
        finally:
            bus.close()


# ---- who publishes ---------------------------------------------------------------------------------------------------


class Mouth(Protocol):
    def say(self, payload: bytes) -> None:
        """Publish; returns when the bus has taken it, where the wire says so."""


class MbMouth:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._peer, self._place = bus.mb(), place

    def say(self, payload: bytes) -> None:
        self._peer.publish(self._place.topic, payload)


class DanubeMouth:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._danube, self._name = bus.danube, fresh("p")
        self._danube.create(self._name, place.danube)

    def say(self, payload: bytes) -> None:
        self._danube.send(self._name, payload)


class ZbusMouth:
    """The first message by curl, which knows nothing of zbus."""

    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client, self._place, self._port = bus.zbus(), place, zbus_port(bus.server)
        self._curl = shutil.which("curl")

    def say(self, payload: bytes) -> None:
        if self._curl is None:
            self._client.produce(self._place.topic, payload)
            return
        program, self._curl = self._curl, None
        command = [program, "-sS", "--noproxy", "*", "--data-binary", "@-", f"http://127.0.0.1:{self._port}/"]
        command += ["-H", "cmd: produce", "-H", f"mq: {self._place.topic}", "-H", "content-type:", "-w", "%{http_code}"]
        done = subprocess.run(command, input=payload, capture_output=True, timeout=DEADLINE_S, check=True)
        assert done.stdout.endswith(b"200"), done


class SenecaMouth:
    """Over TCP: what an instance posts there stays in order."""

    def __init__(self, bus: OneBus, place: Place) -> None:
        self._node, self._name, self._place = bus.callers, fresh("caller"), place
        self._node.client(self._name, "T", bus.server.port("seneca_tcp"))

    def say(self, payload: bytes) -> None:
        self._node.post(self._name, **json.loads(payload), **self._place.keys)


MOUTHS: dict[str, Callable[[OneBus, Place], Mouth]] = {
    "mb": MbMouth, "danube": DanubeMouth, "zbus": ZbusMouth, "seneca": SenecaMouth,
}  # fmt: skip


def mouth(bus: OneBus, wire: str, place: Place) -> Mouth:
    return MOUTHS[wire](bus, place)


# ---- who listens -----------------------------------------------------------------------------------------------------


class Ear(Protocol):
    def take(self, count: int) -> list[bytes]:
        """The next so many payloads."""


class MbEar:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._peer = bus.mb()
        self._peer.subscribe(place.topic)

    def take(self, count: int) -> list[bytes]:
        return [self._peer.receive(DEADLINE_S).payload for _ in range(count)]


class DanubeEar:
    def __init__(self, bus: OneBus, place: Place, reliable: bool = True) -> None:
        self._danube, self._name = bus.danube, fresh("c")
        if reliable:
            bus.bear(place)
        else:
            self._danube.create(fresh("p"), place.danube, reliable=False)
        self._danube.subscribe(self._name, place.danube, fresh("s"))

    def take(self, count: int) -> list[bytes]:
        return [message.payload for message in self._danube.receive(self._name, count, ack=True, within_s=DEADLINE_S)]


class ZbusEar:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client, self._place = bus.zbus(), place
        self._client.create(place.topic)

    def take(self, count: int) -> list[bytes]:
        return [self._client.take(self._place.topic).body for _ in range(count)]


class PubSubEar:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client, self._place = bus.zbus(), place
        self._client.create(place.topic, mode=2)
        self._next = self._client.arm(place.topic, topic="*")

    def take(self, count: int) -> list[bytes]:
        found = []
        for _ in range(count):
            found.append(self._client.reply(self._next).body)
            self._next = self._client.arm(self._place.topic, topic="*")
        return found


class SenecaEar:
    """A listener of the newer web transport; what it got is told as JSON."""

    def __init__(self, bus: OneBus, place: Place) -> None:
        self._node, self._name, self._taken = bus.hosts, fresh("host"), 0
        port = free_port_base()
        self._node.listen(self._name, "W", port, role=place.word)
        bus.open(attached(bus.server, place.pin, f"http://127.0.0.1:{port}/act", "W"))

    def take(self, count: int) -> list[bytes]:
        def enough() -> list[Any] | None:
            kept = self._node.kept(self._name)
            return kept if len(kept) >= self._taken + count else None

        kept = wait_until(enough, DEADLINE_S, f"{count} messages at a Seneca service")
        first, self._taken = self._taken, len(kept)
        return [json.dumps(each.message).encode() for each in kept[first:]]


EARS: dict[str, Callable[[OneBus, Place], Ear]] = {
    "mb": MbEar, "danube": DanubeEar, "zbus": ZbusEar, "seneca": SenecaEar,
}  # fmt: skip


def ear(bus: OneBus, wire: str, place: Place) -> Ear:
    return EARS[wire](bus, place)


# ---- who asks --------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What an asker was told: the answer, or the code of an error in its own wire's words."""

    document: Any = None
    error: str = ""
    text: str = ""


class Asker(Protocol):
    def ask(self, document: dict[str, Any]) -> Told: ...


class MbAsker:
    def __init__(self, bus: OneBus, place: Place, timeout_ms: int | None = None) -> None:
        self._peer, self._place, self._timeout_ms = bus.mb(), place, timeout_ms

    def ask(self, document: dict[str, Any]) -> Told:
        answer = json.loads(self._peer.ask(self._place.topic, document, self._timeout_ms).payload)
        if isinstance(answer, dict) and "error" in answer:
            return Told(None, answer["error"]["code"], answer["error"]["message"])
        return Told(answer)


class ZbusAsker:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client, self._place = bus.zbus(), place

    def ask(self, document: dict[str, Any]) -> Told:
        answer = self._client.reply(self._client.request(self._place.topic, json.dumps(document)), DEADLINE_S)
        if answer.status != 200:
            return Told(None, str(answer.status), answer.body.decode())
        return Told(answer.json())


class SenecaAsker:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._node, self._name, self._place = bus.callers, fresh("asker"), place
        self._node.client(self._name, "W", bus.server.port("seneca"))

    def ask(self, document: dict[str, Any]) -> Told:
        outcome = self._node.act(self._name, **document, **self._place.keys)
        if outcome.error is not None:
            return Told(None, outcome.error["code"], outcome.error["message"])
        return Told(outcome.result)


ASKERS: dict[str, Callable[[OneBus, Place], Asker]] = {"mb": MbAsker, "zbus": ZbusAsker, "seneca": SenecaAsker}


def asker(bus: OneBus, wire: str, place: Place) -> Asker:
    return ASKERS[wire](bus, place)


# ---- who answers -----------------------------------------------------------------------------------------------------


class ActionError(Exception):
    """A service says that it failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


Action = Callable[[dict[str, Any]], dict[str, Any] | None]


def arithmetic(document: dict[str, Any]) -> dict[str, Any] | None:
    """What `tests/npm/peers.js` does, for services of other wires. None never answers."""
    cmd = document.get("cmd") or document.get("do")
    if cmd == "div" and document["b"] == 0:
        raise ActionError("div_zero", "division by zero")
    if cmd == "slow":
        time.sleep(document["ms"] / 1000)
        return {"waited": document["ms"]}
    return {"sum": document["a"] + document["b"]}


class _Service(threading.Thread):
    """A connection that answers until it is closed."""

    def __init__(self, action: Action) -> None:
        super().__init__(daemon=True)
        self.action = action
        self.asked: list[dict[str, Any]] = []

    def run(self) -> None:
        with suppress(OSError, PeerClosed, ClosedByServer):
            while True:
                self.serve()

    def serve(self) -> None:
        raise NotImplementedError

    def result_of(self, document: dict[str, Any]) -> dict[str, Any] | ActionError | None:
        self.asked.append(document)
        try:
            return self.action(document)
        except ActionError as error:
            return error


class MbService(_Service):
    def __init__(self, bus: OneBus, place: Place, action: Action) -> None:
        super().__init__(action)
        self.peer = bus.mb()
        self.peer.subscribe(place.topic, "request")
        self.start()

    def serve(self) -> None:
        try:
            request = self.peer.next_request(3600)
        except TimeoutError:
            return
        found = self.result_of(json.loads(request.payload))
        if isinstance(found, ActionError):
            self.peer.answer(request, {"error": {"code": found.code, "message": found.message}})
        elif found is not None:
            self.peer.answer(request, found)


class ZbusService(_Service):
    def __init__(self, bus: OneBus, place: Place, action: Action) -> None:
        super().__init__(action)
        self.client, self.mq = bus.zbus(), place.topic
        self.client.create(self.mq)
        self._armed = self.client.arm(self.mq)
        self.start()

    def serve(self) -> None:
        delivery = self.client.reply(self._armed, 3600)
        found = self.result_of(json.loads(delivery.body))
        if isinstance(found, ActionError):
            self.client.answer(delivery, found.message, **{"reply-code": "500"})
        elif found is not None:
            self.client.answer(delivery, json.dumps(found))
        self._armed = fresh("arm")
        self.client.send("consume", mq=self.mq, msgid=self._armed)


class SenecaService:
    """npm Seneca with the actions of `tests/npm/peers.js`."""

    def __init__(self, bus: OneBus, place: Place) -> None:
        name, port = fresh("host"), free_port_base()
        bus.hosts.listen(name, "W", port, role=place.word)
        bus.open(attached(bus.server, place.pin, f"http://127.0.0.1:{port}/act", "W"))


def answerer(bus: OneBus, wire: str, place: Place, action: Action = arithmetic) -> None:
    if wire == "seneca":
        SenecaService(bus, place)
    elif wire == "mb":
        MbService(bus, place, action)
    else:
        ZbusService(bus, place, action)
