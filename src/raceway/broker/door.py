"""The one door: wires and web ask the bus with `Door.perform` and look at it with `Door.view`.

An outcome may come before `perform` returns or at any time later, because a topic may be served by another process.
Sessions must work with both. Outcomes of one peer come in the order of its intents, but for those that wait for a
commit or read in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any, TypeVar, overload

from raceway.broker.broker import Broker
from raceway.broker.peers import Peer
from raceway.broker.steps import run
from raceway.broker.view import View
from raceway.errors import RacewayError
from raceway.model.intents.batches import BatchIntent, BatchOutcome, Intent
from raceway.model.intents.kinds import IntentFor

R = TypeVar("R")
OnAnswer = Callable[[BatchOutcome | RacewayError], None]
CommitCallback = Callable[[RacewayError | None], None]


class Door:
    """`runtime` is what all connections behind this door share.

    `disconnect` removes a peer and what belongs to it, once; outcomes of its open intents still come. `count_error`
    counts a message of a peer that was answered with an error.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.runtime = broker.runtime
        self.view = View(broker)
        self.connect, self.disconnect, self.count_error = broker.connect, broker.disconnect, broker.count_error

    def advertise(self, address: str) -> None:
        """Set the address of the bus that dead letters name."""
        self._broker.letters.broker_address = address

    @overload
    def perform(
        self, peer: Peer, intent: IntentFor[R], done: Callable[[R | RacewayError], None] | None = None
    ) -> None: ...
    @overload
    def perform(
        self, peer: Peer, intent: BatchIntent, done: OnAnswer | None = None, committed: CommitCallback | None = None
    ) -> None: ...
    def perform(
        self,
        peer: Peer,
        intent: Intent,
        done: Callable[[Any], None] | None = None,
        committed: CommitCallback | None = None,
    ) -> None:
        """Perform an intent of the peer. `done` is given its outcome, or the error if no part of it was done.

        `committed` is for batches: called when their rows are committed, or with the error if the commit failed; never
        before `done`, and not at all if `done` is given an error.
        """
        commit = None if committed is None else _Commit(committed)
        try:
            outcome: Any = self._broker.perform(peer, intent, commit)
        except RacewayError as error:
            # Its traceback refers to this frame and the intent: a cycle that would keep large intents until the next
            # full garbage collection.
            outcome, commit = error.with_traceback(None), None
        if type(outcome) is GeneratorType:
            run(outcome, done or _ignore)
        elif done is not None:
            done(outcome)
        if commit is not None:
            commit.release()


def _ignore(outcome: Any) -> None:
    """Take an outcome that the caller does not want."""


class _Commit:
    """Holds the result of a commit back until the outcome was passed on: the journal may call while it is made."""

    __slots__ = ("_committed", "_error", "_is_due", "_is_held")

    def __init__(self, committed: CommitCallback) -> None:
        self._committed = committed
        self._is_held, self._is_due = True, False
        self._error: RacewayError | None = None

    def __call__(self, error: RacewayError | None) -> None:
        if self._is_held:
            self._is_due, self._error = True, error
        else:
            self._committed(error)

    def release(self) -> None:
        self._is_held = False
        if self._is_due:
            self._committed(self._error)
