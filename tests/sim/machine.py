"""Threads, queues, processes, clocks and dice of a simulated machine.

A thread is a greenlet. It runs until it waits: for a queue, for the disk, for another thread. Then the loop goes on,
and the thread is resumed at a time that the seed chose. All of them share the one thread of the process, so a history
is the same each time.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import queue
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import greenlet
import msgspec
import pyarrow as pa

from raceway import chance
from raceway.broker.peers import Peer
from raceway.broker.subscriptions.subscription import Subscription
from raceway.errors import RacewayError
from raceway.journal.format import Columns
from raceway.journal.integrity.checksum import STRIPE
from raceway.journal.machine import Machine
from raceway.journal.read.blocks import BadStripesError, StoredBlock
from raceway.journal.write.seal import hold_rows, seal_segment
from raceway.journal.write.sealer import SealOutcome
from raceway.net import ids
from raceway.net.connection import Connection
from raceway.net.outgoing.http_pool import PooledConnection

if TYPE_CHECKING:
    from tests.sim.world import World

# Arrow imports these on first use, and they draw random numbers when they are imported: not those of a history.
for _name in ("numpy.random", "pandas"):
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)

# 2026-01-01: the wall clock when a history begins.
EPOCH_S = 1_767_225_600.0


class SimThread:
    """What `Machine.thread` returns: started once, and joined by simulated threads only."""

    def __init__(self, machine: SimMachine, run: Callable[[], None]) -> None:
        self._machine = machine
        self._greenlet = greenlet.greenlet(run)
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        self._machine.threads.append(self)
        self._machine.world.soon(self.resume, self._machine.delay())

    def resume(self) -> None:
        if not self._machine.is_dead and not self._greenlet.dead:
            self._greenlet.switch()

    def join(self, timeout: float | None = None) -> None:
        while self._is_started and not self._greenlet.dead:
            self._machine.pause(0.0005)

    def kill(self) -> None:
        """Unwind it. Whatever it tries to do to the disk meanwhile has no effect: the machine is dead."""
        if self._is_started and not self._greenlet.dead and self._greenlet:
            # Where its end leads: to whoever kills it.
            self._greenlet.parent = greenlet.getcurrent()
            self._greenlet.throw(greenlet.GreenletExit)


class SimQueue:
    """A queue whose `get` lets the loop go on."""

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine
        self._items: deque[Any] = deque()
        self._waiting: Callable[[], None] | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting is not None:
            # Another thread's work takes a moment to begin.
            self._machine.world.soon(self._waiting, self._machine.delay())
            self._waiting = None

    def empty(self) -> bool:
        return not self._items

    def get_nowait(self) -> Any:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        world = self._machine.world
        end = None if timeout is None else world.now + timeout
        while not self._items:
            if end is not None and world.now >= end:
                raise queue.Empty
            self._waiting = self._machine.resumer()
            if end is not None:
                world.soon(self._waiting, end - world.now)
            self._machine.switch()
        return self._items.popleft()


class SimChild:
    """A child process: a simulated thread that says one line when it ends."""

    def __init__(self, machine: SimMachine, command: Sequence[str]) -> None:
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO()
        self.stdin.close = self._begin  # type: ignore[method-assign]  # the parent closes it when all is said
        # A process of its own: killed alone, or with the machine.
        self._own, self._command = SimMachine(machine.world), command
        machine.children.append(self)
        self.returncode: int | None = None

    def __enter__(self) -> SimChild:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self._own.die()
        self.returncode = -9 if self.returncode is None else self.returncode

    def _begin(self) -> None:
        self._own.thread(self._run, "child").start()

    def _run(self) -> None:
        """`raceway.journal.write.seal`, with the files of the simulated disk."""
        folder, name, rows = Path(self._command[3]), self._command[4], int(self._command[6])
        hold = "--hold" in self._command
        try:
            if hold:
                topics = msgspec.json.decode(self.stdin.getvalue(), type=list[str])
                outcome = hold_rows(folder, name, topics, rows, self._own.files)
            else:
                outcome = seal_segment(folder, name, rows, self._own.files)
        except (RacewayError, OSError, pa.ArrowException) as error:
            outcome = SealOutcome(job="hold" if hold else "seal", name=name, error=str(error))
        self.stdout = io.BytesIO(msgspec.json.encode(outcome))
        self.returncode = 1 if outcome.error else 0


class SimMachine(Machine):
    """The machine of one boot. After a crash it is dead, and its threads are unwound."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files = world.disk.open(self)
        self.threads: list[SimThread] = []
        self.children: list[SimChild] = []
        self.is_dead = False
        self._main = world.main

    def thread(self, run: Callable[[], None], name: str) -> Any:
        return SimThread(self, run)

    def queue(self) -> Any:
        return SimQueue(self)

    def spawn(self, command: Sequence[str]) -> Any:
        return SimChild(self, command)

    def monotonic(self) -> float:
        return self.world.now

    def delay(self) -> float:
        """Time until a thread gets a processor."""
        dice = self.world.dice
        return dice.random() * (0.02 if dice.random() < 0.05 else 0.0003)

    def is_main(self) -> bool:
        """Return whether the caller is the loop, or the world around it."""
        return greenlet.getcurrent() is self._main

    def pause(self, seconds: float) -> None:
        """Let everybody else run for this long. The loop itself never waits."""
        if not self.is_dead and not self.is_main():
            self.world.soon(self.resumer(), seconds)
            self.switch()

    def switch(self) -> None:
        """Let everybody else run until somebody calls the resumer."""
        assert not self.is_main(), "the loop would block for ever"
        self._main.switch()

    def resumer(self) -> Callable[[], None]:
        """Return a function that resumes the running thread, once."""
        me, is_due = greenlet.getcurrent(), [True]

        def resume() -> None:
            if is_due and not self.is_dead and not me.dead:
                is_due.clear()
                me.switch()

        return resume

    def die(self) -> None:
        """Kill the process: nothing of it runs any more."""
        self.is_dead = True
        for child in self.children:
            child.kill()
        for thread in self.threads:
            thread.kill()
        self.files.close_all()


