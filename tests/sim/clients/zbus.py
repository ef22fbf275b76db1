"""Clients of the zbus wire: make a queue, produce, consume, ask and answer over queues."""

from __future__ import annotations

import json
import random
import re
from typing import Any, NamedTuple

from tests.sim.clients.client import ASKED, QUEUES, TOPICS, Client
from tests.sim.messages import Broken, Message, token_of

_STATUS = re.compile(r"HTTP/1\.1 (\d{3}) ([ -~]*)")
_NAME = re.compile(r"[!-9;-@\[-~]+")
_SLACK_S = 10.0


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class ZbusClient(Client):
    wire, port = "zbus", 3
    is_lasting = True

    def reset_state(self) -> None:
        self._buffer = b""
        self.open: dict[str, tuple[str, Any]] = {}
        self._made = 0
        self._held: list[Reply] = []

    # ---- reading -----------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._buffer[:end].decode().split("\r\n")
            pairs = [line.partition(":") for line in lines]
            headers = {name: value.strip(" ") for name, _, value in pairs}
            found = _STATUS.fullmatch(first)
            if found is None or len(headers) != len(lines) or not all(s and _NAME.fullmatch(n) for n, s, _ in pairs):
                raise Broken(f"{self.name} got a malformed head: {self._buffer[:end]!r}")
            size = int(headers["content-length"])
            if len(self._buffer) < end + 4 + size:
                return
            body = self._buffer[end + 4 : end + 4 + size]
            self._buffer = self._buffer[end + 4 + size :]
            self._take(Reply(int(found[1]), headers, body))

    def _take(self, reply: Reply) -> None:
        msgid = reply.headers.get("msgid", "")
        kind, what = self.open.pop(msgid, ("", None))
        match kind:
            case "produce":
                self._produced(what, reply)
            case "consume":
                self._consumed(what, reply)
            case "serve":
                self._served(what, reply)
            case "request":
                answer = f"answer:{token_of(reply.body, self.name)}" if reply.status == 200 else str(reply.status)
                self.model.answer(what.token, answer)
            case "create":
                if reply.status == 200 and (self.is_guest or not self.may):
                    raise Broken(f"{self.name} made a queue and may not")
                if reply.status == 200:
                    self.model.add_queue(what)
            case "":
                if reply.status == 200:
                    raise Broken(f"{self.name} got an answer to nothing: {reply}")

    def _produced(self, message: Message, reply: Reply) -> None:
        if reply.status == 200:
            self.model.note(message, "acknowledged")
        elif reply.status == 503:
            self.model.note(message, "failed")
        else:
            self.model.note(message, "refused")
            self.say(f"{message.token} is refused: {reply.status}")

    def _consumed(self, queue: str, reply: Reply) -> None:
        if reply.status == 200 and "mq" in reply.headers:
            token = self.token_of(reply.body)
            self.say(f"consumes {token}")
            self.model.queues[queue].take(token, reply.body, is_late=self.is_late)

    def _served(self, queue: str, reply: Reply) -> None:
        if reply.status == 200 and "mq-reply" in reply.headers:
            token = self.token_of(reply.body)
            self.model.serve(token, self.name, is_late=self.is_late)
            self.say(f"is asked {token}")
            self._held.append(reply)

    # ---- doing -------------------------------------------------------------------------------------------------------

    def do(self, dice: random.Random) -> None:
        if self._held and dice.random() < 0.7:
            self._answer(self._held.pop(dice.randrange(len(self._held))), dice.choice((1, 1, 1, 1, 2, 0)))
            return
        choice = dice.random()
        if choice < 0.45:
            self.produce(dice)
        elif choice < 0.72:
            self._consume(dice)
        elif choice < 0.8:
            self._create(dice.choice(QUEUES))
        elif choice < 0.88:
            self._serve(dice)
        elif choice < 0.96:
            self._ask(dice)
        else:
            self.say("sends nonsense")
            self._write({"cmd": dice.choice(("fly", "consume")), "mq": "nowhere", "msgid": self._new_id()})

    def produce(self, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 2, 4))):
            message = self.new_message(dice.choice((*TOPICS, *QUEUES, *QUEUES)), size=dice.choice((0, 10, 400)))
            msgid = self._new_id()
            keys = {"cmd": "produce", "mq": message.topic, "msgid": msgid}
            if dice.random() < 0.85:
                self.open[msgid] = ("produce", message)
            else:
                keys["ack"] = "0"
            self.say(f"produces {message.token} into {message.topic}")
            self._write(keys, message.payload)

    def _consume(self, dice: random.Random) -> None:
        queue = dice.choice(QUEUES)
        if queue not in self.model.queues:
            self._create(queue)
        elif sum(kind == "consume" for kind, _ in self.open.values()) < 3:
            msgid = self._new_id()
            self.open[msgid] = ("consume", queue)
            self.say(f"waits for one of {queue}")
            self._write({"cmd": "consume", "mq": queue, "msgid": msgid})

    def _create(self, queue: str) -> None:
        msgid = self._new_id()
        self.open[msgid] = ("create", queue)
        self.say(f"makes the queue {queue}")
        body = json.dumps({"mqName": queue, "mqMode": "1", "accessToken": ""}).encode()
        self._write({"cmd": "admin", "method": "create_mq", "msgid": msgid, **self._guarded()}, body)

    def _serve(self, dice: random.Random) -> None:
        """Wait for a request on a queue of its own name, which is made first."""
        queue = dice.choice(ASKED)
        if ("serve", queue) not in self.open.values():
            made, msgid = self._new_id(), self._new_id()
            self.open[made] = ("made", queue)
            self.open[msgid] = ("serve", queue)
            self.say(f"serves {queue}")
            body = json.dumps({"mqName": queue, "mqMode": "1", "accessToken": ""}).encode()
            self._write({"cmd": "admin", "method": "create_mq", "msgid": made, **self._guarded()}, body)
            self._write({"cmd": "consume", "mq": queue, "msgid": msgid})

    def _ask(self, dice: random.Random) -> None:
        message = self.new_message(dice.choice(ASKED), is_request=True)
        msgid = self._new_id()
        self.open[msgid] = ("request", message)
        self.say(f"asks {message.token} of {message.topic}")
        # Between zbus and zbus there is no deadline.
        self.model.ask(message, self.name, float("inf"))
        self._write({"cmd": "request", "mq": message.topic, "msgid": msgid}, message.payload)

    def _answer(self, request: Reply, times: int) -> None:
        token = token_of(request.body, self.name)
        self.say(f"answers {token}" + {0: " never", 1: "", 2: " twice"}[times])
        for _ in range(times):
            keys = {
                "cmd": "produce",
                "mq": request.headers["mq-reply"],
                "msgid": request.headers["msgid-raw"],
                "ack": "0",
            }
            self._write(keys, request.body)

    def _write(self, keys: dict[str, str], body: bytes = b"") -> None:
        if self.history.is_secure and self.token:
            keys = {**keys, "token": self.token}
        head = "".join(f"{name}: {value}\r\n" for name, value in {**keys, "content-length": str(len(body))}.items())
        self.send(f"POST / HTTP/1.1\r\n{head}\r\n".encode() + body)

    def _guarded(self) -> dict[str, str]:
        """The token of an administrator, if this client has one."""
        return {"token": self.token} if self.token else {}

    def _new_id(self) -> str:
        self._made += 1
        return f"z{self.slot}-{self.number}-{self._made}"

    def settle(self) -> None:
        super().settle()
        while self._held and self.line is not None:
            self._answer(self._held.pop(), 1)

    def unanswered(self) -> list[str]:
        waiting = ("consume", "serve", "request")
        return [f"{kind} {getattr(what, 'token', what)}" for kind, what in self.open.values() if kind not in waiting]

    def leave(self, how: str) -> None:
        # Nobody tells the bus that a peer has vanished; of others it hears by a reset, soon after they closed.
        self.excused_until = float("inf") if how == "vanishe" else self.world.now + 0.15
        super().leave(how)

    def ended(self, error: Exception | None) -> None:
        self.excused_until = self.world.now
        super().ended(error)

    def drain(self, queue: str) -> None:
        """Consume on until nothing comes."""
        for _ in range(4):
            msgid = self._new_id()
            self.open[msgid] = ("consume", queue)
            self._write({"cmd": "consume", "mq": queue, "msgid": msgid})

    def lost(self) -> None:
        for kind, what in self.open.values():
            if kind == "request":
                self.model.asked[what.token].is_lost = True
            elif kind == "consume" and what in self.model.queues:
                self.model.queues[what].excuses.append(self.excused_until)
        self.open, self._held = {}, []
