"""Services of Seneca that the bus calls: attached by a pin over the console port, they listen in the world.

They speak three dialects over HTTP and two over lines; they answer late, twice, never, wrongly, close in the middle,
and are not there for a while. What the bus sends is read strictly: HTTP by h11, meta data by the names of each dialect.
"""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import h11

from tests.sim.clients.http import OverHttp
from tests.sim.messages import Broken, token_of
from tests.sim.network import Party
from tests.sim.receivers import Observer

# Pins of services by their place, with the topics that each covers.
PINS = (("role:r,cmd:a", "r.a"), ("role:r,cmd:b", "r.b"), ("role:t,cmd:a", "t.a"), ("role:t,cmd:b", "t.b"))
_HTTP_DIALECTS, _LINE_DIALECTS = ("L", "W", "S"), ("T", "S")
_ROUTES = "/api/seneca/services"
_PORT = 22_000
# How long the bus may write to a connection that has ended here.
_HEARD_S = 6.0
# An answer that went out so soon after its message came is in time, whatever stands still meanwhile.
_PROMPT_S = 8.0


class Told(NamedTuple):
    """A call or message that the bus has sent, and where its answer goes."""

    token: str
    meta: dict[str, Any]
    is_call: bool
    came: float
    end: Listening


class Listening(Party):
    """The service's end of a connection of the bus."""

    def __init__(self, service: ServiceClient) -> None:
        self.service = service
        # What was told on it and is not answered.
        self.open: list[Told] = []
        self.is_over = False

    def ended(self, error: Exception | None) -> None:
        self.is_over = True
        self.service.forget(self)

    def reply(self, told: Told, *, failed: bool = False) -> None:
        """Answer, in the dialect of the service."""
        raise NotImplementedError

    def babble(self, told: Told, dice: random.Random) -> None:
        """Answer with something that is no answer."""
        raise NotImplementedError


class ListeningHttp(Listening):
    def __init__(self, service: ServiceClient) -> None:
        super().__init__(service)
        self._h11 = h11.Connection(h11.SERVER)
        self._body, self._headers = b"", dict[str, str]()

    def received(self, data: bytes) -> None:
        try:
            self._h11.receive_data(data)
            while not self.is_over:
                event = self._h11.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.Request):
                    self._headers = {name.decode(): value.decode() for name, value in event.headers}
                    if (event.method, event.target) != (b"POST", b"/act"):
                        raise Broken(f"{self.service.name} is asked {event.method!r} {event.target!r}")
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    body, self._body = self._body, b""
                    self._take(json.loads(body))
                elif isinstance(event, h11.ConnectionClosed):
                    return
        except (h11.RemoteProtocolError, ValueError) as error:
            raise Broken(f"{self.service.name} is asked malformed HTTP: {error}") from error

    def _take(self, document: dict[str, Any]) -> None:
        dialect = self.service.dialect
        meta = document.pop("meta$", {})
        if document.get("role") == "seneca":  # the bus asks how the service speaks, in two dialects at once
            self.reply(Told("", {"mid": meta["mi"], "cid": meta["tx"]}, True, 0.0, self))
            return
        if dialect == "L":
            mid, _, cid = self._headers["seneca-id"].partition("/")
            if meta or not mid or not cid or self._headers["seneca-kind"] != "req":
                raise Broken(f"{self.service.name} is asked in another dialect: {self._headers}")
            # Of this dialect a listener cannot tell whether a result is wanted: pins of services tell it here.
            meta = {"mid": mid, "cid": cid, "snc": self.service.topic.startswith("r.")}
        elif dialect == "W":
            meta = {"mid": meta["mi"], "cid": meta["tx"], "snc": meta["sync"]}
        elif meta.get("act") is not True:
            raise Broken(f"{self.service.name} is asked without `act`: {meta}")
        self.service.told(document, meta, self)

    def reply(self, told: Told, *, failed: bool = False) -> None:
        mid, cid = told.meta["mid"], told.meta["cid"]
        result: dict[str, Any] = {"m": told.token}
        if failed:
            result = {"code": "broken_down", "message": "no more of that"}
        if self.service.dialect == "W":
            result["meta$"] = {
                "mi": mid,
                "tx": cid,
                "id": f"{mid}/{cid}",
                "instance": self.service.name,
                "error": failed,
            }
        elif self.service.dialect == "S":
            result["meta$"] = {"mid": mid, "cid": cid, "rid": self.service.name, "res": True, "error": failed}
        self._respond(500 if failed else 200, _encode(result))

    def babble(self, told: Told, dice: random.Random) -> None:
        status, body = dice.choice(((200, b"<html>"), (302, b"{}"), (404, b""), (200, b'"text"'), (503, b"")))
        self._respond(status, body)

    def _respond(self, status: int, body: bytes) -> None:
        head = h11.Response(status_code=status, headers=[("content-length", str(len(body)))])
        data = (self._h11.send(head) or b"") + (self._h11.send(h11.Data(data=body)) or b"")
        self.link.send(data + (self._h11.send(h11.EndOfMessage()) or b""))
        self._h11.start_next_cycle()


