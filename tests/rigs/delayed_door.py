"""A door that delays every outcome by one turn of the loop, as a bus in another process would.

python -m tests.rigs.delayed_door serve …    the command line, with this door in the started server
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from raceway.broker.broker import Broker
from raceway.broker.door import CommitCallback, Door, OnAnswer
from raceway.broker.peers import Peer
from raceway.net.runtime import Runtime
from raceway.net.timers import Clock


class DelayedDoor(Door):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        # A half-closed connection waits for its commits: those come a turn later too.
        after_commit = self.runtime.after_commit
        self.runtime.after_commit = lambda done: after_commit(self._later(done))

    def perform(  # type: ignore[override]  # the overloads of `Door.perform` in one
        self, peer: Peer, intent: Any, done: OnAnswer | None = None, committed: CommitCallback | None = None
    ) -> None:
        super().perform(peer, intent, done and self._later(done), committed and self._later(committed))

    def _later(self, call: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda told: _loop(self.runtime).call_soon(lambda: call(told))


def _loop(runtime: Runtime) -> Clock:
    """Return the running loop: an application over HTTP runs in one, also over a broker whose loop is moved by hand."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return runtime.loop


# Set by `make test-delayed`: then rigs and started servers have the door that delays.
IS_DELAYED = bool(os.environ.get("TEST_DELAYED_DOOR"))
DOOR = DelayedDoor if IS_DELAYED else Door

if __name__ == "__main__":
    from raceway.cli.app import main
    from raceway.server import bus

    bus.Door = DelayedDoor  # type: ignore[attr-defined]
    main()