# ---- clocks and dice ------------------------------------------------------------------------------------------------


def _numbered(kind: type, numbers: Iterator[int]) -> Callable[[Any], int]:
    """Return a hash that counts instances instead of naming addresses, so that sets have one order in all processes."""

    def number(self: Any) -> int:
        found = self.__dict__.get("_sim_number")
        if found is None:
            found = self.__dict__["_sim_number"] = next(numbers)
        return int(found)

    return number


class _Decoded:
    """`StoredBlock._decode` that keeps rows by everything that they follow from: half of a history is reading the same
    small blocks again. The bytes are read and checked each time."""

    def __init__(self) -> None:
        self._kept: dict[Any, pa.RecordBatch] = {}

    def decode(self, block: StoredBlock, begin: int, end: int, columns: Columns) -> pa.RecordBatch:
        prefix = block.prefix
        if prefix.body_size > STRIPE:  # in several stripes some may be bad, and columns in others good
            return _decode(block, begin, end, columns)
        chosen = None if columns is None else tuple(columns)
        try:
            body = bytes(block._load(0, prefix.body_size))
        except BadStripesError:  # beyond repair, but what is asked for may not be in there
            return _decode(block, begin, end, columns)
        # The sums of the body are a part of the meta, and the prefix has the sum of that.
        key = (body, prefix, begin, end, chosen)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = _decode(block, begin, end, columns)
        return found


_decode = StoredBlock._decode
_HASHED_BY_ADDRESS = (Connection, Peer, Subscription, PooledConnection)


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Replace the process's clocks by those of a world, as a preloaded library would, and the bus's chance."""
    dice = random.Random(f"{world.seed}/entropy")

    def wall_s() -> float:
        return EPOCH_S + world.now + world.skew_s

    numbers, decoded = iter(range(1, 1 << 60)), _Decoded()
    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", wall_s),
        (time, "time_ns", lambda: round(wall_s() * 1e6) * 1000),
        (time, "monotonic", lambda: world.now),
        (time, "monotonic_ns", lambda: round(world.now * 1e9)),
        (time, "perf_counter", lambda: world.now),
        (time, "perf_counter_ns", lambda: round(world.now * 1e9)),
        (StoredBlock, "_decode", lambda *asked: decoded.decode(*asked)),
        *((kind, "__hash__", _numbered(kind, numbers)) for kind in _HASHED_BY_ADDRESS),
    ]
    kept = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    ids._random_ids.clear()
    try:
        # Chance of the bus, which has the number of the first process.
        with chance.replaced(dice, 1):
            yield
    finally:
        for owner, name, value in kept:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        ids._random_ids.clear()
