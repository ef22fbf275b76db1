"""The world of one history: time, dice, disk, network, and the bus that is started, stopped, killed and started again.

Everything happens in `run_until`: the earliest event of the world, or a turn of the bus's loop. Nothing else moves
time.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import sys
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import greenlet
import structlog

from raceway.errors import RacewayError
from tests.sim.bus import PORT_BASE, Bus, load_settings
from tests.sim.disk import Crash, Disk
from tests.sim.loop import SimLoop
from tests.sim.machine import SimMachine
from tests.sim.messages import Broken
from tests.sim.network import Network

# What a turn of the loop takes: otherwise work that schedules itself would stop time.
TURN_S = 0.00002
# A history that needs more turns has run away.
MOST_TURNS = 3_000_000


class World:
    def __init__(self, seed: int, folder: Path, settings: Mapping[str, Any]) -> None:
        self.seed = seed
        self.main = greenlet.getcurrent()
        self.now, self.skew_s = 1000.0, 0.0
        self.dice = random.Random(f"{seed}/world")
        self.lines: list[str] = []
        self._digest = hashlib.sha256()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self.disk = Disk(folder, random.Random(f"{seed}/disk"))
        self.network = Network(self, random.Random(f"{seed}/network"))
        self.settings = load_settings(folder, settings)
        self._crash = ""
        self.boots = 0
        self.bus: Bus | None = None
        self.machine: SimMachine | None = None
        self.logged: list[tuple[str, str, dict[str, Any]]] = []
        self.on_end: Callable[[str], None] = lambda kind: None
        self.turns = 0
        self.is_stopping = False

    # ---- what is told ------------------------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """Add a line to the history."""
        self.lines.append(f"{self.now - 1000.0:12.6f}  {line}")

    def heard(self, link: int, data: bytes) -> None:
        """Take bytes of the bus into the digest of the history."""
        self._digest.update(b"%d %.6f " % (link, self.now) + data)

    def digest(self) -> str:
        """Return a number for everything that was said and sent."""
        digest = self._digest.copy()
        digest.update("\n".join(self.lines).encode())
        return digest.hexdigest()

    def keep_log(self, _: Any, level: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """The bus logs into the world; what it logs with a traceback is a finding."""
        name = str(event.get("event"))
        self.logged.append((level, name, dict(event)))
        if level in ("error", "exception") and event.get("exc_info"):
            error = sys.exc_info()[1]
            raise_later = Broken(f"the bus logged an exception: {name}: {type(error).__name__}: {error}")
            raise_later.__cause__ = error
            self.finding = self.finding or raise_later
        raise structlog.DropEvent

    finding: Broken | None = None

    # ---- time --------------------------------------------------------------------------------------------------------

    def soon(self, call: Callable[[], None], delay_s: float = 0.0) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now + max(0.0, delay_s), self._scheduled, call))

    def run_for(self, seconds: float) -> None:
        self.run_until(lambda: False, self.now + seconds)

    def run_until(self, is_done: Callable[[], bool], end: float) -> bool:
        """Let the world go on until a condition holds, or until `end`. Return whether it held."""
        while not is_done():
            if self.finding is not None:
                raise self.finding
            if self._crash:
                self._die()
                continue
            at = self._events[0][0] if self._events else end
            due = self.loop.next_time() if self.bus is not None and not self.bus.is_closing else None
            if due is not None and due < at:
                if due > end:
                    break
                self._turn(due)
            elif at > end or not self._events:
                break
            else:
                at, _, call = heapq.heappop(self._events)
                self.now = max(self.now, at)
                call()
        if is_done():
            return True
        self.now = max(self.now, end)
        return False

    def _turn(self, due: float) -> None:
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Broken("the loop does not come to rest")
        self.now = max(self.now, due) + TURN_S
        self.loop.turn()
        if self.loop.failures:
            raise Broken(f"nobody handled: {self.loop.failures[0]}")

    # ---- the bus -----------------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start the bus. Return whether it is ready: not if it crashed or refused to start."""
        assert self.bus is None
        self.boots += 1
        self._crash, self.is_stopping = "", False
        self.disk.has_failed = False
        self.machine = SimMachine(self)
        self.loop = SimLoop(lambda: self.now, self.network, self.machine)
        try:
            self.bus = bus = Bus(self.settings, self.loop, self.network, self.machine)
        except Crash:
            self._die()
            return False
        except (RacewayError, OSError) as error:
            self.say(f"the bus does not start: {error}")
            self.machine.die()
            return False
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"the bus cannot start: {type(error).__name__}: {error}") from error
        running = self.loop.create_task(bus.run())
        self.run_until(lambda: bus.is_ready or running.done() or self.bus is None, self.now + 30)
        if self.bus is not None and running.done() and running.exception():
            self.say(f"the bus does not start: {running.exception()}")
            self.kill()
        return self.bus is not None

    def stop(self) -> bool:
        """Stop the bus orderly, as SIGTERM does."""
        bus = self.bus
        assert bus is not None
        self.is_stopping = True
        bus.stop()
        self.run_until(lambda: bus.is_stopped or self.bus is not bus, self.now + 60)
        if self.bus is bus:
            if not bus.is_stopped:
                raise Broken("the bus does not stop")
            # What a failed disk did not take is lost as in a crash.
            self._end("kill" if self.disk.has_failed else "stop")
        return bus.is_stopped

    def kill(self) -> None:
        """Kill the process: what it wrote stays."""
        self._end("kill")

    def note_crash(self, kind: str) -> None:
        """The process is to end now, wherever it is; called from within it."""
        self._crash = kind
        if self.machine is not None:
            self.machine.is_dead = True
        self.loop.is_dead = True

    def lose_power(self) -> None:
        self._end("power")

    def _die(self) -> None:
        kind, self._crash = self._crash, ""
        self._end(kind)

    def _end(self, kind: str) -> None:
        assert self.machine is not None
        self.disk.power = None
        self.disk.faults.clear()
        self.loop.is_dead = True
        self.machine.die()
        if kind == "power":
            self.disk.lose_power()
        else:
            self.disk.keep_all()
        self.bus = None
        self.on_end(kind)
        self.network.crash()
        self.loop.forget()

    def bury(self) -> None:
        """End whatever runs, without a word: the history is over."""
        self.on_end = lambda kind: None
        if self.machine is not None and not self.machine.is_dead:
            self.loop.is_dead = True
            self.machine.die()
            self.loop.forget()

    def port(self, offset: int) -> int:
        """Return a port of the bus."""
        return PORT_BASE + offset
