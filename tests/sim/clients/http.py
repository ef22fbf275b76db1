"""Clients of the console port: publish, read pages, ask, change settings; event streams. h11 reads them strictly."""

from __future__ import annotations

import json
import random
from collections import deque
from typing import Any

import h11

from tests.sim.clients.client import ASKED, OPENED, TOPICS, Client
from tests.sim.messages import Broken, Message, token_of
from tests.sim.receivers import LiveReader

_HEAD = [("host", "127.0.0.1")]
_SLACK_S = 8.0


class OverHttp(Client):
    """One kept connection; one call at a time, as browsers do it."""

    def reset_state(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT)
        self._waiting: deque[tuple[str, Any, bytes, list[tuple[str, str]], bytes, str]] = deque()
        self._current: tuple[str, Any] | None = None
        self._status, self._body = 0, b""

    def received(self, data: bytes) -> None:
        try:
            self._h11.receive_data(data)
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(event)
                if self.line is None:
                    return
        except h11.RemoteProtocolError as error:
            raise Broken(f"{self.name} got malformed HTTP: {error}") from error

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.Response):
            self._status, self._body = event.status_code, b""
        elif isinstance(event, h11.Data):
            self._body += event.data
        elif isinstance(event, h11.EndOfMessage):
            current, self._current = self._current, None
            if current is not None:
                self.answered(*current, self._status, self._body)
            elif self._status != 408:  # the head of a request did not come in time
                raise Broken(f"{self.name} got an answer to nothing: {self._status}")
            if self._h11.our_state is h11.MUST_CLOSE or self._h11.their_state is h11.MUST_CLOSE:
                self.leave("close")
            elif current is not None:
                self._h11.start_next_cycle()
                self._next()

    def answered(self, kind: str, what: Any, status: int, body: bytes) -> None:
        """A call was answered."""
        raise NotImplementedError

    def open_calls(self) -> list[tuple[str, Any]]:
        """Calls without an answer, the one under way first."""
        return [*([self._current] if self._current else []), *((kind, what) for kind, what, *_ in self._waiting)]

    def call(
        self, kind: str, what: Any, path: str, body: bytes = b"", headers: list[tuple[str, str]] | None = None,
        method: str = "POST",
    ) -> None:  # fmt: skip
        self._waiting.append((kind, what, path.encode(), headers or [], body, method))
        if self._current is None:
            self._next()

    def _next(self) -> None:
        if self._waiting and self.line is not None:
            kind, what, path, headers, body, method = self._waiting.popleft()
            self._current = (kind, what)
            head = [*_HEAD, *headers, ("content-length", str(len(body)))]
            data = self._h11.send(h11.Request(method=method, target=path, headers=head)) or b""
            if body:
                data += self._h11.send(h11.Data(data=body)) or b""
            self.send(data + (self._h11.send(h11.EndOfMessage()) or b""))

    def lost(self) -> None:
        self._current = None
        self._waiting.clear()


