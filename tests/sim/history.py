"""One history: a plan made from a seed, carried out in a world, checked by the model.

A plan is a list of steps, each with dice of its own, so that a step does the same whether or not others are left out:
that is what shrinking does.
"""

from __future__ import annotations

import errno
import gc
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pyarrow as pa
import structlog

from raceway.journal.local import LocalJournal
from raceway.net.connection import HARD, HIGH_WATER
from tests.sim.bus import GUEST, OPERATOR, TOKEN_SECRET, Bus
from tests.sim.clients.admin import AdminClient
from tests.sim.clients.client import Client, Make
from tests.sim.clients.danube import SUBSCRIPTIONS, DanubeClient
from tests.sim.clients.http import HttpClient, StreamClient
from tests.sim.clients.live import PubSubClient, UnreliableClient
from tests.sim.clients.mb import MbClient
from tests.sim.clients.operator import Roles, set_up
from tests.sim.clients.seneca import SenecaClient, SenecaTcpClient
from tests.sim.clients.service import ServiceClient
from tests.sim.clients.websocket import WebSocketClient
from tests.sim.clients.zbus import ZbusClient
from tests.sim.disk import SIZE
from tests.sim.machine import EPOCH_S, installed
from tests.sim.messages import Broken, Message, Row
from tests.sim.model import Model
from tests.sim.world import World

MAKES: dict[str, Make] = {
    "mb": MbClient, "http": HttpClient, "stream": StreamClient, "zbus": ZbusClient, "danube": DanubeClient,
    "seneca": SenecaClient, "ws": WebSocketClient, "senecatcp": SenecaTcpClient,
    "service": ServiceClient, "pubsub": PubSubClient, "unreliable": UnreliableClient,
    "admin": AdminClient,
}  # fmt: skip
# How long the world may take to come to rest.
_REST_S = 90.0
# How often services answer meanwhile what they were asked since: callers ask one thing after the other.
_ROUNDS = 12
# More than a history has.
_MOST_MESSAGES = 10_000
# Bytes that one read may add to what is held, before its limit is looked at.
_ONE_READ = 512 * 1024
# Timers of a bus without clients, and how many of each: sweeps of four wires, upkeep and tick, the console's own wait,
# redeliveries and absent consumers of durable subscriptions.
# `asyncio.wait_for` of the process that waits for its end: its timer has another name from Python 3.12 on.
_WAIT_FOR = "_release_waiter" if sys.version_info < (3, 12) else "Timeout._on_timeout"
_OWN_TIMERS = {"Doors._sweep": 4, "_set_result_unless_cancelled": 2, _WAIT_FOR: 1, "Alarms._sweep": 2}


class Step(NamedTuple):
    """What happens, to whom (a place of the world), and after which pause."""

    number: int
    kind: str
    slot: int
    pause_s: float


@dataclass(frozen=True)
class Plan:
    """Everything that a seed decides. `wires` are the clients' places."""

    seed: int
    wires: tuple[str, ...]
    settings: dict[str, Any]
    steps: tuple[Step, ...]
    splitting: float
    habits: tuple[str, ...] = ()
    # What an operator sets up first: `guests`, `schema`, `letters`.
    rules: tuple[str, ...] = ()
    # Time that bytes are under way, if it is the same for all connections; share of writes that are short.
    latency_s: float | None = None
    short_writes: float = 0.02


@dataclass(frozen=True)
class Switches:
    """What may happen in histories. A directed run leaves some of it out."""

    wires: tuple[str, ...] = tuple(MAKES)
    slots: int = 7
    # Kinds of steps to how often they come.
    weights: dict[str, float] = field(
        default_factory=lambda: {
            "act": 100.0, "close": 1.0, "reset": 1.0, "vanish": 0.3, "slow": 1.0, "read": 2.0, "half": 0.3,
            "flood": 0.3, "power": 0.15, "power-later": 0.25, "kill": 0.1, "stop": 0.1, "eio": 0.08, "full": 0.1,
            "room": 0.3, "late-disk": 0.5, "sleep": 0.8, "freeze": 0.2, "clock": 0.3, "flip": 0.03, "delete": 0.03,
            "cut": 0.03, "grant": 1.0, "unlink": 0.03,
        }
    )  # fmt: skip
    settings: dict[str, Any] = field(default_factory=dict)
    # What operators may set up.
    rules: tuple[str, ...] = ("guests", "schema", "letters")
    # `patient`: consumers acknowledge in order, and nothing else. `oneway`: MB publishes without ids, and nothing else.
    habits: tuple[str, ...] = ()
    # Share of reads that are split; else the seed chooses it. The other two as in a plan.
    splitting: float | None = None
    latency_s: float | None = None
    short_writes: float = 0.02


