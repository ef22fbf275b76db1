"""Questions over HTTP that take a while: read from the query, and answered by a thread while the loop goes on.

What a query may say is a record; its limits are checked here and written down in the OpenAPI document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from raceway.errors import BusyError, MalformedError
from raceway.model.envelope import encode_json

Q = TypeVar("Q", bound=msgspec.Struct)
T = TypeVar("T")
# One at work and one behind it: threads share the interpreter with the loop, which comes first.
THREADS, MAX_WAITING = 2, 16


def read_query(request: Request, kind: type[Q]) -> Q:
    """What the query says. Raises MalformedError."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from error


def answered(found: Any) -> Response:
    return Response(encode_json(found), media_type="application/json")


class Desk:
    """Threads for what would hold up the loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="raceway-console")
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done elsewhere. BusyError when too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise BusyError(f"{MAX_WAITING} questions wait already")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
