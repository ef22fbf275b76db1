"""Calls to an MB bus, and how their answers refuse."""

from __future__ import annotations

from raceway.errors import RemoteError
from raceway.model.failure import maybe_failure
from raceway.net.client.calls import ManyAnswers, OneAnswer
from raceway.wires.mb.codec.encode import SUCCESS


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
    """Publishes to an MB bus."""

    __slots__ = ()
