"""Attaching a service to a bus, over the console port: the bus then calls it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from raceway.errors import MalformedError, RacewayError, RemoteError
from raceway.net.client.address import Address, parse_url
from raceway.net.client.http_pool import ClientHttpPool
from raceway.net.client.options import Options
from raceway.net.codec.http_stream import HttpReply

log = logging.getLogger("raceway.client")

CONSOLE_PORT = 8600
PATH = "/api/seneca/services"
ANSWER_LIMIT = 1024 * 1024


class Attached:
    """The patterns of one service at one bus, between `begin` and `end`."""

    def __init__(self, address: Address, options: Options, pins: list[str], names: Mapping[str, str]) -> None:
        console = options.console or f"http://{address.host}:{CONSOLE_PORT}"
        self._console = parse_url(console, {"http": CONSOLE_PORT})
        self._options, self._pins, self._names = options, pins, names
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
                await self._ask(b"POST", PATH, msgspec.json.encode(wanted))
                self._held.append(pin)
        except BaseException:
            await self.end()
            raise

    async def end(self) -> None:
        """Detach. Failures are only logged: the bus skips services that do not answer."""
        held, self._held = self._held, []
        for pin in held:
            try:
                await self._ask(b"DELETE", f"{PATH}?{urlencode({'pin': pin, 'url': self._url})}", b"")
            except RacewayError as error:
                log.warning("service not detached from the bus: %s: %s", pin, error)

    async def _ask(self, method: bytes, path: str, body: bytes) -> None:
        lines = [
            b"%b %b HTTP/1.1" % (method, path.encode()),
            b"host: %b:%d" % (self._console.host.encode(), self._console.port),
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
        ]
        if self._options.admin_token:
            lines.append(b"authorization: Bearer " + self._options.admin_token.encode())
        pool = ClientHttpPool(self._console, self._options, ANSWER_LIMIT)
        try:
            response = await pool.call(b"\r\n".join(lines) + b"\r\n\r\n" + body, path, self._options.patience_s)
        finally:
            await pool.close()
        if response.status >= 300:
            raise _refusal(response)


def _refusal(response: HttpReply) -> RemoteError:
    try:
        error = msgspec.json.decode(response.body)["error"]
        return RemoteError(str(error["code"]), str(error["message"]))
    except (msgspec.DecodeError, KeyError, TypeError, MalformedError):
        return RemoteError(str(response.status), response.body[:200].decode("utf-8", "replace"))
