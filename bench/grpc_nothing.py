"""A grpcio server that does nothing: the upper bound of grpcio. Bytes in, a constant out, no message decoded.

    python -m bench.grpc_nothing PORT

`SendMessage` answers at once; `Count` streams the requested number and size of messages (`1000 200`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from bench.danube_wire import COUNT, SEND


async def send(request: bytes, context: Any) -> bytes:
    return b"\x08\x02"


async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
    number, size = map(int, request.split())
    message = bytes(size)
    for _ in range(number):
        yield message


async def main(port: int) -> None:
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", 10_000)])
    handlers = {
        SEND: grpc.unary_unary_rpc_method_handler(send), COUNT: grpc.unary_stream_rpc_method_handler(count),
    }  # fmt: skip
    for path, handler in handlers.items():
        _, service, method = path.split("/")
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
