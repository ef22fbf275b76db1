"""Calls of a client to the console port of its bus: JSON over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.errors import RemoteError
from raceway.net.client.address import Address, parse_url
from raceway.net.client.http_pool import ClientHttpPool
from raceway.net.client.link import tls_context
from raceway.net.client.options import Options
from raceway.net.codec.http_stream import HttpReply

CONSOLE_PORT = 8600
ANSWER_LIMIT = 16 * 1024 * 1024


class ConsoleCalls:
    """The console port of the bus at `address`: `Options.console`, or port 8600 of the same host."""

    def __init__(self, address: Address, options: Options) -> None:
        console = options.console or f"http://{address.host}:{CONSOLE_PORT}"
        self._console = parse_url(console, {"http": CONSOLE_PORT, "https": 443})
        self._options = options
        self._context = tls_context(options) if self._console.scheme == "https" else None

    async def ask(self, method: str, path: str, document: Any = None) -> Any:
        """Make a call and return the decoded answer. Raises RemoteError, RequestTimeoutError, ConnectionLostError."""
        body = b"" if document is None else msgspec.json.encode(document)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {self._console.authority}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        # Not `token`: on some wires that is of a queue, and none of a principal.
        if self._options.admin_token:
            lines.append(f"authorization: Bearer {self._options.admin_token}")
        pool = ClientHttpPool(self._console, self._options, ANSWER_LIMIT, self._context)
        try:
            head = "\r\n".join(lines).encode() + b"\r\n\r\n"
            response = await pool.call(head + body, path, self._options.patience_s)
        finally:
            await pool.close()
        if response.status >= 300:
            raise refusal_of_reply(response)
        return msgspec.json.decode(response.body) if response.body else None


def refusal_of_reply(response: HttpReply) -> RemoteError:
    """The error that an answer of the console port with an error status stands for."""
    try:
        error = msgspec.json.decode(response.body)["error"]
        details = error.get("details")
        if error["code"] == RemoteError.code and isinstance(details, dict) and "reported" in details:
            return RemoteError(str(details["reported"]), str(details["text"]), details.get("details"))
        return RemoteError(str(error["code"]), str(error["message"]), details)
    except (msgspec.DecodeError, KeyError, TypeError):
        return RemoteError(str(response.status), response.body[:200].decode("utf-8", "replace"))
