"""Keep a client connected: open the link, notice its loss, and reconnect with backoff."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from raceway.errors import ConnectionLostError, RacewayError
from raceway.net.client.address import Address
from raceway.net.client.link import Link, Opener, open_link
from raceway.net.client.options import Options

log = logging.getLogger("raceway.client")


class Keeper:
    """Owner of a client's link, and of its replacements.

    `received` gets the messages of the link. `restore` runs on each new link before any other user gets it. `gone` is
    called at each loss, with the error and whether a reconnect follows.
    """

    def __init__(
        self,
        address: Address,
        options: Options,
        opener: Opener,
        received: Callable[[list[Any]], None],
        restore: Callable[[Link], Awaitable[None]],
        gone: Callable[[ConnectionLostError, bool], None],
    ) -> None:
        self._address, self._options, self._opener = address, options, opener
        self._received, self._restore, self._gone = received, restore, gone
        self._link: Link | None = None
        # Notified when `_link` or `_error` is set.
        self._changed = asyncio.Condition()
        self._returning: asyncio.Task[None] | None = None
        # Set when there will be no further link: closed, or lost without `Options.reconnect`.
        self._error: ConnectionLostError | None = None
        # Loop time of the last data received.
        self._heard = 0.0
        self.reconnects = 0

    async def ready_link(self) -> Link:
        """The open link, when its output has room. Raises as `link`."""
        link = await self.link()
        await link.drain()
        return link

    async def link(self) -> Link:
        """The open link. While reconnecting, wait for it, up to `Options.patience_s`.

        Raises ConnectionLostError if it did not come back in time or there will be none.
        """
        # The usual case, without the cost of a lock and a timeout per call.
        if self._link is not None:
            return self._link
        try:
            async with asyncio.timeout(self._options.patience_s), self._changed:
                await self._changed.wait_for(lambda: self._link is not None or self._error is not None)
        except TimeoutError:
            raise ConnectionLostError(
                str(self._address), f"no reconnect within {self._options.patience_s:g} s"
            ) from None
        if self._link is None:
            assert self._error is not None
            raise self._error
        return self._link

    def maybe_link(self) -> Link | None:
        """The open link; None while there is none."""
        return self._link

    async def close(self) -> None:
        """Close the link and stop reconnecting. Callers waiting in `link` get ConnectionLostError. Idempotent."""
        # First: `lost` then takes the end of the link for an orderly one.
        self._error = self._error or ConnectionLostError(str(self._address), "the client was closed")
        if self._returning is not None:
            self._returning.cancel()
        link, self._link = self._link, None
        await self._tell()
        if link is not None:
            await link.close()

    def idle_s(self) -> float:
        """Seconds since data was last received; 0 while there is no link."""
        return asyncio.get_running_loop().time() - self._heard if self._link is not None else 0.0

    def drop(self, reason: str) -> None:
        """Abort the link because of `reason`; reconnecting follows as after any loss."""
        if self._link is not None:
            self._link.abort(reason)

    # ---- as owner of the link ---------------------------------------------------------------------------------------

    def received(self, messages: list[Any]) -> None:
        """Pass on messages of the link, and note that the peer is alive."""
        self._heard = asyncio.get_running_loop().time()
        self._received(messages)

    def lost(self, link: Link, reason: str) -> None:
        """Report the loss of a link, and begin reconnecting if that is asked for."""
        if self._error is not None:
            return
        error = ConnectionLostError(str(self._address), reason)
        # False for a link that `open` is still restoring.
        established = self._link is link
        self._link = None
        if not self._options.reconnect and established:
            self._error = error
        self._gone(error, self._options.reconnect)
        # A link lost during `restore` is not established yet: `open` raises, and `_come_back` tries again.
        if established and self._options.reconnect:
            log.warning("%s; reconnecting", error)
            self._returning = asyncio.get_running_loop().create_task(self._come_back())

    async def open(self) -> None:
        """Connect. Raises ConnectionLostError if that fails; there is no second attempt."""
        link = await open_link(self._address, self._options, self, self._opener)
        # The idle time of the new link begins now, not with the last data of the old one.
        self._heard = asyncio.get_running_loop().time()
        try:
            await self._restore(link)
        except BaseException:
            # Cancelled by `close`, or refused: a link that is not restored must not stay open.
            await link.close()
            raise
        # Only now: calls of users must not overtake what `restore` sends.
        self._link = link
        await self._tell()

    async def _come_back(self) -> None:
        """Reconnect until it succeeds, doubling the delay up to `Options.backoff_max_s`."""
        delay = self._options.backoff_s
        while True:
            # Jitter of up to half the delay, so that many clients do not reconnect at the same moment.
            await asyncio.sleep(delay * (1 - random.random() / 2))  # noqa: S311 - not a secret
            delay = min(2 * delay, self._options.backoff_max_s)
            try:
                await self.open()
            except RacewayError as error:
                log.info("reconnect failed: %s", error)
            else:
                self.reconnects += 1
                log.warning("reconnected to %s", self._address)
                return

    async def _tell(self) -> None:
        """Wake callers that wait in `link`."""
        async with self._changed:
            self._changed.notify_all()
