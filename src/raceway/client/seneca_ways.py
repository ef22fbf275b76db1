"""How a message leaves for a bus or a listener, and how its answer comes back: over HTTP, or as lines over TCP."""

from __future__ import annotations

import asyncio
from typing import Protocol

from raceway.client.address import Address
from raceway.client.calls import Calls, OneAnswer
from raceway.client.http_pool import HttpPool
from raceway.client.keeper import Keeper
from raceway.client.link import Link
from raceway.client.options import Options
from raceway.client.seneca_flow import fresh_id
from raceway.codec import seneca as codec
from raceway.codec.seneca import Dialect, Outgoing, Reply
from raceway.errors import ConfigError, ConnectionLostError, MalformedError, RemoteError

# The largest answer.
ANSWER_LIMIT = 64 * 1024 * 1024
TICK_S = 0.05
PING = codec.raw_members({"role": "seneca", "cmd": "ping"})
# What `Options.dialect` may be, and over which transport.
HTTP_DIALECTS = {"S": Dialect.SEED, "W": Dialect.WEB, "L": Dialect.LEGACY, "any": Dialect.ANY}
LINE_DIALECTS = {"S": Dialect.SEED_LINE, "T": Dialect.TCP}


class Way(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def check(self) -> None:
        """Is somebody there? Raises ConnectionLostError, RequestTimeoutError."""
        ...

    async def call(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        """Raises RequestTimeoutError, ConnectionLostError, MalformedError."""
        ...

    async def send(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        """Expecting no result; the reply may say that it was refused. Raises as `call`."""
        ...


def find_way(address: Address, options: Options) -> Way:
    """Raises ConfigError for a dialect that the transport does not have."""
    over_tcp = address.scheme == "seneca+tcp"
    known = LINE_DIALECTS if over_tcp else HTTP_DIALECTS
    dialect = known.get(options.dialect)
    if dialect is None:
        raise ConfigError("dialect", f"{options.dialect!r} is not spoken over {address.scheme}: {', '.join(known)} are")
    return Lines(address, options, dialect) if over_tcp else Http(address, options, dialect)


class Http:
    def __init__(self, address: Address, options: Options, dialect: Dialect) -> None:
        self._pool = HttpPool(address, options, ANSWER_LIMIT)
        self._dialect = dialect
        self._host = address.authority.encode()
        self._path = (address.path if address.path != "/" else "/act").encode()
        self.open = self.check = self._pool.open
        self.close = self._pool.close

    async def call(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        request = codec.http_request_bytes(codec.call_http(self._dialect, outgoing), self._host, self._path)
        response = await self._pool.call(request, outgoing.pattern or "", timeout_s)
        return codec.read_http_answer(self._dialect, response.status, response.headers, response.body)

    send = call


class _Answer(OneAnswer[Reply]):
    __slots__ = ()

    def maybe_refusal(self, answer: Reply) -> RemoteError | None:
        """Failures have more to say than an exception: they are looked at later."""
        return None


class Lines:
    """One connection that comes back by itself; answers are matched by their ids."""

    def __init__(self, address: Address, options: Options, dialect: Dialect) -> None:
        self._keeper = Keeper(address, options, self._receive, _restore_nothing, self._lost)
        self._dialect, self._patience_s = dialect, options.patience_s
        self._calls: Calls[Reply] = Calls(lambda: asyncio.get_running_loop().time())
        self._ticking: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        await self._keeper.open()
        self._tick()

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        await self._keeper.close()
        self._calls.lose(ConnectionLostError("", "the client was closed"), keep_repeatable=False)

    async def check(self) -> None:
        """Every instance has this action for itself; a bus, which never hands it on, says so. Either is an answer."""
        await self.call(Outgoing(fresh_id(), fresh_id(), "", PING), self._patience_s)

    async def call(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        link = await self._ready_link()
        answer = _Answer(outgoing.pattern or "", asyncio.get_running_loop().time() + timeout_s)
        self._calls.add(outgoing.id.encode(), answer)
        link.send(codec.call_line(self._dialect, outgoing))
        return await answer.result()

    async def send(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        """Nothing answers: done means that it was handed to the connection."""
        (await self._ready_link()).send(codec.call_line(self._dialect, outgoing))
        return Reply(accepted=True)

    async def _ready_link(self) -> Link:
        link = await self._keeper.link()
        await link.drain()
        return link

    def _tick(self) -> None:
        self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._calls.sweep()

    def _receive(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                reply = codec.read_answer_line(line)
            except MalformedError as error:
                self._keeper.drop(str(error))
                return
            if reply is not None and reply.mid is not None and reply.cid is not None:
                self._calls.answer(f"{reply.mid}/{reply.cid}".encode(), reply)

    def _lost(self, error: ConnectionLostError, coming_back: bool) -> None:
        self._calls.lose(error, keep_repeatable=False)


async def _restore_nothing(link: Link) -> None:
    """A connection that only asks leaves nothing behind at the other side."""
