"""Seneca's TCP dialect (T) in loads with many connections: calls with ids of their own, one JSON document per line.

    python -m bench.crowd_seneca PORT

is the service that answers them: it says what it was told, and knows only where its lines differ from a response.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from typing import cast

import uvloop

from bench.crowd_wires import CountReplies, counter
from bench.wires import END

PIN = "role:crowd,cmd:*"
_ID_DIGITS = 10
_START = b'{"id":"'


class CrowdSeneca:
    def greet(self, peer: socket.socket) -> None: ...

    def request(self, number: int, text: bytes, lane: int) -> bytes:
        line = b'%b%b/%012d","kind":"act","origin":"crowd","track":["crowd"],"time":{"client_sent":%d},' % (
            _START, bytes(12), number, time.time_ns() // 1_000_000,
        )  # fmt: skip
        # Payloads are JSON but for their last byte.
        return line + b'"act":{"role":"crowd","cmd":"say","x":%b},"sync":true}\n' % text[: -len(END)]

    def numbered(self, data: bytearray, begins: Iterable[int], lane: int) -> None:
        """Give the calls that begin there ids that were never sent: a repeat would get the answer of the first one."""
        # Fewer than a million calls a second, so that the time of a later run is beyond them.
        number = time.monotonic_ns() // 1000
        for at in begins:
            at += len(_START)
            data[at : at + 12] = b"%02d%010d" % (lane, number % 10**_ID_DIGITS)
            number += 1

    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies:
        return counter(b"\n")

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        for line in data.splitlines():
            found = json.loads(line)
            if "error" in found or "res" not in found:
                raise ConnectionError(line[:300].decode(errors="replace"))
            yield json.dumps(found["res"]["x"], separators=(",", ":")).encode() + END


class Saying(asyncio.Protocol):
    """A listener of the dialect whose action returns its message."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast(asyncio.Transport, transport).write  # uvloop's transports are not subclasses of asyncio's
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        whole, end, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        if end:
            said = whole.replace(b'"kind":"act"', b'"kind":"res"').replace(b'"act":{', b'"res":{')
            self._write(said + end)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Saying, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
