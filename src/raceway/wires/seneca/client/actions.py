"""Actions of a Seneca service, selected by pattern, independent of the dialect of a message.

    service = SenecaService()

    @service.action("role:math,cmd:sum")
    def add(message):
        return {"sum": message["a"] + message["b"]}

The action is selected by Seneca's own rule (keys in alphabetical order, the first branch that matches), not by the
number of keys. An action returns an object, a list or None; a RemoteError becomes an answer with its code and details.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from raceway.errors import RemoteError
from raceway.model.document import raw_members, raw_of
from raceway.model.envelope import encode_json
from raceway.net.client.chain import handling
from raceway.wires.seneca.client.flow import Working, decoded, now_ms, working
from raceway.wires.seneca.codec.answer import CallOutcome, Result, Stamp
from raceway.wires.seneca.codec.call import Call
from raceway.wires.seneca.codec.failure import CallFailure, not_found
from raceway.wires.seneca.codec.pattern_text import pattern_of
from raceway.wires.seneca.codec.patterns import PatternRouter, canonical_text
from raceway.wires.seneca.codec.trk import Hops

log = logging.getLogger("raceway.client")

# Calls with the same id within this time are repeats of one call: Seneca's default timeout.
WINDOW_S = 22.222
REMEMBERED, REMEMBERED_BYTES = 10_000, 16 * 1024
NO_RESULT = "seneca: Action {pattern} responded with result that was not an object or array: {result}"


class ActionMessage:
    """A message to an action. Changes to `custom` are returned to the caller with the answer."""

    def __init__(self, data: dict[str, Any], work: Working) -> None:
        self.data = data
        self._work = work

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)

    @property
    def custom(self) -> dict[str, Any]:
        """Custom data that travels with the conversation."""
        return self._work.custom

    @property
    def mid(self) -> str:
        """Id of the message."""
        return self._work.call.mid

    @property
    def cid(self) -> str:
        """Correlation id: equal for all messages of a conversation."""
        return self._work.call.cid

    @property
    def sid(self) -> str:
        """Instance id of the sender."""
        return self._work.call.sid

    @property
    def trk(self) -> Hops:
        """History: one entry per request; the last one with this message's `mid` is its own."""
        return self._work.hops

    @property
    def sync(self) -> bool:
        """Whether the sender waits for an answer."""
        return self._work.call.sync


ActionHandler = Callable[[ActionMessage], Any | Awaitable[Any]]
H = TypeVar("H", bound=ActionHandler)
Runner = Callable[[ActionHandler], ActionHandler]


class SenecaService:
    """See the module. A service may be hosted by several clients at once."""

    def __init__(self) -> None:
        self._router: PatternRouter[tuple[str, ActionHandler]] = PatternRouter()
        # Pin to the topic it has on other wires, where that is not made from its values.
        self.names: dict[str, str] = {}

    def action(self, pattern: str | Mapping[str, Any], *, name: str = "") -> Callable[[H], H]:
        """Return a decorator that adds an action; arguments as of `add`."""

        def register(handler: H) -> H:
            self.add(pattern, handler, name=name)
            return handler

        return register

    def add(self, pattern: str | Mapping[str, Any], handler: ActionHandler, *, name: str = "") -> None:
        """Add an action, or replace that of the same pattern. `handler` takes an ActionMessage and may be a coroutine
        function.

        `name`: topic of the pattern on other wires; needed if its values do not make a topic or make that of another
        pattern. Raises PatternTextError for a malformed pattern.
        """
        keys = pattern_of(pattern if isinstance(pattern, str) else dict(pattern))
        pin = canonical_text(keys)
        self._router.add(keys, (pin, handler))
        if name:
            self.names[pin] = name

    @property
    def pins(self) -> list[str]:
        """All patterns, in canonical form."""
        return [canonical_text(pattern) for pattern, _ in self._router]

    def maybe_action(self, call: Call) -> tuple[str, ActionHandler] | None:
        """The pattern that matches and its handler, if any."""
        return self._router.maybe_find(call.look)


class Performer:
    """Runs the actions of a service for one host. A repeated call waits for the result of the first one."""

    def __init__(self, service: SenecaService, sid: str, run: Runner | None = None) -> None:
        self._service, self.sid = service, sid
        self._run: Runner = run or (lambda handler: handler)
        self._known: OrderedDict[str, tuple[float, asyncio.Future[tuple[CallOutcome, Stamp]]]] = OrderedDict()

    async def perform(self, call: Call) -> tuple[CallOutcome, Stamp]:
        """Run a call and return its outcome. Never raises: an error is an answer, too."""
        self._forget_old()
        known = self._known.get(call.id)
        if known is not None:
            return await asyncio.shield(known[1])
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[CallOutcome, Stamp]] = loop.create_future()
        self._known[call.id] = (loop.time() + WINDOW_S, future)
        try:
            done = await self._perform(call)
        except BaseException:
            # Cancelled: the host was closed during the call.
            future.cancel()
            raise
        future.set_result(done)
        if not _is_worth_keeping(call, done[0]):
            self._known.pop(call.id, None)
        return done

    def _forget_old(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._known:
            key, (until, _) = next(iter(self._known.items()))
            if until > now and len(self._known) < REMEMBERED:
                return
            del self._known[key]

    async def _perform(self, call: Call) -> tuple[CallOutcome, Stamp]:
        work = Working(call, self.sid)
        found = self._service.maybe_action(call)
        if found is None:
            answered_ms = now_ms()
            failure = not_found(call.members)
            failure.hops = work.answered(answered_ms)
            return failure, Stamp(self.sid, work.received_ms, answered_ms)
        pattern, handler = found
        working.set(work)
        handling.set(call.mid)
        outcome = await self._outcome(work, pattern, self._run(handler))
        answered_ms = now_ms()
        outcome.custom, outcome.hops = raw_members(work.custom), work.answered(answered_ms)
        return outcome, Stamp(self.sid, work.received_ms, answered_ms, pattern)

    async def _outcome(self, work: Working, pattern: str, handler: ActionHandler) -> CallOutcome:
        try:
            result = handler(ActionMessage(decoded(work.call.members), work))
            if inspect.isawaitable(result):
                result = await result
            payload = encode_json(result)
        except RemoteError as error:
            return CallFailure(error.reported, error.text, None if error.details is None else raw_of(error.details))
        except Exception as error:  # the handler is the user's code
            log.exception("action %s failed", pattern)
            return CallFailure("act_execute", f"{type(error).__name__}: {error}")
        if payload[:1] in b"{[" or payload == b"null":
            return Result(payload)
        shown = payload[:100].decode("utf-8", "replace")
        return CallFailure("result_not_objarr", NO_RESULT.format(pattern=pattern, result=shown), is_seneca=True)


def _is_worth_keeping(call: Call, outcome: CallOutcome) -> bool:
    """Whether to remember an outcome for repeats of its call.

    Not the failure of a message without an answer, whose sender repeats it to have it tried again; and not a large
    result, to bound memory.
    """
    if isinstance(outcome, CallFailure):
        return call.sync
    return len(outcome.payload) <= REMEMBERED_BYTES
