"""Attaching a service to a bus, over the console port: the bus then calls it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import urlencode

from raceway.errors import RacewayError
from raceway.net.client.address import Address
from raceway.net.client.console import ConsoleCalls
from raceway.net.client.options import Options

log = logging.getLogger("raceway.client")

PATH = "/api/seneca/services"


class Attached:
    """The patterns of one service at one bus, between `begin` and `end`."""

    def __init__(self, address: Address, options: Options, pins: list[str], names: Mapping[str, str]) -> None:
        self._console = ConsoleCalls(address, options)
        self._pins, self._names = pins, names
        self._held: list[str] = []
        self._url = ""

    async def begin(self, url: str) -> None:
        """Attach all patterns, or none if one is refused. Raises RemoteError, ConnectionLostError."""
        self._url = url
        unnamed = ";".join([pin for pin in self._pins if pin not in self._names])
        named = [pin for pin in self._pins if pin in self._names]
        try:
            for pin in [*named, unnamed] if unnamed else named:
                wanted = {"pin": pin, "url": url, "dialect": "S", "name": self._names.get(pin, "")}
                await self._console.ask("POST", PATH, wanted)
                self._held.append(pin)
        except BaseException:
            await self.end()
            raise

    async def end(self) -> None:
        """Detach. Failures are only logged: the bus skips services that do not answer."""
        held, self._held = self._held, []
        for pin in held:
            try:
                await self._console.ask("DELETE", f"{PATH}?{urlencode({'pin': pin, 'url': self._url})}")
            except RacewayError as error:
                log.warning("service not detached from the bus: %s: %s", pin, error)
