"""Receivers of the model: what each has got, and what it may get next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.messages import Broken, Message

if TYPE_CHECKING:
    from tests.sim.model import Model


class LiveReader:
    """A receiver of what is published while it is there: each once, in order, without a gap."""

    def __init__(
        self, model: Model, name: str, wants: Callable[[Message], bool], since: float, *, is_kept: bool = False
    ) -> None:
        self.name, self.wants, self.since, self.is_kept = name, wants, since, is_kept
        self._model = model
        self.got: dict[str, dict[str, None]] = {}
        self.is_open = True

    def take(self, token: str, topic: str, payload: bytes, offset: int | None = None) -> None:
        self._model.check_copy(token, topic, payload, self.name)
        if not self.wants(self._model.messages[token]):
            raise Broken(f"{self.name} got {token} of {topic}, which it has not subscribed to")
        got = self.got.setdefault(topic, {})
        if token in got:
            raise Broken(f"{self.name} got {token} twice")
        got[token] = None
        if offset is not None:
            self._model.learn(topic, offset, token)


@dataclass
class Stream:
    """A stream of a reliable subscription: from when to when messages may have been sent on it, and the highest offset
    that came."""

    began: float
    ended: float = float("inf")
    newest: int = -1


class Durable:
    """A reliable subscription: every publish since it was made, until its acknowledgement was answered."""

    def __init__(self, model: Model, name: str, topic: str, since: float, *, is_keyed: bool = False) -> None:
        self.name, self.topic, self.since, self.is_keyed = name, topic, since, is_keyed
        self._model = model
        self._streams: list[Stream] = []
        self.has_letters = False
        # Messages whose acknowledgement was sent, answered or not.
        self.settled: set[str] = set()
        self.seen: set[str] = set()
        # When the acknowledgement of a message was answered.
        self.acknowledged: dict[str, float] = {}
        # Until when it may be removed, or moved back to messages that were acknowledged.
        self.changes_until = -1.0

    def open_stream(self) -> Stream:
        """A stream begins now."""
        self._streams.append(stream := Stream(self._model.now()))
        return stream

    def take(self, token: str, payload: bytes, offset: int, stream: Stream) -> None:
        """A delivery on a stream: what was under way on an older one may still come."""
        self._model.check_copy(token, self.topic, payload, self.name)
        self._model.learn(self.topic, offset, token)
        if self.acknowledged.get(token, float("inf")) < stream.began:
            raise Broken(f"{self.name} got {token} (offset {offset}) after its acknowledgement was answered")
        if self.is_keyed:
            self._check_key(token, offset)
        else:
            self._check_order(token, offset, stream)
        self.seen.add(token)

    def _check_order(self, token: str, offset: int, stream: Stream) -> None:
        """A stream has what was never sent before in order. Only on another one can it have been sent unseen."""
        at = self._model.messages[token].at
        may_be_sent_again = at <= self.changes_until or any(
            other.ended > at for other in self._streams if other is not stream
        )
        if token not in self.seen and offset < stream.newest and not may_be_sent_again:
            raise Broken(f"{self.name} got {token} (offset {offset}) behind offset {stream.newest}")
        stream.newest = max(stream.newest, offset)

    def _check_key(self, token: str, offset: int) -> None:
        """Of one key a message comes when all before it were acknowledged."""
        messages = self._model.messages
        for other in self.seen:
            message = messages[other]
            if not message.key or message.key != messages[token].key or message.offset is None:
                continue
            if min(message.at, messages[token].at) <= self.changes_until:
                continue
            if message.offset > offset and token not in self.settled:
                raise Broken(f"{self.name} got {token} of the key {message.key} behind {other}, which was sent later")
            # Of a message whose row is lost the acknowledgement is not waited for.
            if message.offset < offset and other not in self.settled and not self._model.is_damaged:
                raise Broken(f"{self.name} got {token} of the key {message.key} before {other} was acknowledged")

    def begin_change(self) -> None:
        """An administrator is about to remove it, or to move its cursor: what it has to give is not certain."""
        self.since = self.changes_until = float("inf")
        self.acknowledged.clear()
        if self.has_letters:
            self._model.excuse_letters()

    def end_change(self, now: float) -> None:
        self.changes_until = now

    def note_acknowledged(self, token: str, asked: float) -> None:
        """The acknowledgement that was asked for then is answered."""
        if asked > self.changes_until:
            self.acknowledged.setdefault(token, self._model.now())


class Observer:
    """A service that is told what is published on its topic while it is attached: in order, until it took it or it is
    undeliverable."""

    def __init__(self, model: Model, name: str, topic: str, url: str) -> None:
        self.name, self.topic, self.url, self.since = name, topic, url, model.now()
        self.told: set[str] = set()
        # What it has taken: on HTTP by its answer, on a line when it was told.
        self.taken: set[str] = set()
        # What was told for the first time, by connection: of two of them the older may be the slower.
        self.on: dict[object, list[str]] = {}
        self.is_open = True

    def take(self, token: str, connection: object) -> None:
        if token not in self.told:
            self.told.add(token)
            self.on.setdefault(connection, []).append(token)

    def note_end(self, kind: str, now: float) -> None:
        """The bus ended: what waits for a service is in its memory, and becomes undeliverable in an orderly stop."""
        if kind != "stop":
            self.since = now


class Queue:
    """A zbus queue: each message to one consumer, once, but for a crash of the bus."""

    def __init__(self, model: Model, name: str, since: float) -> None:
        self.name, self.topic, self.since = name, name, since
        self._model = model
        # Messages handed out, and those of this boot in order.
        self.seen: set[str] = set()
        self.now: list[str] = []
        # Those handed out before the last crash: they may come again.
        self.again: set[str] = set()
        # Until when messages may have been purged; which were, and which of them no bus may hand out any more.
        self.purged = -1.0
        self._purging: set[str] = set()
        self._gone: set[str] = set()
        self._barred: set[str] = set()
        # Consumers that may have been handed a message when they broke: until when it can have been sent.
        self.excuses: list[float] = []
        self._was_stopped = True

    def take(self, token: str, payload: bytes, *, is_late: bool = False) -> None:
        """A message was handed out; `is_late`: by a bus that has ended meanwhile."""
        self._model.check_copy(token, self.topic, payload, f"queue {self.name}")
        if is_late and not self._was_stopped:  # it may come again, or has
            self.again.add(token)
        elif token in self._barred:
            raise Broken(f"queue {self.name} handed out {token}, which was purged before the bus was started")
        elif token in self.now or (token in self.seen and token not in self.again):
            raise Broken(f"queue {self.name} handed out {token} twice")
        elif not is_late:
            self.now.append(token)
        self.seen.add(token)

    def begin_purge(self) -> None:
        """It is about to be purged: of what is acknowledged now, nothing is to be handed out when that is answered."""
        self.purged = float("inf")
        messages = self._model.messages.values()
        self._purging = {each.token for each in messages if each.topic == self.topic and each.state == "acknowledged"}

    def end_purge(self, now: float, *, is_done: bool) -> None:
        self.purged = now
        if is_done:
            self._gone |= self._purging

    def forget_purges(self) -> None:
        """A file with the cursor may be lost."""
        self._purging, self._gone, self._barred = set(), set(), set()

    def note_end(self, kind: str) -> None:
        """The bus ended: what it handed out may come again, unless it was stopped orderly."""
        # What was handed out may have been under way when the purge was answered; by the next bus it is not.
        self._barred = set(self._gone)
        self._was_stopped = kind == "stop"
        self.again = self.again - set(self.now) if kind == "stop" else self.again | set(self.now)
        self.now = []


@dataclass
class Asked:
    """A request: one answer, or a told reason."""

    token: str
    by: str
    deadline: float
    answers: list[str] = field(default_factory=list)
    served: int = 0
    is_lost: bool = False  # the asker is gone
    is_kept: bool = False  # its answer is a row that no crash or failed disk can have taken
