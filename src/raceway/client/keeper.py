"""Keeps a client connected: opens the link, notices when it is dead, and brings a new one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from raceway.client.address import Address
from raceway.client.link import Link, open_link
from raceway.client.options import Options
from raceway.errors import ConnectionLostError, RacewayError

log = logging.getLogger("raceway.client")


class Keeper:
    """`restore` runs on each new link before anybody else may use it; `gone` hears of each loss, and whether a new
    link will be sought."""

    def __init__(
        self,
        address: Address,
        options: Options,
        received: Callable[[list[Any]], None],
        restore: Callable[[Link], Awaitable[None]],
        gone: Callable[[ConnectionLostError, bool], None],
    ) -> None:
        self._address, self._options = address, options
        self._received, self._restore, self._gone = received, restore, gone
        self._link: Link | None = None
        self._changed = asyncio.Condition()
        self._returning: asyncio.Task[None] | None = None
        self._error: ConnectionLostError | None = None
        self._heard = 0.0
        self.reconnects = 0

    async def open(self) -> None:
        """Raises ConnectionLostError; no further attempt is made then."""
        await self._connect()

    async def link(self) -> Link:
        """The open link, waited for if it is being brought back. Raises ConnectionLostError."""
        if self._link is not None:
            return self._link
        try:
            async with asyncio.timeout(self._options.patience_s), self._changed:
                await self._changed.wait_for(lambda: self._link is not None or self._error is not None)
        except TimeoutError:
            raise ConnectionLostError(str(self._address), "it did not come back in time") from None
        if self._link is None:
            assert self._error is not None
            raise self._error
        return self._link

    def maybe_link(self) -> Link | None:
        return self._link

    async def close(self) -> None:
        """May be repeated. Whoever waits for a link gets an error."""
        self._error = self._error or ConnectionLostError(str(self._address), "the client was closed")
        if self._returning is not None:
            self._returning.cancel()
        link, self._link = self._link, None
        await self._tell()
        if link is not None:
            await link.close()

    def idle_s(self) -> float:
        """How long nothing has come; 0 while there is no link."""
        return asyncio.get_running_loop().time() - self._heard if self._link is not None else 0.0

    def drop(self, reason: str) -> None:
        """The link is of no use any more."""
        if self._link is not None:
            self._link.abort(reason)

    # ---- as owner of the link ---------------------------------------------------------------------------------------

    def received(self, messages: list[Any]) -> None:
        self._heard = asyncio.get_running_loop().time()
        self._received(messages)

    def lost(self, link: Link, reason: str) -> None:
        if self._error is not None:
            return
        error = ConnectionLostError(str(self._address), reason)
        established = self._link is link
        self._link = None
        if not self._options.reconnect and established:
            self._error = error
        self._gone(error, self._options.reconnect)
        # While a new link is being restored its loss is the business of whoever restores it.
        if established and self._options.reconnect:
            log.warning("%s; trying to come back", error)
            self._returning = asyncio.get_running_loop().create_task(self._come_back())

    async def _connect(self) -> None:
        link = await open_link(self._address, self._options, self)
        self._heard = asyncio.get_running_loop().time()
        try:
            await self._restore(link)
        except BaseException:
            await link.close()
            raise
        self._link = link
        await self._tell()

    async def _come_back(self) -> None:
        delay = self._options.backoff_s
        while True:
            # Up to half of the delay is chance, so that many clients do not come back in one moment.
            await asyncio.sleep(delay * (1 - random.random() / 2))  # noqa: S311 - not a secret
            delay = min(2 * delay, self._options.backoff_max_s)
            try:
                await self._connect()
            except RacewayError as error:
                log.info("not back yet: %s", error)
            else:
                self.reconnects += 1
                log.warning("connection to %s is back", self._address)
                return

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