class ListeningLines(Listening):
    def __init__(self, service: ServiceClient) -> None:
        super().__init__(service)
        self._text = b""

    def received(self, data: bytes) -> None:
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            try:
                document = json.loads(line)
                if self.service.dialect == "T":
                    if document["kind"] != "act":
                        raise Broken(f"{self.service.name} is asked {line[:120]!r}")
                    mid, _, cid = document["id"].partition("/")
                    meta, document = {"mid": mid, "cid": cid, "snc": document["sync"]}, document["act"]
                else:
                    meta = document.pop("meta$")
            except (ValueError, KeyError) as error:
                raise Broken(f"{self.service.name} is asked a malformed line: {line[:120]!r}") from error
            self.service.told(document, meta, self)

    def reply(self, told: Told, *, failed: bool = False) -> None:
        mid, cid = told.meta["mid"], told.meta["cid"]
        error = {"code": "broken_down", "message": "no more of that"}
        if self.service.dialect == "T":
            answer: dict[str, Any] = {
                "id": f"{mid}/{cid}",
                "kind": "res",
                "origin": "raceway",
                "accept": "svc",
                "sync": True,
            }
            answer |= {"error": error} if failed else {"res": {"m": told.token}}
        else:
            answer = dict(error) if failed else {"m": told.token}
            answer["meta$"] = {"mid": mid, "cid": cid, "rid": self.service.name, "res": True, "error": failed}
        self.link.send(_encode(answer) + b"\n")

    def babble(self, told: Told, dice: random.Random) -> None:
        unknown = {"id": "nobody/asked", "kind": "res", "res": {"m": "none"}, "sync": True}
        self.link.send(dice.choice((b"<html>\n", _encode(unknown) + b"\n", b"[1]\n", b"{}\n")))


