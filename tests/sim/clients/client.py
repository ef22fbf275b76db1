"""What all clients of the world have: a connection that may be there or not, and something to do next."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from tests.sim.bus import ADMIN_TOKEN
from tests.sim.messages import Broken, Message, token_of
from tests.sim.network import Link, Party

if TYPE_CHECKING:
    from tests.sim.history import History

# Topics of publishes, of requests, and of the zbus queue.
TOPICS = ("t.a", "t.b", "t.c", "t.s", "q.a")
ASKED = ("r.a", "r.b")
QUEUES = ("q.a",)
# What a guest may publish to and consume from.
OF_GUESTS = ("t.a", "q.a")
# What is opened to guests and closed again.
OPENED = "t.b"


class Client(Party):
    """A client at one place of the world. It connects when it has something to do, and again after a loss."""

    wire: ClassVar[str]
    port: ClassVar[int]
    # Whether the wire has a word for a token.
    has_tokens: ClassVar[bool] = True
    # Whether a connection lasts until the client ends it.
    is_lasting: ClassVar[bool] = False

    def __init__(self, history: History, slot: int) -> None:
        self.history, self.slot = history, slot
        self.world, self.model = history.world, history.model
        self.line: Link | None = None
        self.is_slow = False
        # Whether it always took what was sent to it since it connected, and left its half open.
        self.is_faultless = True
        self._spoke = 0.0
        self.reset_state()

    @property
    def name(self) -> str:
        return f"{self.wire}{self.slot}"

    @property
    def number(self) -> int:
        """Number of the connection; messages of one are in order."""
        assert self.line is not None
        return self.line.number

    @property
    def is_late(self) -> bool:
        """Whether it still reads what a bus sent that has ended meanwhile."""
        return self.line is not None and not self.line.is_of_this_boot

    @property
    def may(self) -> bool:
        """Whether it may publish and consume: with security on, who shows the operator's token."""
        return not self.history.is_secure or (self.has_tokens and self.slot % 3 != 0)

    @property
    def is_guest(self) -> bool:
        """Whether it has a token that opens a few topics, and no more."""
        return self.may and self.history.is_secure and "guests" in self.history.plan.rules and self.slot % 3 == 2

    def may_use(self, topic: str, at: float | None = None) -> bool:
        """Whether it may publish to a topic and consume from it; with a time, whether it may have been allowed to from
        then until now."""
        if not self.is_guest:
            return self.may
        if topic != OPENED:
            return topic in OF_GUESTS
        closed = self.model.closed.get(topic)
        return closed is None or (at is not None and at <= closed)

    @property
    def token(self) -> str:
        """The token that opens what is guarded, empty for who has none."""
        if not self.history.is_secure:
            return ADMIN_TOKEN
        if self.is_guest:
            return self.history.guest_token
        return self.history.operator_token if self.may else ""

    def bearer(self) -> list[tuple[str, str]]:
        """The header of HTTP that names who asks, if it has a token."""
        return [("authorization", f"Bearer {self.token}")] if self.token else []

    def new_message(self, topic: str, *, is_request: bool = False, size: int = 0) -> Message:
        """Make a message that is about to be sent on this connection."""
        return self.model.send(
            topic, self.number, is_request=is_request, size=size, is_forbidden=not self.may_use(topic)
        )

    def token_of(self, payload: bytes) -> str:
        """Return the token of a message that this client was given, if it may have it."""
        found = token_of(payload, self.name)
        message = self.model.messages.get(found)
        # What was sent before a topic was closed may still come.
        if message is not None and not self.may_use(message.topic, message.at):
            raise Broken(f"{self.name} got {found} of {message.topic} and may not consume it")
        return found

    def say(self, text: str) -> None:
        self.world.say(f"{self.name}: {text}")

    def connect(self) -> bool:
        """Connect, if the bus is there."""
        self.line = None
        if self.world.bus is None:
            return False
        self.reset_state()
        link = self.world.network.connect(self.world.port(self.port), self)
        if link is not None:
            self.line = link
            self.is_slow, self.is_faultless, self._spoke = False, True, self.world.now
            self.say(f"connects ({link.number})")
            self.begin()
        return link is not None

    def reset_state(self) -> None:
        """Forget what belonged to the last connection."""

    def begin(self) -> None:
        """Say what is said first on a connection."""

    def act(self, dice: random.Random) -> None:
        """Do something."""
        if self.line is None and not self.connect():
            return
        self.do(dice)

    def do(self, dice: random.Random) -> None:
        raise NotImplementedError

    def flood(self, dice: random.Random) -> None:
        """Do much at once."""
        if self.line is not None or self.connect():
            for _ in range(dice.choice((10, 40))):
                self.do(dice)

    def settle(self) -> None:
        """Before the end: read on, finish what is open."""
        if self.line is not None:
            self.line.read_at(float("inf"))
            self.is_slow = False

    def retire(self) -> None:
        """Before the very end: take back what would outlast the connection."""

    def unanswered(self) -> list[str]:
        """What should have been answered by now, when everything is at rest."""
        return []

    def send(self, data: bytes, calls: int = 1) -> None:
        """Send bytes with so many calls, messages or answers."""
        if self.line is not None:
            self.line.send(data)
            self._spoke = self.world.now
            self.history.calls += calls

    # ---- ends of connections -----------------------------------------------------------------------------------------

    def leave(self, how: str) -> None:
        """End the connection from here."""
        line, self.line = self.line, None
        if line is None:
            return
        self.say(f"{how}s")
        self.lost()
        {"close": line.close_mine, "reset": line.reset, "vanishe": line.vanish}[how]()

    def ended(self, error: Exception | None) -> None:
        if self.line is not None:
            # Who reads slowly and says nothing may miss the question whether it is still there.
            is_silent = self.world.now - self._spoke > 50.0
            if error is None and self.is_lasting and self.is_faultless and not is_silent and self.line.is_current:
                raise Broken(f"{self.name} was disconnected while it took what was sent to it")
            self.say("is disconnected" if error is None else "loses its connection")
            self.line = None
            self.lost()

    def lost(self) -> None:
        """The connection is gone, whoever ended it."""

    def read_slowly(self, rate: float) -> None:
        if self.line is not None:
            self.is_slow, self.is_faultless = True, self.is_faultless and rate > 0
            self.say(f"reads {rate:.0f} bytes a second" if rate else "stops reading")
            self.line.read_at(rate)

    def read_again(self) -> None:
        if self.line is not None and self.is_slow:
            self.is_slow = False
            self.say("reads again")
            self.line.read_at(float("inf"))


Make = Callable[["History", int], Client]
