"""Intents that take a while. Their handlers are generators, which yield what to wait for and return the outcome.

    def read(self, peer: Peer, call: ReadRows) -> Steps[RowPage]:
        rows = yield self._bus.aside(partial(self._journal.read_topic, call.topic, call.offset))
        ...

A step is called with the function to continue with: it takes the step's result, or an exception to raise at the yield.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")
Then: TypeAlias = Callable[[Any], None]
WaitFor: TypeAlias = Callable[[Then], None]
Steps: TypeAlias = Generator[WaitFor, Any, R]


def run(steps: Steps[Any], done: Then, told: Any = None) -> None:
    """Run a handler to its next step. `done` is given the outcome, or the exception that ended the handler."""
    try:
        step = steps.throw(told) if isinstance(told, Exception) else steps.send(told)
    except StopIteration as end:
        done(end.value)
    except Exception as error:  # noqa: BLE001 - passed to the caller
        done(error)
    else:
        step(partial(run, steps, done))


def run_here(work: Callable[[], Any], then: Then) -> None:
    """Run work in this thread: for a bus without a running event loop."""
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - passed to the caller
        found = error
    then(found)