class HttpClient(OverHttp):
    wire, port = "http", 6

    def answered(self, kind: str, what: Any, status: int, body: bytes) -> None:
        if kind == "publish":
            self._published(what, status, body)
        elif kind == "repeat":
            self._repeated(what, status, body)
        elif kind == "batch":
            for message, told in zip(what, _told_batch(status, body, len(what)), strict=True):
                self._published(message, status, told)
        elif kind == "ask":
            self.model.answer(what.token, f"answer:{token_of(body, self.name)}" if status == 200 else str(status))
        elif kind == "page":
            self._page(what, status, body)
        elif status >= 500 and status != 503:
            raise Broken(f"{self.name}: {kind} {what} is answered with {status}: {body[:200]!r}")

    def _published(self, message: Message, status: int, body: bytes) -> None:
        if message.is_repeated and message.state == "acknowledged":
            return
        if status == 201:
            self.model.note(message, "acknowledged", json.loads(body)["offset"])
        elif status == 200 and json.loads(body).get("repeated"):
            # A repeat of it came first.
            message.state = "acknowledged"
        elif status == 503:
            self.model.note(message, "failed")
        else:
            self.say(f"{message.token} is refused: {status} {body[:100]!r}")
            if not message.is_repeated:
                self.model.note(message, "refused")

    def _page(self, topic: str, status: int, body: bytes) -> None:
        """Committed messages by offset, dense, but for gaps that are told."""
        if status != 200:
            return
        page = json.loads(body)
        last = None
        for row in page["messages"]:
            if "payload" in row and '"m":"' in row["payload"]:
                token = self.token_of(row["payload"].encode())
                if self.model.messages[token].state == "refused":
                    raise Broken(f"{self.name} reads {token}, which was refused")
                self.model.learn(topic, row["offset"], token)
            if last is not None and row["offset"] <= last:
                raise Broken(f"{self.name} reads offset {row['offset']} of {topic} behind {last}")
            last = row["offset"]

    # ---- doing -------------------------------------------------------------------------------------------------------

    def do(self, dice: random.Random) -> None:
        choice = dice.random()
        if choice < 0.6:
            self.publish(dice)
        elif choice < 0.65:
            self.repeat(dice)
        elif choice < 0.7:
            self._ask(dice)
        elif choice < 0.85:
            topic = dice.choice(TOPICS)
            self.call(
                "page",
                topic,
                f"/topics/{topic}?from={dice.choice(('first', '0', 'end', '3'))}&limit=20",
                b"",
                self.bearer(),
                "GET",
            )
        else:
            self._change(dice)

    def publish(self, dice: random.Random) -> None:
        topic = dice.choice(TOPICS)
        if dice.random() < 0.2:
            messages = [self.new_message(topic) for _ in range(dice.randint(2, 4))]
            self.say(f"publishes {', '.join(message.token for message in messages)} to {topic} at once")
            body = json.dumps({"messages": [{"payload": message.payload.decode()} for message in messages]}).encode()
            kind = ("content-type", "application/vnd.raceway.messages+json")
            self.call("batch", messages, f"/topics/{topic}", body, [kind, *self._named()])
            return
        message = self.new_message(topic, size=dice.choice((0, 0, 10, 400)))
        if dice.random() < 0.3 and self.history.may_repeat:
            self.say(f"publishes {message.token} to {topic}, with an id to be repeated")
            self.history.repeatable.append((message, self.world.now))
            head = [("x-dedup-id", message.token), *self._named()]
            self.call("publish", message, f"/topics/{topic}", message.payload, head)
            return
        self.say(f"publishes {message.token} to {topic}")
        self.call("publish", message, f"/topics/{topic}", message.payload, self._named())

    def repeat(self, dice: random.Random) -> None:
        """Publish a message again under its own id, within the window: it is answered, and not stored again."""
        within = [
            message
            for message, at in self.history.repeatable
            if self.world.now - at < 400.0 and message.is_forbidden != self.may_use(message.topic)
            if self._is_remembered(message) and message.state != "refused"  # a schema may allow it meanwhile
        ]
        if within:
            message = dice.choice(within)
            message.is_repeated = True
            if message.state == "failed":
                # This one may be stored, and its answer be lost.
                message.state = "open"
            self.say(f"publishes {message.token} to {message.topic} again")
            head = [("x-dedup-id", message.token), *self._named()]
            self.call("repeat", message, f"/topics/{message.topic}", message.payload, head)

    def _is_remembered(self, message: Message) -> bool:
        """Whether it is certainly among the last ids of its topic that the bus keeps."""
        later = 0
        for other, _ in self.history.repeatable:
            if other.topic == message.topic and other is not message:
                later += message.offset is None or other.offset is None or other.offset > message.offset
        return later < self.world.settings.broker.subscriptions.dedup_ids

    def _repeated(self, message: Message, status: int, body: bytes) -> None:
        if status == 201 and message.state != "acknowledged":
            # The first one was never answered; this one is.
            message.state = "open"
            self.model.note(message, "acknowledged")

    def _ask(self, dice: random.Random) -> None:
        message = self.new_message(dice.choice(ASKED), is_request=True)
        self.say(f"asks {message.token} of {message.topic}")
        self.model.ask(message, self.name, self.world.now + (60.0 + _SLACK_S) * (1 + len(self.open_calls())))
        self.call("ask", message, f"/requests/{message.topic}", message.payload, self._named())

    def _named(self) -> list[tuple[str, str]]:
        """Who publishes; without security everybody may, and nobody need say."""
        return self.bearer() if self.history.is_secure else []

    def _change(self, dice: random.Random) -> None:
        """Change something over a route of the console, or try to."""
        admin = [*self.bearer(), ("content-type", "application/json")]
        topic = dice.choice(TOPICS)
        path, method, body = dice.choice(
            (
                (f"/api/policies/topics/{topic}", "PUT", {"max_message_size": dice.choice((0, 100_000))}),
                ("/api/schemas/things/versions", "POST", {"type": "json_schema", "definition": '{"type":"object"}'}),
                ("/api/topics", "POST", {"topic": f"made.{dice.choice('abc')}", "reliable": True}),
                ("/api/peers", "GET", None),
                ("/api/topics", "GET", None),
                ("/readyz", "GET", None),
            )
        )
        self.say(f"{method} {path}")
        self.call("change", path, path, b"" if body is None else json.dumps(body).encode(), admin, method)

    def unanswered(self) -> list[str]:
        return [kind for kind, _ in self.open_calls()[:1] if kind != "ask"]

    def lost(self) -> None:
        for kind, what in self.open_calls():
            if kind == "ask":
                self.model.asked[what.token].is_lost = True
        super().lost()


