"""Clients of the Seneca wire over HTTP: messages that want no result, and calls. h11 reads the answers strictly."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.sim.clients.client import ASKED, TOPICS
from tests.sim.clients.http import OverHttp
from tests.sim.model import Broken, Message

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
        if dice.random() < 0.7:
            message = self.new_message(dice.choice(TOPICS))
            self.say(f"acts {message.token} on {message.topic}")
            self._act(message, "act", sync=False)
        else:
            message = self.new_message(dice.choice(ASKED), is_request=True)
            self.say(f"calls {message.token} of {message.topic}")
            self.model.ask(message, self.name, self.world.now + _DEADLINE_S * (1 + len(self.open_calls())))
            self._act(message, "call", sync=True)

    def _act(self, message: Message, kind: str, *, sync: bool) -> None:
        """Post a document whose pattern makes the topic: `role:t,cmd:a` is `t.a`."""
        message.is_converted, message.is_malformed = True, message.topic in self.model.bound
        role, cmd = message.topic.split(".")
        mid = f"s{self.slot}x{message.token}"
        meta: dict[str, Any] = {"vin": 1, "sid": self.name, "act": True, "mid": mid, "cid": f"c{mid}", "snc": sync}
        meta["trk"] = [{"sid": self.name, "mid": mid, "tms": [round(self.world.now * 1000)]}]
        document = {"role": role, "cmd": cmd, "m": message.token, "meta$": meta}
        body = json.dumps(document, separators=(",", ":")).encode()
        self.call(kind, message, "/act", body, [("content-type", "application/json")])

    def unanswered(self) -> list[str]:
        return [kind for kind, _ in self.open_calls()[:1] if kind == "act"]

    def lost(self) -> None:
        for kind, message in self.open_calls():
            if kind == "call":
                self.model.asked[message.token].is_lost = True
        super().lost()
