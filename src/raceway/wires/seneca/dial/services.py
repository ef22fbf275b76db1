"""Table of the services attached to the bus: by settings at each start, or by command until they are detached.

Services attached by command are kept in the journal's state, so a restart finds them again. A service is identified by
its pin and its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec
import structlog

from raceway.broker.door import Door
from raceway.errors import ConfigError, ForbiddenError, NameInvalidError, RacewayError
from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.intents.services import AttachService, CheckWritable, DetachService, KeepServices
from raceway.net.ids import random_id
from raceway.net.outgoing.allowed import AllowList, Target
from raceway.wires.seneca.codec.pattern_text import parse_pins
from raceway.wires.seneca.codec.patterns import MISSING, Pattern, Pin, PinTable, canonical_text, is_internal
from raceway.wires.seneca.dial.address import ServiceAddress, parse_address
from raceway.wires.seneca.dial.pins import AttachedService, PinGroup
from raceway.wires.seneca.dial.returns import SenecaPeer
from raceway.wires.seneca.dial.service import ServiceLine
from raceway.wires.seneca.settings import SenecaDial

SECTION = "seneca.services"

log = structlog.get_logger("raceway.dial")


class Attachment(msgspec.Struct, frozen=True):
    """The stored form of a service attached by command. `found` is the dialect of the last probe, used after a restart
    until the next probe. `name` is the topic that the command gave the pin."""

    pin: str
    url: str
    dialect: str = "auto"
    found: str = ""
    name: str = ""


class ServiceRow(msgspec.Struct, frozen=True):
    """A service as it is listed."""

    pin: str
    topic: str
    url: str
    dialect: str
    state: str
    reason: str
    origin: str
    calls: int
    failures: int
    waiting: int
    connections: int


class ServiceTable:
    """The attached services. `is_own` tells whether an address is the bus itself, which cannot be attached."""

    def __init__(
        self,
        door: Door,
        settings: SenecaDial,
        timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        allowed: AllowList,
        is_own: Callable[[Target], bool],
    ) -> None:
        self.pins: PinTable[PinGroup] = PinTable()
        self._door, self._loop = door, loop
        self._peer = SenecaPeer(random_id().decode(), door.runtime.clock_us())
        self._settings, self._timeout_ms = settings, timeout_ms
        self._allowed, self._is_own = allowed, is_own
        self._names: dict[str, str] = {}
        self._configured: set[str] = set()
        self._looking: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Attach the services of settings and journal. Raises ConfigError for invalid settings."""
        for text, name in self._settings.names.items():
            try:
                self._names |= {canonical_text(pattern): name for pattern in parse_pins(text)}
            except RacewayError as error:
                raise ConfigError("seneca.names", str(error)) from error
        for wanted in self._settings.services:
            try:
                services = self._add_all(wanted.pin, wanted.url, wanted.dialect, wanted.name)
            except RacewayError as error:
                raise ConfigError("seneca.services", f"{wanted.pin} at {wanted.url}: {error}") from error
            self._configured.update(map(_key, services))
        for kept in self._door.view.kept(SECTION).values():
            self._restore(msgspec.convert(kept, Attachment))
        for service in self:
            task = self._loop.create_task(service.line.look())
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def looked(self, limit_s: float) -> None:
        """Wait until every service was probed once, at most `limit_s` seconds: a caller right after the start must not
        be told that no service is there."""
        if self._looking:
            await asyncio.wait(self._looking, timeout=limit_s)

    def _restore(self, kept: Attachment) -> None:
        """Attach a service from the journal; one that settings no longer allow is logged and skipped."""
        try:
            for service in self._add_all(kept.pin, kept.url, kept.dialect, kept.name):
                if kept.found:
                    service.line.dialect = parse_address(kept.url, kept.found).dialect
        except RacewayError as error:  # settings have changed since
            log.error("service not restored", pin=kept.pin, url=kept.url, reason=str(error))

    async def attach(self, pins: str, url: str, dialect: str = "auto", name: str = "") -> list[ServiceRow]:
        """Attach a service durably, for all of the pins or none. Attaching one again may change its dialect. `name`
        replaces the topic name derived from a single pin's values.

        Raises the errors of pins, names and addresses, ForbiddenError for an address that is not allowed, and
        UnavailableError if the change could not be stored. The rows tell whether the service is up.
        """
        await self._ask(CheckWritable())
        before = {_key(service) for service in self}
        services = self._add_all(pins, url, dialect, name)
        await asyncio.gather(*(service.line.look() for service in services))
        # One may have been detached during the probe.
        there = [service for service in services if service in self]
        kept = {_key(service): msgspec.to_builtins(self._kept(service, dialect)) for service in there}
        try:
            await self._ask(KeepServices(SECTION, kept))
            await self._told(self._door.runtime.after_commit)
        except RacewayError:
            # The commit failed, so a restart would not know these services: detach them again.
            for service in services:
                if _key(service) not in before and service in self:
                    self._take_out(service)
            raise
        return [self._row(service) for service in services]

    def _kept(self, service: AttachedService, dialect: str) -> Attachment:
        """The stored form of a service."""
        pin, line = service.pin, service.line
        name = pin.topic if pin.is_named and self._names.get(pin.text) != pin.topic else ""
        found = line.dialect.value[0] if line.dialect is not None else ""
        return Attachment(pin.text, line.address.url, dialect, found, name)

    async def detach(self, pins: str, url: str) -> int:
        """Detach services and return their number. One from the settings comes back at the next start. Raises
        UnavailableError."""
        await self._ask(CheckWritable())
        address = parse_address(url)
        gone: list[str] = []
        for pattern in parse_pins(pins):
            pin = self.pins.maybe_attached(pattern)
            group = None if pin is None else self.pins.maybe_get(pin)
            service = None if group is None else _maybe_service(group, address.url)
            if service is not None:
                gone.append(_key(service))
                self._take_out(service)
        self._configured.difference_update(gone)
        await self._ask(KeepServices(SECTION, dict.fromkeys(gone)))
        await self._told(self._door.runtime.after_commit)
        return len(gone)

    def rows(self) -> list[ServiceRow]:
        """List the services."""
        return [self._row(service) for service in self]

    def __iter__(self) -> Iterator[AttachedService]:
        return (service for _, group in self.pins for service in group.services)

    async def drain(self, limit_s: float) -> None:
        """Wait until publishes have reached their observers, at most `limit_s` seconds."""
        await asyncio.gather(*(service.courier.drain(limit_s) for service in self))

    def close(self) -> None:
        """Park what has not reached its observer, and close all connections."""
        for task in self._looking:
            task.cancel()
        for service in self:
            service.close("the bus stops")

    # ---- adding and removing -----------------------------------------------------------------------------------------

    def _add_all(self, pins: str, url: str, dialect: str, name: str) -> list[AttachedService]:
        """Attach all of the pins or none."""
        address = parse_address(url, dialect)
        if self._is_own(address.target):
            raise ForbiddenError("the bus", "be attached to itself")
        if not self._allowed.allows(address.target):
            raise ForbiddenError("the bus", f"connect to {address.target}: the address is not in dial.allow")
        patterns = parse_pins(pins)
        if name and len(patterns) > 1:
            raise NameInvalidError(name, "a topic name is for one pin, but several pins are given")
        wanted = [self._pin(pattern, name) for pattern in patterns]
        # All pins are checked before the first is added: the operation is atomic.
        self.pins.check(wanted)
        return [self._add(pin, address) for pin in wanted]

    def _pin(self, pattern: Pattern, name: str) -> Pin:
        """Return the pin under the given name, otherwise under the one it already has."""
        text = canonical_text(pattern)
        if is_internal(lambda key: pattern.get(key, MISSING)):
            raise NameInvalidError(text, "reserved by Seneca and never exposed")
        attached = None if name else self.pins.maybe_attached(pattern)
        return attached or Pin.of(pattern, name or self._names.get(text))

    def _add(self, pin: Pin, address: ServiceAddress) -> AttachedService:
        """Attach a service to one pin, or return it if it is attached already."""
        group = self.pins.maybe_get(pin)
        if group is None:
            group = PinGroup(self._door, pin, self._timeout_ms, self._settings.message_limit, self.pins)
            self.pins.add(pin, group)
            self._door.perform(group, AttachService("request", pin.topic))
        known = _maybe_service(group, address.url)
        if known is not None:
            if address.dialect is None or address.dialect is known.line.dialect:
                return known
            # Another dialect: the old link is replaced.
            self._drop(group, known)
        line = ServiceLine(address, self._settings, self._loop, self._door.runtime.turn)
        service = AttachedService(self._door, pin, self._timeout_ms, line, self._settings)
        group.services.append(service)
        self._door.perform(service, AttachService("publish", pin.topic))
        return service

    def _take_out(self, service: AttachedService) -> None:
        """Detach a service, and remove its pin if it was the last."""
        group = self.pins.maybe_get(service.pin)
        assert group is not None
        self._drop(group, service)
        if not group.services:
            self.pins.remove(group.pin)
            self._door.perform(group, DetachService())

    def _drop(self, group: PinGroup, service: AttachedService) -> None:
        """Remove a service from its group and close it."""
        group.services.remove(service)
        self._door.perform(service, DetachService())
        service.close("the service was detached")

    async def _ask(self, intent: IntentFor[Done]) -> None:
        """Perform an intent of the table itself. Raises its error."""
        await self._told(lambda tell: self._door.perform(self._peer, intent, tell))

    async def _told(self, begin: Callable[[Callable[[Done | RacewayError | None], None]], None]) -> None:
        """Wait until what `begin` starts has told its outcome. Raises it if it is an error."""
        done: asyncio.Future[Done | RacewayError | None] = self._loop.create_future()
        begin(lambda outcome: None if done.done() else done.set_result(outcome))
        if isinstance(outcome := await done, RacewayError):
            raise outcome

    def _row(self, service: AttachedService) -> ServiceRow:
        """List one service."""
        line = service.line
        return ServiceRow(
            pin=service.pin.text,
            topic=service.pin.topic,
            url=line.address.url,
            dialect=line.dialect.value[0] if line.dialect is not None else "unknown",
            state=line.state,
            reason=line.reason,
            origin="settings" if _key(service) in self._configured else "command",
            calls=line.calls,
            failures=line.failures,
            waiting=service.courier.waiting,
            connections=line.open_connections,
        )


def _key(service: AttachedService) -> str:
    """The key of a service in the journal's state."""
    return f"{service.pin.text} {service.line.address.url}"


def _maybe_service(group: PinGroup, url: str) -> AttachedService | None:
    """The service of a group at an address."""
    return next((service for service in group.services if service.line.address.url == url), None)