def make_plan(seed: int, steps: int, switches: Switches = Switches()) -> Plan:  # noqa: B008 - frozen
    dice = random.Random(f"{seed}/plan")
    chosen = dict(switches.weights)
    if dice.random() < 0.5:
        # Deduplication goes by the wall clock: it can be held to its word only where that does not jump.
        chosen.pop("clock", None)
    kinds, weights = zip(*chosen.items(), strict=True)
    wires = tuple(dice.choice(switches.wires) for _ in range(switches.slots))
    made = tuple(
        Step(number, kind, dice.randrange(switches.slots), _pause(dice))
        for number, kind in enumerate(dice.choices(kinds, weights, k=steps))
    )
    settings = {**_settings(dice, steps), **switches.settings}
    splitting = dice.choice((0.0, 0.1, 0.5))
    rules = tuple(rule for rule in switches.rules if dice.random() < 0.4)
    if switches.splitting is not None:
        splitting = switches.splitting
    network_and_disk = (switches.latency_s, switches.short_writes)
    return Plan(seed, wires, settings, made, splitting, switches.habits, rules, *network_and_disk)


def _pause(dice: random.Random) -> float:
    """A moment before a step: mostly short, so that much is under way at once."""
    return dice.choice((0.0, 0.0, 0.0, 0.0005, 0.002, 0.05)) * dice.random()


