"""Clients of the MB wire over TCP: publish, subscribe, ask, answer."""

from __future__ import annotations

import json
import random
import re
import struct
from typing import Any

from tests.sim.clients.client import ASKED, TOPICS, Client
from tests.sim.messages import Broken, Message, token_of
from tests.sim.receivers import LiveReader

_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_HEADER = re.compile(
    rf"(publish|request|response):([A-Za-z0-9.]+):(\d+\.\d+\.\d+)(?::({_ID})?(?::({_ID})?(?::(\d*))?)?)?"
)
_PATTERNS = (*TOPICS, "t.+", "#")
# A timeout is told at most this much later: a tick of the wheel, pauses of the process, a busy disk.
_SLACK_S = 8.0


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern covers a topic, by the words of the manual's page of the wire."""
    levels, names = pattern.split("."), topic.split(".")
    if levels[-1] == "#":
        levels.pop()
        return all(level in ("+", name) for level, name in zip(levels, names, strict=False)) and len(levels) <= len(
            names
        )
    return len(levels) == len(names) and all(level in ("+", name) for level, name in zip(levels, names, strict=True))


class MbClient(Client):
    wire, port = "mb", 0
    has_tokens, is_lasting = False, True

    def reset_state(self) -> None:
        self._buffer = b""
        # Calls by id: what to do with their answer.
        self.open: dict[str, tuple[str, Any]] = {}
        self.readers: dict[str, LiveReader] = {}
        self.serves: set[str] = set()
        self._greeted = False
        self._held: list[tuple[str, bytes]] = []

    # ---- reading -----------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = struct.unpack_from(">I", self._buffer)[0]
            if len(self._buffer) < 4 + size:
                return
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            self.take(frame)

    def take(self, frame: bytes) -> None:
        head, separator, payload = frame.partition(b"\n")
        found = _HEADER.fullmatch(head.decode())
        if not separator or found is None:
            raise Broken(f"{self.name} got a malformed message: {frame[:120]!r}")
        action, topic, message_id = found[1], found[2], found[4]
        if not self._greeted:
            if (action, topic, payload) != ("publish", "system.initialize", b"{}"):
                raise Broken(f"{self.name} was not greeted first: {frame[:80]!r}")
            self._greeted = True
        elif action == "response":
            self._answered(message_id, payload)
        elif action == "request":
            self._asked(head.decode(), topic, payload)
        elif not topic.startswith("system."):
            self._copy(topic, payload)

    def _answered(self, message_id: str | None, payload: bytes) -> None:
        kind: str
        what: Any
        body = json.loads(payload)
        kind, what = self.open.pop(message_id or "", ("", None))
        code = body["error"]["code"] if isinstance(body, dict) and "error" in body else ""
        if kind == "publish":
            self._published(what, body, code)
        elif kind == "request":
            self._responded(what, payload, code)
        elif kind == "subscribe" and not code:
            name = f"{self.name} on {what}"
            self.readers[what] = self.model.add_live(name, lambda message: matches(what, message.topic))
        elif kind == "serve" and not code:
            self.serves.add(what)
        elif not kind and not code:
            raise Broken(f"{self.name} got an answer to nothing: {payload[:80]!r}")

    def _published(self, message: Message, body: Any, code: str) -> None:
        if body == {"status": "success"}:
            self.model.note(message, "acknowledged")
        elif code == "NO_ROUTE_FOUND":
            self.model.note(message, "stored")
        elif code == "SERVICE_UNAVAILABLE":
            self.model.note(message, "failed")
        else:
            self.model.note(message, "refused")
            self.say(f"{message.token} is refused: {code}")

    def _responded(self, message: Message, payload: bytes, code: str) -> None:
        self.model.answer(message.token, code or f"answer:{token_of(payload, self.name)}")

    def _asked(self, head: str, topic: str, payload: bytes) -> None:
        if topic == "system.heartbeat":
            self._write(f"response:{head.removeprefix('request:')}", b'{"status":"success"}')
            return
        token = self.token_of(payload)
        self.model.serve(token, self.name)
        self._held.append((head, payload))
        self.say(f"is asked {token}")

    def _copy(self, topic: str, payload: bytes) -> None:
        """One copy, however many of one's own subscriptions match."""
        token = self.token_of(payload)
        if topic in self.model.letters:
            self.model.check_copy(token, topic, payload, self.name)
            return
        wanting = [reader for pattern, reader in self.readers.items() if matches(pattern, topic)]
        for reader in wanting:
            reader.take(token, topic, payload)
        # Between the bus's note of a subscription and its confirmation copies may come.
        if not wanting and not any(
            kind in ("subscribe", "gone") and matches(what, topic) for kind, what in self.open.values()
        ):
            raise Broken(f"{self.name} got {token} of {topic} and has not subscribed to it")

    # ---- doing -------------------------------------------------------------------------------------------------------

    def do(self, dice: random.Random) -> None:
        if self._held and dice.random() < 0.7:
            for _ in range(min(len(self._held), dice.choice((1, 1, 3)))):
                self._answer(dice)
            return
        choice = 0.0 if "oneway" in self.history.plan.habits else dice.random()
        if choice < 0.5:
            self.publish(dice)
        elif choice < 0.62:
            self._subscribe(dice)
        elif choice < 0.66:
            self._unsubscribe(dice)
        elif choice < 0.74:
            self._serve(dice)
        elif choice < 0.94:
            self._ask(dice)
        else:
            self._misbehave(dice)

    def publish(self, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            message = self.new_message(dice.choice(TOPICS), size=dice.choice((0, 0, 10, 400)))
            if dice.random() < 0.8 and "oneway" not in self.history.plan.habits:
                message_id = self._new_id(dice)
                self.open[message_id] = ("publish", message)
                self.say(f"publishes {message.token} to {message.topic}")
                self._write(f"publish:{message.topic}:1.0.0:{message_id}", message.payload)
            else:
                self.say(f"publishes {message.token} to {message.topic}, without an id")
                self._write(f"publish:{message.topic}:1.0.0", message.payload)

    def _subscribe(self, dice: random.Random) -> None:
        pattern = dice.choice(_PATTERNS)
        if pattern not in self.readers and ("subscribe", pattern) not in self.open.values():
            self.say(f"subscribes to {pattern}")
            self._call(dice, "system.topic.subscribe", {"action": "publish", "topic": pattern}, ("subscribe", pattern))

    def _unsubscribe(self, dice: random.Random) -> None:
        if self.readers:
            pattern = dice.choice(sorted(self.readers))
            self.say(f"unsubscribes from {pattern}")
            self.readers.pop(pattern).is_open = False
            self._call(dice, "system.topic.unsubscribe", {"action": "publish", "topic": pattern}, ("gone", pattern))

    def _serve(self, dice: random.Random) -> None:
        topic = dice.choice(ASKED)
        if topic not in self.serves:
            self.say(f"serves {topic}")
            self._call(dice, "system.topic.subscribe", {"action": "request", "topic": topic}, ("serve", topic))

    def _ask(self, dice: random.Random) -> None:
        message = self.new_message(dice.choice(ASKED), is_request=True)
        timeout_ms = dice.choice((None, 200, 1000, 4000))
        message_id = self._new_id(dice)
        self.open[message_id] = ("request", message)
        self.say(f"asks {message.token} of {message.topic}")
        self.model.ask(message, self.name, self.world.now + (timeout_ms or 5000) / 1000 + _SLACK_S)
        more = "" if timeout_ms is None else f"::{timeout_ms}"
        self._write(f"request:{message.topic}:1.0.0:{message_id}{more}", message.payload)

    def _answer(self, dice: random.Random) -> None:
        """Answer a request that was handed over: once, twice, or with nonsense before."""
        head, payload = self._held.pop(dice.randrange(len(self._held)))
        token = token_of(payload, self.name)
        choice = dice.random()
        if choice < 0.1:
            self.say(f"never answers {token}")
            return
        if choice > 0.94:
            self.say(f"answers {token} under an id that nobody asked with")
            self._write(f"response:{head.split(':')[1]}:1.0.0:{self._new_id(dice)}", payload)
            return
        self.say(f"answers {token}" + (" twice" if choice < 0.2 else ""))
        for _ in range(2 if choice < 0.2 else 1):
            self._write(f"response:{head.removeprefix('request:')}", payload)

    def _misbehave(self, dice: random.Random) -> None:
        header, payload = dice.choice(
            (
                ("publish:bad topic:1.0.0", b"{}"),
                ("response:r.a:1.0.0:00000000-0000-4000-8000-00000000ffff", b"{}"),
                ("publish:system.forged:1.0.0", b"{}"),
                ("publish:t.a:one", b"{}"),
                ("", b""),
            )
        )
        self.say(f"sends nonsense: {header!r}")
        self._write(header, payload)

    def _call(self, dice: random.Random, topic: str, body: dict[str, Any], what: tuple[str, Any]) -> None:
        message_id = self._new_id(dice)
        self.open[message_id] = what
        self._write(f"request:{topic}:1.0.0:{message_id}", json.dumps(body).encode())

    def _write(self, header: str, payload: bytes) -> None:
        data = header.encode() + b"\n" + payload
        self.send(struct.pack(">I", len(data)) + data)

    def _new_id(self, dice: random.Random) -> str:
        digits = f"{dice.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def settle(self) -> None:
        super().settle()
        # Services answer what they still hold, so that nobody waits for the deadline.
        while self._held and self.line is not None:
            head, payload = self._held.pop()
            self._write(f"response:{head.removeprefix('request:')}", payload)

    def unanswered(self) -> list[str]:
        return [f"{kind} {getattr(what, 'token', what)}" for kind, what in self.open.values() if kind != "request"]

    def lost(self) -> None:
        for reader in self.readers.values():
            reader.is_open = False
        for kind, what in self.open.values():
            if kind == "request":
                self.model.asked[what.token].is_lost = True
        self.open, self.readers, self._held = {}, {}, []