class ServiceClient(OverHttp):
    """A service, and the connection to the console port on which it is attached and detached."""

    wire, port = "service", 6

    def __init__(self, history: Any, slot: int) -> None:
        self._dice = random.Random(f"{history.plan.seed}/service/{slot}")
        self.pin, self.topic = PINS[self._dice.randrange(len(PINS))]
        self._is_http = self._dice.random() < 0.6
        self.dialect = self._dice.choice(_HTTP_DIALECTS if self._is_http else _LINE_DIALECTS)
        # Of some the bus finds out how they speak.
        self._named = "auto" if self._is_http and self._dice.random() < 0.3 else self.dialect
        self._port = _PORT + slot
        self._ends: dict[Listening, None] = {}
        self.observer: Observer | None = None
        # Tokens whose connection broke before they were answered: these calls may come again.
        self._unheard: set[str] = set()
        # When a message was answered in time, and where.
        self._done: dict[str, Listening] = {}
        self.is_attached = self._is_kind = False
        super().__init__(history, slot)
        self._listen()

    # ---- what the bus sends ------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self.world.network.services[self._port] = self._accept

    def _accept(self) -> Party:
        end: Listening = ListeningHttp(self) if self._is_http else ListeningLines(self)
        self._ends[end] = None
        return end

    def told(self, document: dict[str, Any], meta: dict[str, Any], end: Listening) -> None:
        """The bus has sent a call or a message."""
        token = token_of(_encode(document), self.name)
        told = Told(token, meta, bool(meta["snc"]), self.world.now, end)
        if f"{document['role']}.{document['cmd']}" != self.topic or not meta["mid"]:
            raise Broken(f"{self.name} is told what is not its own: {document}")
        self._check(told, document)
        end.open.append(told)
        self.world.soon(lambda: self._react(told), self._dice.choice((0.0, 0.001, 0.02, 0.2)))

    def _check(self, told: Told, document: dict[str, Any]) -> None:
        token, message = told.token, self.model.messages.get(told.token)
        if message is None or message.topic != self.topic or message.is_request != told.is_call:
            raise Broken(f"{self.name} is told {token}, which is {message}")
        members = {} if message.is_converted else json.loads(message.payload)
        if any(document.get(name) != value for name, value in members.items()):
            raise Broken(f"{self.name} is told {token} with other members: {document}")
        self.model.check_copy(token, self.topic, message.payload, self.name)
        if told.is_call:
            if token not in self._unheard:
                self.model.serve(token, self.name)
            self._unheard.discard(token)
            self.say(f"is called {token}")
            return
        before = self._done.get(token)
        if before is not None and not before.is_over:
            raise Broken(f"{self.name} is told {token} again after it has taken it")
        if self.observer is not None:
            self.observer.take(token, told.end)
            if not self._is_http:
                self.observer.taken.add(token)
        self.say(f"is told {token}")

    # ---- what it answers ---------------------------------------------------------------------------------------------

    def _react(self, told: Told) -> None:
        """Answer well, late, twice, with an error, with nonsense, by closing, or not at all."""
        end, dice = told.end, self._dice
        if end.is_over or told not in end.open:
            return
        choice = 0.0 if self._is_kind else dice.random()
        if choice < 0.75:
            self._answer(told)
        elif choice < 0.82:
            self.say(f"answers {told.token} later")
            self.world.soon(lambda: self._answer(told), dice.choice((0.5, 3.0, 25.0)))
        elif choice < 0.86:
            self.say(f"fails on {told.token}")
            self._end(told)
            end.reply(told, failed=True)
        elif choice < 0.9:
            self.say(f"answers {told.token} with nonsense")
            self._end(told)
            self._note_taken(told)  # some of it says so
            end.babble(told, dice)
        elif choice < 0.94 and not self._is_http:  # over HTTP a second answer is that to the next question
            self.say(f"answers {told.token} twice")
            self._answer(told)
            end.reply(told)
        elif choice < 0.98:
            self.say(f"closes instead of answering {told.token}")
            self._hang_up(end)
        else:
            self.say(f"never answers {told.token}")

    def _answer(self, told: Told) -> None:
        if told.end.is_over or told not in told.end.open:
            return
        self._end(told)
        self._note_taken(told)
        self.history.calls += 1
        if not told.is_call and self.world.now - told.came < _PROMPT_S:
            self._done[told.token] = told.end
        if told.is_call or self._is_http:  # a message on a line is taken when it was written
            told.end.reply(told)

    def _note_taken(self, told: Told) -> None:
        if not told.is_call and self.observer is not None:
            self.observer.taken.add(told.token)

    def _end(self, told: Told) -> None:
        told.end.open.remove(told)

    def _hang_up(self, end: Listening) -> None:
        end.is_over = True
        self.forget(end)
        end.link.close_mine()

    def forget(self, end: Listening) -> None:
        """A connection of the bus is gone."""
        self._ends.pop(end, None)
        if self.observer is not None and not self._is_http:
            # A message on a line is taken when it was written: until the bus hears of the end, nobody may have read it.
            self.observer.since = max(self.observer.since, self.world.now + _HEARD_S)
        self._unheard.update(told.token for told in end.open if told.is_call)
        end.open.clear()

    # ---- doing -------------------------------------------------------------------------------------------------------

    def do(self, dice: random.Random) -> None:
        choice = dice.random()
        if not self.is_attached or choice < 0.1:
            self._attach()
        elif choice < 0.15:
            self._detach()
        elif choice < 0.3:
            self.say("listens no more")
            self.world.network.services.pop(self._port, None)
            for end in list(self._ends):
                self._hang_up(end)
        elif choice < 0.6:
            self._listen()
        elif self._ends and choice < 0.8:
            end = dice.choice(list(self._ends))
            end.link.read_at(dice.choice((0, 2000, float("inf"))))
        elif self._ends:
            self._hang_up(dice.choice(list(self._ends)))

    def _attach(self) -> None:
        scheme, path = ("http", "/act") if self._is_http else ("tcp", "")
        body = {"pin": self.pin, "url": f"{scheme}://127.0.0.1:{self._port}{path}", "dialect": self._named}
        self.say(f"is to be attached to {self.pin}, in the dialect {self.dialect} ({self._named})")
        self._ask("attach", "POST", body)

    def _detach(self) -> None:
        scheme, path = ("http", "/act") if self._is_http else ("tcp", "")
        self.say("is to be detached")
        self._close_observer()
        self._ask("detach", "DELETE", {"pin": self.pin, "url": f"{scheme}://127.0.0.1:{self._port}{path}"})

    def _close_observer(self) -> None:
        self.is_attached = False
        if self.observer is not None:
            self.observer.is_open = False

    def _ask(self, kind: str, method: str, body: dict[str, Any]) -> None:
        head = [*self.bearer(), ("content-type", "application/json")]
        self.call(kind, None, _ROUTES, json.dumps(body).encode(), head, method)

    def answered(self, kind: str, what: Any, status: int, body: bytes) -> None:
        if status == 200 and (self.is_guest or not self.may):
            raise Broken(f"{self.name}: {kind} is answered, and not permitted")
        if kind == "detach":
            self._close_observer()
        elif kind == "attach" and status == 200:
            self.say("is attached")
            self.is_attached = True
            url = json.loads(body)["services"][0]["url"]
            is_to_stay = all(kind != "detach" for kind, _ in self.open_calls())
            if self.topic.startswith("t.") and is_to_stay and (self.observer is None or not self.observer.is_open):
                self.observer = self.model.add_observer(f"{self.name} on {self.topic}", self.topic, url)
        elif status >= 500 and status != 503:
            raise Broken(f"{self.name}: {kind} is answered with {status}: {body[:200]!r}")

    def unanswered(self) -> list[str]:
        return [kind for kind, _ in self.open_calls()[:1]]

    def settle(self) -> None:
        """Be there, answer everything at once and well from now on."""
        super().settle()
        self._is_kind = True
        self._listen()
        for end in list(self._ends):
            end.link.read_at(float("inf"))
            for told in list(end.open):
                self._answer(told)

    def retire(self) -> None:
        """At the end of a history: nothing of it is to be left."""
        if self.line is not None or self.connect():
            self._detach()


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
