"""Transports of a Seneca client: HTTP, or lines over TCP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from raceway.errors import ConfigError, ConnectionLostError, MalformedError
from raceway.model.document import raw_members
from raceway.net.client.address import Address
from raceway.net.client.calls import Calls, OneAnswer
from raceway.net.client.http_pool import ClientHttpPool
from raceway.net.client.keeper import Keeper
from raceway.net.client.link import Link, LinkProtocol, Owner
from raceway.net.client.options import Options
from raceway.wires.seneca.codec import outgoing as codec
from raceway.wires.seneca.codec.call import Dialect
from raceway.wires.seneca.codec.line import LineReceiver
from raceway.wires.seneca.codec.outgoing import ListenerReply, Outgoing, call_http, call_line
from raceway.wires.seneca.ids import fresh_id

# Largest HTTP body of an answer.
ANSWER_LIMIT = 64 * 1024 * 1024
TICK_S = 0.05
PING = raw_members({"role": "seneca", "cmd": "ping"})
# Values of `Options.dialect` for each transport.
HTTP_DIALECTS = {"S": Dialect.SEED, "W": Dialect.WEB, "L": Dialect.LEGACY, "any": Dialect.ANY}
LINE_DIALECTS = {"S": Dialect.SEED_LINE, "T": Dialect.TCP}


def find_way(address: Address, options: Options) -> Http | LineCalls:
    """The transport for a URL and a dialect. Raises ConfigError if they do not go together."""
    over_tcp = address.scheme == "seneca+tcp"
    known = LINE_DIALECTS if over_tcp else HTTP_DIALECTS
    dialect = known.get(options.dialect)
    if dialect is None:
        raise ConfigError(
            "dialect", f"{options.dialect!r} is not available over {address.scheme}: use one of {', '.join(known)}"
        )
    return LineCalls(address, options, dialect) if over_tcp else Http(address, options, dialect)


class Http:
    """Calls over HTTP. `check` returns if the peer answers; raises ConnectionLostError, RequestTimeoutError."""

    confirms = True

    def __init__(self, address: Address, options: Options, dialect: Dialect) -> None:
        self._pool = ClientHttpPool(address, options, ANSWER_LIMIT)
        self._dialect = dialect
        self._host = address.authority.encode()
        self._path = (address.path if address.path != "/" else "/act").encode()
        self.open = self.check = self._pool.open
        self.close = self._pool.close

    async def call(self, outgoing: Outgoing, timeout_s: float) -> ListenerReply:
        """Send a message and wait for its reply. Raises RequestTimeoutError, ConnectionLostError, MalformedError."""
        request = call_http(self._dialect, outgoing).to_bytes(self._host, self._path)
        response = await self._pool.call(request, outgoing.pattern or "", timeout_s)
        return codec.read_http_answer(self._dialect, response.status, response.headers, response.body)

    send = call


class LineCalls:
    """Calls as lines over one TCP connection that reconnects; answers are matched by id."""

    confirms = False

    def __init__(self, address: Address, options: Options, dialect: Dialect) -> None:
        self._keeper = Keeper(address, options, _open_lines, self._receive, _restore_nothing, self._lost)
        self._dialect, self._patience_s = dialect, options.patience_s
        self._calls: Calls[ListenerReply] = Calls(lambda: asyncio.get_running_loop().time())
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
        """Ping. An npm instance answers the action itself, a bus with an error; either proves that it is alive."""
        await self.call(Outgoing(fresh_id(), fresh_id(), "", PING), self._patience_s)

    async def call(self, outgoing: Outgoing, timeout_s: float) -> ListenerReply:
        """Send a message and wait for its reply. Raises as over HTTP."""
        link = await self._keeper.ready_link()
        # A failure is a reply with details that an exception would lose, so no answer is a refusal.
        answer: OneAnswer[ListenerReply] = OneAnswer(
            outgoing.pattern or "", asyncio.get_running_loop().time() + timeout_s
        )
        self._calls.add(outgoing.id.encode(), answer)
        link.send(call_line(self._dialect, outgoing))
        return await answer.result()

    async def send(self, outgoing: Outgoing, timeout_s: float) -> ListenerReply:
        """Send without confirmation: returns when the message was handed to the connection."""
        (await self._keeper.ready_link()).send(call_line(self._dialect, outgoing))
        return ListenerReply(accepted=True)

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
    """Do nothing after a reconnect: the peer keeps no state of a connection that only calls."""


async def _open_lines(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: LinkProtocol(owner, _bounded(LineReceiver(options.frame_limit)), b"".join), address.host, address.port
    )
    return protocol.link


def _bounded(lines: LineReceiver) -> Callable[[bytes], list[Any]]:
    """Receive lines; raise MalformedError for one above the limit."""

    def receive(data: bytes) -> list[Any]:
        found = lines.receive_data(data)
        if lines.overflow:
            raise MalformedError("line is longer than Options.frame_limit")
        return found

    return receive
