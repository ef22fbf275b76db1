"""Calls to an MB bus, and how their answers refuse."""

from __future__ import annotations

from raceway.errors import RacewayError, RemoteError
from raceway.model.failure import maybe_failure
from raceway.net.client.calls import ManyAnswers, OneAnswer
from raceway.wires.mb.codec.encode import SUCCESS

NO_ROUTE = "NO_ROUTE_FOUND"


class _Refusing:
    """How an answer of a bus refuses."""

    __slots__ = ()

    def maybe_refusal(self, answer: bytes) -> RemoteError | None:
        failure = maybe_failure(answer) if answer != SUCCESS else None
        return None if failure is None else RemoteError(failure.code, failure.message, failure.details)


class MbCall(_Refusing, OneAnswer[bytes]):
    """A call to an MB bus."""

    __slots__ = ()


class MbBlock(_Refusing, ManyAnswers[bytes]):
    """Publishes to an MB bus. Those without subscribers are counted in `no_route`; the bus stores them as well."""

    __slots__ = ("no_route",)

    def __init__(self, topic: str, count: int, deadline: float) -> None:
        super().__init__(topic, count, deadline)
        self.no_route = 0

    def failed(self, error: RacewayError) -> None:
        if isinstance(error, RemoteError) and error.reported == NO_ROUTE:
            self.no_route += 1
            self.succeeded()
        else:
            super().failed(error)