def _told_batch(status: int, body: bytes, count: int) -> list[bytes]:
    if status != 201:
        return [body] * count
    rows = json.loads(body)["messages"]
    if len(rows) != count:
        raise Broken(f"{len(rows)} of {count} messages are acknowledged")
    return [json.dumps(row).encode() for row in rows]


class StreamClient(Client):
    """An event stream: every publish from where it began, over restarts too, each once."""

    wire, port = "stream", 6

    def __init__(self, history: Any, slot: int) -> None:
        super().__init__(history, slot)
        self._topic = OPENED if self.is_guest else TOPICS[slot % len(TOPICS)]
        self._reader: LiveReader | None = None
        # Behind the last event that came: where to go on.
        self._last: str | None = None

    def reset_state(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT)
        self._text = b""
        self._status = 0

    def begin(self) -> None:
        headers = [*_HEAD, *self.bearer(), ("accept", "text/event-stream")]
        if self._last is not None:
            headers.append(("last-event-id", self._last))
        target = f"/topics/{self._topic}" + ("?from=first" if self._last is None else "")
        data = self._h11.send(h11.Request(method="GET", target=target, headers=headers)) or b""
        self.send(data + (self._h11.send(h11.EndOfMessage()) or b""))

    def do(self, dice: random.Random) -> None:
        """Nothing but to be connected: what comes, comes."""

    def received(self, data: bytes) -> None:
        try:
            self._h11.receive_data(data)
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data) and self._status == 200:
                    self._text += event.data
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    break
        except h11.RemoteProtocolError as error:
            raise Broken(f"{self.name} got malformed HTTP: {error}") from error
        while b"\n\n" in self._text:
            text, self._text = self._text.split(b"\n\n", 1)
            self._event(text.decode())
        if self._h11.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED) and self.line is not None:
            self.leave("close")

    def _event(self, text: str) -> None:
        fields: dict[str, str] = {}
        for line in text.split("\n"):
            name, separator, value = line.partition(":")
            if not separator or name not in ("", "id", "event", "data", "retry"):
                raise Broken(f"{self.name} got a malformed event: {text[:120]!r}")
            fields[name] = value.removeprefix(" ")
        if "id" in fields:
            self._last = fields["id"]
        if "data" not in fields or fields.get("event", "message") != "message":
            return
        row = json.loads(fields["data"])
        payload = row["payload"].encode()
        if self._reader is None:
            self._reader = self.model.add_kept(f"{self.name} on {self._topic}", self._topic)
            # At the end a guest may not be let in any more.
            self._reader.is_open = not self.is_guest
        self._reader.take(self.token_of(payload), row["topic"], payload, row["offset"])

    def settle(self) -> None:
        super().settle()
        if self.line is None:
            self.connect()
