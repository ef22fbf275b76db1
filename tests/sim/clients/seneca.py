"""Clients of the Seneca wire over HTTP and TCP: messages that want no result, and calls. h11 reads HTTP strictly."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.sim.clients.client import ASKED, TOPICS, Client
from tests.sim.clients.http import OverHttp
from tests.sim.messages import Broken, Message, token_of

# The bus gives up a call after 22,222 ms; more for pauses of the process and a busy disk.
_DEADLINE_S = 32.0
_REFUSALS = ("forbidden", "act_not_found", "invalid_message", "act_invalid_msg")


class SenecaClient(OverHttp):
    """One kept connection; one call at a time."""

    wire, port = "seneca", 4
    has_tokens = False

    def answered(self, kind: str, what: Message, status: int, body: bytes) -> None:
        # Errors of the bus, and those of services that are errors of Seneca, have a code.
        code = "" if status in (200, 202) else json.loads(body).get("code") or str(status)
        if kind == "call":
            self.model.answer(what.token, code or f"answer:{self.token_of(body)}")
        elif not code:
            self.model.note(what, "acknowledged")
        elif code == "overloaded":
            self.model.note(what, "failed")
        elif code in _REFUSALS:
            self.say(f"{what.token} is refused: {code}")
            self.model.note(what, "refused")
        else:
            raise Broken(f"{self.name}: {what.token} is answered with {status}: {body[:200]!r}")

    def do(self, dice: random.Random) -> None:
        message, kind = _new_act(self, dice, len(self.open_calls()))
        body = _encode(_document(self, message, sync=kind == "call"))
        self.call(kind, message, "/act", body, [("content-type", "application/json")])

    def unanswered(self) -> list[str]:
        return [kind for kind, _ in self.open_calls()[:1] if kind == "act"]

    def lost(self) -> None:
        for kind, message in self.open_calls():
            if kind == "call":
                self.model.asked[message.token].is_lost = True
        super().lost()


class SenecaTcpClient(Client):
    """One line a document, many calls at once; in the wrapper of npm's transport, or as it is."""

    wire, port = "senecatcp", 5
    has_tokens = False

    def reset_state(self) -> None:
        self._text = b""
        # Calls by id; those in a wrapper have both ids as one.
        self._calls: dict[str, Message] = {}

    def received(self, data: bytes) -> None:
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError as error:
                raise Broken(f"{self.name} got a malformed line: {line[:120]!r}") from error
            self._answered(answer, line)

    def _answered(self, answer: dict[str, Any], line: bytes) -> None:
        """Messages that want no result get no line, so each one answers a call."""
        is_wrapped = "kind" in answer
        identity = answer.get("id") if is_wrapped else answer.get("meta$", {}).get("mid")
        message = self._calls.pop(str(identity), None)
        if message is None:
            raise Broken(f"{self.name} got an answer to nothing: {line[:120]!r}")
        failed = answer.get("error") if is_wrapped else answer["meta$"].get("error") and answer
        if is_wrapped and (answer["kind"], answer["sync"], answer.get("origin")) != ("res", True, self.name):
            raise Broken(f"{self.name} got a wrapper of something else: {line[:120]!r}")
        code = str(failed["code"]) if failed else ""
        self.model.answer(message.token, code or f"answer:{token_of(line, self.name)}")

    def do(self, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 3))):
            if self.line is not None:
                self._send_one(dice)

    def _send_one(self, dice: random.Random) -> None:
        # Many are under way at once, none waits for another one.
        message, kind = _new_act(self, dice, 0)
        document = _document(self, message, sync=kind == "call")
        meta = document["meta$"]
        identity = meta["mid"]
        if dice.random() < 0.5:
            identity = f"{meta['mid']}/{meta['cid']}"
            act = {name: value for name, value in document.items() if name != "meta$"}
            document = {
                "id": identity, "kind": "act", "origin": self.name, "track": [self.name],
                "time": {"client_sent": round(self.world.now * 1000)}, "act": act, "sync": kind == "call",
            }  # fmt: skip
        if kind == "call":
            self._calls[identity] = message
        self.send(_encode(document) + b"\n")

    def lost(self) -> None:
        for message in self._calls.values():
            self.model.asked[message.token].is_lost = True
        self._calls = {}


def _new_act(client: Client, dice: random.Random, before: int) -> tuple[Message, str]:
    """Make a message that wants no result, or a call; of those, `before` are answered first."""
    if dice.random() < 0.7:
        message, kind = client.new_message(dice.choice(TOPICS)), "act"
        client.say(f"acts {message.token} on {message.topic}")
    else:
        message, kind = client.new_message(dice.choice(ASKED), is_request=True), "call"
        client.say(f"calls {message.token} of {message.topic}")
        client.model.ask(message, client.name, client.world.now + _DEADLINE_S * (1 + before))
    message.is_converted, message.is_malformed = True, message.topic in client.model.bound
    return message, kind


def _document(client: Client, message: Message, *, sync: bool) -> dict[str, Any]:
    """Make a document whose pattern makes the topic: `role:t,cmd:a` is `t.a`."""
    role, cmd = message.topic.split(".")
    mid = f"s{client.slot}x{message.token}"
    meta: dict[str, Any] = {"vin": 1, "sid": client.name, "act": True, "mid": mid, "cid": f"c{mid}", "snc": sync}
    meta["trk"] = [{"sid": client.name, "mid": mid, "tms": [round(client.world.now * 1000)]}]
    return {"role": role, "cmd": cmd, "m": message.token, "meta$": meta}


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
