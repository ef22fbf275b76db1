"""A peer that receives copies of publishes live. While it is too slow it reads from the journal (`catch_up.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from raceway.broker.delivery.catch_up import CatchUp, CatchUps
from raceway.broker.peers import Encoder, Peer
from raceway.broker.runs import MixedRows, Run
from raceway.broker.topics import Topic
from raceway.model.topics import fold


class LivePeer(Peer, ABC):
    """Base of peers whose wire can subscribe. `encoder` encodes copies; peers with the same encoder share them."""

    # Set by the broker when the peer is connected.
    catch_ups: CatchUps
    # Whether it has ever subscribed to publishes.
    is_fed = False
    _catch_up: CatchUp | None = None

    def __init__(self, peer_id: str, time_us: int, encoder: Encoder) -> None:
        super().__init__(peer_id, time_us)
        self.encoder = encoder
        # Its subscriptions at the position its catch-up has reached; those whose permission was revoked since.
        self._wanted: set[str] = set()
        self._forbidden: set[str] = set()

    @abstractmethod
    def write_run(self, run: Run, data: bytes) -> None:
        """Write copies: `data` is the run as the encoder encoded it."""

    @abstractmethod
    def write_rows(self, data: bytes) -> None:
        """Write copies of several topics, which nobody audits: `data` has them encoded."""

    @abstractmethod
    def has_room(self) -> bool:
        """Return whether it can be written to. If not, `wake` is called later."""

    @abstractmethod
    def taken(self) -> int:
        """Return how many bytes were handed to the kernel so far."""

    @abstractmethod
    def overrun(self) -> None:
        """Close the connection: more subscription changes are pending than a catch-up keeps."""

    def deliver(self, run: Run, data: bytes) -> None:
        if self._catch_up is None:
            self.write_run(run, data)
        else:
            self._catch_up.offer(run, data)

    def deliver_rows(self, mixed: MixedRows, data: bytes) -> None:
        if self._catch_up is None:
            self.write_rows(data)
        elif self._catch_up.is_collecting:
            for run, each in mixed.runs():
                self._catch_up.offer(run, each)

    @property
    def is_behind(self) -> bool:
        return self._catch_up is not None

    def detach(self) -> bool:
        """Leave the live path. Return False if the peer has no subscriptions or is catching up already."""
        if self._catch_up is not None or not self.is_fed or not self.open:
            return False
        self._wanted = {pattern for kind, pattern in self.subscriptions if kind == "publish"}
        self._catch_up = self.catch_ups.open(self)
        return True

    def wake(self) -> None:
        """Continue the catch-up, if any, after the peer has drained."""
        if self._catch_up is not None:
            self._catch_up.wake()

    def stop(self) -> None:
        """End the catch-up, if any, after the peer has disconnected."""
        if self._catch_up is not None:
            self._catch_up.close()
            self._catch_up = None

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def note_subscribed(self, pattern: str) -> None:
        self.is_fed = True
        self._forbidden.discard(fold(pattern))
        self._change(lambda: self._wanted.add(fold(pattern)))

    def note_unsubscribed(self, pattern: str, *, forbidden: bool = False) -> None:
        if forbidden and self._catch_up is not None:
            self._forbidden.add(fold(pattern))
            self._catch_up.forget_verdicts()
        self._change(lambda: self._wanted.discard(fold(pattern)))

    def _change(self, apply: Callable[[], None]) -> None:
        """Apply a change of subscriptions when the catch-up reaches the current position. A no-op without one."""
        if self._catch_up is not None and not self._catch_up.change(apply):
            self.overrun()

    # ---- called by the catch-up --------------------------------------------------------------------------------------

    def wants(self, topic: Topic) -> bool:
        return self.spells(topic.public) and self.catch_ups.routing.reaches(self._wanted - self._forbidden, topic)

    def emit(self, run: Run) -> None:
        self.write_run(run, self.encoder(run))

    def join(self, aside: list[tuple[Run, bytes]]) -> None:
        self._catch_up = None
        self._forbidden.clear()
        for run, data in aside:
            self.write_run(run, data)

    def tell_gap(self, first: int, stop: int, reason: str) -> None:
        self.catch_ups.tell_gap(self.id, first, stop, reason)