def _settings(dice: random.Random, steps: int) -> dict[str, Any]:
    # Segments and caches grow with the history: each kind of trouble needs some, dozens find nothing that some do not.
    scale = max(1, steps // 100)
    chosen: dict[str, Any] = {
        "security.enabled": dice.random() < 0.2,
        "journal.retention.max_bytes": dice.choice((0, 0, 0, 40_000 * scale)),
        "journal.segment_bytes": dice.choice((4_000, 16_000, 60_000)) * scale,
        "journal.row_group_rows": 64 * scale,
        "journal.seal": dice.random() < 0.7,
        "listen.output_bytes": dice.choice((2_000, 60_000, 16 << 20)),
        "broker.subscriptions.recent_bytes": dice.choice((8_000 * scale, 64 << 20, 64 << 20)),
        "broker.linger_ms": dice.choice((0.0, 20.0)),
    }
    return chosen


class History:
    """A plan as it is carried out."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.world = World(plan.seed, folder, plan.settings)
        self.world.network.splitting, self.world.network.latency_s = plan.splitting, plan.latency_s
        self.world.disk.short_writes = plan.short_writes
        self.model = Model(lambda: self.world.now)
        self.is_secure = bool(plan.settings.get("security.enabled"))
        self.world.on_end = self._note_end
        self.clients: dict[int, Client] = {}
        # Tokens that are good for longer than a history and its jumping clocks.
        self.operator_token, self.guest_token = _token(OPERATOR), _token(GUEST)
        # Messages published with an id for deduplication, and when.
        self.repeatable: list[tuple[Message, float]] = []
        self._roles: Roles | None = None
        # Subscriptions whose messages become dead letters when they fail.
        self.with_letters: set[str] = set()
        # Calls, messages and answers that clients have sent.
        self.calls = 0
        self.is_told_late = False
        # How the bus ended last: stop, kill or power.
        self._last_end = ""
        # Batches of the journal that were read before, with their rows.
        self._rows: dict[int, tuple[pa.RecordBatch, list[Row]]] = {}
        self.may_repeat = all(step.kind != "clock" for step in plan.steps)

    def run(self, only: Sequence[int] | None = None) -> None:
        """Carry it out. Raises Broken."""
        chosen = None if only is None else set(only)
        with _logging_into(self.world), installed(self.world):
            try:
                self._boot()
                if self.plan.rules:
                    self._roles = set_up(self)
                for step in self.plan.steps:
                    if chosen is None or step.number in chosen:
                        self._do(step)
                self._finish()
            finally:
                self.world.bury()

    def _do(self, step: Step) -> None:
        self.world.run_for(step.pause_s)
        if self.world.bus is None:
            self._boot()
        dice = random.Random(f"{self.plan.seed}/{step.number}")
        getattr(self, "_" + step.kind.replace("-", "_"))(step.slot, dice)
        self.world.run_for(0.0)
        self._check_bounds()

    # ---- kinds of steps ----------------------------------------------------------------------------------------------

    def _client(self, slot: int) -> Client:
        if slot not in self.clients:
            self.clients[slot] = MAKES[self.plan.wires[slot]](self, slot)
        return self.clients[slot]

    def _act(self, slot: int, dice: random.Random) -> None:
        self._client(slot).act(dice)

    def _close(self, slot: int, dice: random.Random) -> None:
        self._client(slot).leave("close")

    def _reset(self, slot: int, dice: random.Random) -> None:
        self._client(slot).leave("reset")

    def _vanish(self, slot: int, dice: random.Random) -> None:
        self._client(slot).leave("vanishe")

    def _half(self, slot: int, dice: random.Random) -> None:
        client = self._client(slot)
        if client.line is not None:
            client.say("closes its half")
            client.is_faultless = False
            client.line.half_close()

    def _slow(self, slot: int, dice: random.Random) -> None:
        self._client(slot).read_slowly(dice.choice((0, 200, 2000)))

    def _flood(self, slot: int, dice: random.Random) -> None:
        self._client(slot).flood(dice)

    def _read(self, slot: int, dice: random.Random) -> None:
        self._client(slot).read_again()

    def _power(self, slot: int, dice: random.Random) -> None:
        self.world.say("the power fails")
        self.world.lose_power()

    def _power_later(self, slot: int, dice: random.Random) -> None:
        self.world.disk.power = dice.randint(0, 30)

    def _kill(self, slot: int, dice: random.Random) -> None:
        self.world.say("the bus is killed")
        self.world.kill()

    def _stop(self, slot: int, dice: random.Random) -> None:
        self.world.say("the bus is stopped")
        self.world.stop()

    def _eio(self, slot: int, dice: random.Random) -> None:
        operation = dice.choice(("write", "sync"))
        self.world.say(f"the next {operation} of the disk fails")
        self.world.disk.faults[operation] = [errno.EIO]

    def _full(self, slot: int, dice: random.Random) -> None:
        disk = self.world.disk
        disk.size = disk.used() + dice.choice((0, 2_000, 20_000))
        self.world.say(f"the disk has {disk.size - disk.used()} bytes left")

    def _room(self, slot: int, dice: random.Random) -> None:
        self.world.disk.size = SIZE

    def _late_disk(self, slot: int, dice: random.Random) -> None:
        self.world.disk.latency_s = dice.choice((0.0001, 0.0005, 0.005, 0.1))
        self.world.say(f"the disk takes {self.world.disk.latency_s} s")

    def _sleep(self, slot: int, dice: random.Random) -> None:
        self.world.run_for(dice.choice((0.5, 2.0, 10.0, 40.0)) * dice.random())

    def _freeze(self, slot: int, dice: random.Random) -> None:
        pause_s = dice.choice((0.2, 1.0, 5.0))
        self.world.say(f"the machine stands still for {pause_s} s")
        for queue in self.model.queues.values():
            # The bus hears later of consumers that have just closed.
            queue.excuses = [until + pause_s if until > self.world.now else until for until in queue.excuses]
        self.world.now += pause_s

    def _clock(self, slot: int, dice: random.Random) -> None:
        jump_s = dice.choice((-3600.0, -5.0, 5.0, 7200.0))
        self.world.say(f"the wall clock jumps by {jump_s} s")
        self.world.skew_s += jump_s

    def _flip(self, slot: int, dice: random.Random) -> None:
        self._damage(dice, "flip")

    def _delete(self, slot: int, dice: random.Random) -> None:
        self._damage(dice, "delete")

    def _grant(self, slot: int, dice: random.Random) -> None:
        if self._roles is not None and self.is_secure and "guests" in self.plan.rules:
            self._roles.change()

    def _cut(self, slot: int, dice: random.Random) -> None:
        self._damage(dice, "cut")

    def _unlink(self, slot: int, dice: random.Random) -> None:
        """Delete a file of rows while the bus uses it."""
        if names := self._files_of_rows():
            name = dice.choice(names)
            self._note_damage(is_running=True)
            self.is_told_late = True
            self.world.disk.remove(name)
            self.world.say(f"{name} is deleted while the bus runs")
            if name == max((each for each in names if each.endswith(".blocks")), default=""):
                self.model.note_gone()

    def _files_of_rows(self) -> list[str]:
        disk = self.world.disk
        # Unfinished work may have been removed, folder and all.
        return sorted(
            name for name in disk.names if name.endswith((".blocks", ".parquet")) and (disk.folder / name).exists()
        )

    def _note_damage(self, *, is_running: bool = False) -> None:
        self.model.note_damage(is_running=is_running)
        self.repeatable.clear()  # ids go with the rows that have them

    def _damage(self, dice: random.Random, how: str) -> None:
        """End the bus, orderly or not, damage a file of rows, start it again."""
        disk = self.world.disk
        if self.world.bus is not None and not self.model.is_unsure and self.world.disk.power is None:
            # What is seen now is known by its position afterwards. Answers may be on their way to the disk.
            self.model.excuse_answers()
            self.check_journal()
        {"stop": self._stop, "kill": self._kill, "power": self._power}[dice.choice(("stop", "kill", "power"))](0, dice)
        names = self._files_of_rows()
        if how == "cut" and self._last_end == "power":  # it may fail during an orderly stop, too
            # Whether the end of the newest one was ever durable nobody knows then.
            names = [name for name in names if name != max((each for each in names if ".blocks" in each), default="")]
        if self.world.bus is None and names:
            name = dice.choice(names)
            self._note_damage()
            if how == "delete":
                disk.remove(name)
                self.world.say(f"{name} is deleted")
            elif how == "cut":
                self.is_told_late = True
                self.world.say(f"a file is cut short: {disk.cut(name, dice)}")
            else:
                self.is_told_late = True
                self.world.say(f"a bit flips: {disk.flip_bit(name, dice)}")

    # ---- start, end --------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        """Start the bus until it is ready, and check what it found on its disk."""
        for _ in range(20):
            self.world.disk.size = max(self.world.disk.size, self.world.disk.used() + (1 << 20))
            self.world.say("the bus starts")
            self.model.note_start()
            if self.world.start():
                break
        else:
            raise Broken("the bus does not start")
        self.check_journal()

    def _note_end(self, kind: str) -> None:
        self.world.say({"power": "(the power failed)", "kill": "(killed)", "stop": "(stopped)"}[kind])
        self._last_end = kind
        self.model.note_end(kind)

    def check_journal(self) -> None:
        """Compare all rows with what was promised."""
        bus = self.world.bus
        assert bus is not None
        journal = bus.journal
        first = journal.first_position()
        at_start = _told(journal)
        rows = [
            row for batch in journal.read(first, journal.committed + 1, Row._fields) for row in self._rows_of(batch)
        ]
        # A lost file is told at the start; other damage, where it cannot be mended, when its rows are read.
        if self.world.disk.has_failed:
            self.model.excuse_answers()
        self.model.check_journal(rows, first, _told(journal) if self.is_told_late else at_start)

    def _rows_of(self, batch: pa.RecordBatch) -> list[Row]:
        """Rows of a batch. The same batch, of a block that was decoded before, is not looked at again."""
        kept = self._rows.get(id(batch))
        if kept is None or kept[0] is not batch:
            rows = [Row._make(each) for each in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
            kept = self._rows[id(batch)] = (batch, rows)
        return kept[1]

    def _finish(self) -> None:
        """Take all troubles away, let everybody read, and check that everything promised has happened."""
        world = self.world
        world.disk.faults.clear()
        world.disk.power, world.disk.size, world.disk.latency_s = None, SIZE, 0.0005
        if world.bus is not None and self.model.is_unsure:
            # A file is gone under it: it tells that, and is started again.
            world.run_for(5.0)
            self.check_journal()
            world.kill()
        if world.bus is not None and world.bus.journal.health().status == "read_only":
            world.kill()
        if world.bus is None:
            self._boot()
        self._check_deaf()
        if self._roles is not None:
            self._roles.leave("close")
        world.say("everybody comes to rest")
        for client in self.clients.values():
            client.settle()
        self._rest()
        self.check_journal()
        for client in self.clients.values():
            if client.line is not None and (waiting := client.unanswered()) and client.is_faultless:
                raise Broken(f"{client.name} was never answered: {', '.join(waiting[:3])}")
        self.model.check_live()
        if not world.disk.has_failed:  # what is undeliverable cannot be stored then
            self.model.check_observers()
        self.model.check_asked()
        self._drain()
        self._check_leftovers()

    def _rest(self) -> None:
        """Let time pass until everybody has what is owed, and nothing has happened since, or for `_REST_S`."""
        quiet, before = 0, (-1, -1)
        for _ in range(_ROUNDS):
            self.world.run_for(_REST_S / _ROUNDS)
            for client in self.clients.values():
                client.settle()
            is_waiting = any(client.line is not None and client.unanswered() for client in self.clients.values())
            now = (self.model.taken, len(self.world.lines))
            quiet = quiet + 1 if now == before and not is_waiting and not self.model.waiting() else 0
            before = now
            if quiet >= 2:
                return
        self.world.run_for(12.0)

    def _check_deaf(self) -> None:
        """A publisher that asks for no answers is read from, whether it reads or not."""
        if "oneway" not in self.plan.habits:
            return
        self.world.run_for(5.0)
        for client in self.clients.values():
            if client.wire == "mb" and client.line is not None and client.line.rate == 0 and client.line.unread:
                raise Broken(f"{client.name} is not read from, because it does not read")

    def _drain(self) -> None:
        """Consume everything that durable subscriptions and queues still have."""
        world, model = self.world, self.model
        for client in self.clients.values():
            if client.wire in ("danube", "zbus"):
                client.leave("close")
        world.run_for(10.0)
        last: list[Client] = []
        for durable in model.durable.values():
            label = durable.name.removesuffix(f" on {durable.topic}")
            reader = DanubeClient(self, 100 + 3 * len(last))
            last.append(reader)
            reader.connect()
            world.run_for(0.1)
            reader.subscribe(durable.topic, label, dict(SUBSCRIPTIONS)[label])
        for queue in model.queues.values():
            consumer = ZbusClient(self, 100 + 3 * len(last))
            last.append(consumer)
            consumer.connect()
            world.run_for(0.1)
            self._empty(consumer, queue.name)
        quiet = 0
        for _ in range(_MOST_MESSAGES):  # of one key each comes when the one before is acknowledged
            before = model.taken
            world.run_for(3.0 if quiet else 0.3)
            for client in last:
                client.settle()
            quiet = quiet + 1 if model.taken == before else 0
            if quiet > 3:  # a redelivery comes after some seconds
                break
        self.check_journal()  # again, with dead letters that came of closing
        model.check_drained()
        for client in last:
            client.leave("close")

    def _empty(self, consumer: ZbusClient, queue: str) -> None:
        """Consume until nothing comes any more."""
        count = -1
        while count != len(self.model.queues[queue].now):
            count = len(self.model.queues[queue].now)
            consumer.drain(queue)
            self.world.run_for(2.0)

    def _check_bounds(self) -> None:
        """What the bus holds in memory is within the bounds that its settings name."""
        bus = self.world.bus
        if bus is None:
            return
        settings = self.world.settings
        for server in bus.doors.wires.values():
            gate = server.gate
            waiting = max((session.waiting() for session in gate.sessions), default=0)
            if waiting > _ONE_READ and waiting > (most := HARD * gate.output_mark() + HIGH_WATER + _ONE_READ):
                raise Broken(f"{waiting} bytes wait for one connection, of at most {most}")
        recent, most = bus.local.broker.subscriptions.recent.bytes, settings.broker.subscriptions.recent_bytes
        if recent > most + _ONE_READ:
            raise Broken(f"{recent} bytes of recent rows are kept, of at most {most}")
        held, most = bus.local.door.runtime.unfinished.total, settings.broker.unfinished_bytes
        if held > most:
            raise Broken(f"{held} bytes of unfinished messages are kept, of at most {most}")

    def _check_leftovers(self) -> None:
        """When all clients have left, nothing of them is left."""
        world, bus = self.world, self.world.bus
        assert bus is not None
        for client in self.clients.values():
            client.retire()
        world.run_for(5.0)
        for client in self.clients.values():
            client.leave("close")
        found = ""
        for _ in range(_ROUNDS):
            world.run_for(_REST_S / _ROUNDS)
            found = self._leftovers(bus)
            if not found:
                return
        raise Broken(found)

    def _leftovers(self, bus: Bus) -> str:
        """Tell what is left of clients, empty if nothing is."""
        world = self.world
        sessions = [session for server in bus.doors.wires.values() for session in server.gate.sessions]
        vanished = [link for link in world.network.links.values() if link.is_vanished]
        if len(sessions) > len(vanished):
            return f"{len(sessions)} sessions are left over, {len(vanished)} peers have vanished"
        # A peer that vanished may still be waited for, with one timer.
        left = Counter(world.loop.timers()) - Counter(_OWN_TIMERS)
        if left.total() > len(vanished):
            return f"timers are left over, and {len(vanished)} peers have vanished: {dict(left)}"
        peers = [peer for peer in bus.local.broker.peers.values() if peer.open]
        if len(peers) > len(vanished):
            return f"{len(peers)} peers are left over, {len(vanished)} have vanished"
        if bus.local.expiring:
            return f"{bus.local.expiring} requests are left over"
        held = bus.local.door.runtime.unfinished.total
        return f"{held} bytes of unfinished messages are left over" if held else ""


def _token(name: str) -> str:
    claims = {"iss": "raceway", "exp": int(EPOCH_S) + 86_400 * 30, "sub": name}
    claims |= {"principal_type": "service_account", "principal_name": name}
    return jwt.encode(claims, TOKEN_SECRET, algorithm="HS256")


def _told(journal: LocalJournal) -> list[tuple[int, int]]:
    """Positions that the journal tells to be lost."""
    kinds = ("missing", "quarantined")
    return [(each.first, each.last) for each in journal.health().damage if each.kind in kinds]


class Outcome(NamedTuple):
    """How a history ended: what was broken, if anything, its lines, a number for all of it, and the clients' calls."""

    seed: int
    broken: str
    lines: tuple[str, ...]
    digest: str
    calls: int = 0


def run_plan(plan: Plan, only: Sequence[int] | None = None) -> Outcome:
    with _folder() as folder, _without_collector():
        history = History(plan, folder)
        try:
            history.run(only)
            broken = ""
        except Broken as found:
            broken = str(found)
            history.world.say(f"BROKEN: {broken}")
        return Outcome(plan.seed, broken, tuple(history.world.lines), history.world.digest(), history.calls)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Collect garbage afterwards: dead buses are large, and in between it takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory, where the machine has one."""
    shm = Path("/dev/shm")
    root = tempfile.mkdtemp(prefix="raceway-sim-", dir=shm if shm.is_dir() else None)
    try:
        yield Path(root) / "data"
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _logging_into(world: World) -> Iterator[None]:
    kept = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(processors=[world.keep_log], cache_logger_on_first_use=False)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # uvicorn's, of applications that a crash ended
    try:
        yield
    finally:
        logging.disable(disabled)
        if kept is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**kept)
