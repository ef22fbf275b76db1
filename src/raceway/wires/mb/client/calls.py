"""Calls to an MB bus, and how their answers refuse."""

from __future__ import annotations

from raceway.errors import RemoteError
from raceway.model.failure import maybe_failure
from raceway.net.client.calls import ManyAnswers, OneAnswer
from raceway.wires.mb.codec.encode import SUCCESS


class MbCall(OneAnswer[bytes]):
    """A call to an MB bus."""

    __slots__ = ()

    def maybe_refusal(self, answer: bytes) -> RemoteError | None:
        return _maybe_mb_refusal(answer)


class MbBlock(ManyAnswers[bytes]):
    """Publishes to an MB bus."""

    __slots__ = ()

    def maybe_refusal(self, answer: bytes) -> RemoteError | None:
        return _maybe_mb_refusal(answer) if answer != SUCCESS else None


def _maybe_mb_refusal(payload: bytes) -> RemoteError | None:
    failure = maybe_failure(payload)
    return None if failure is None else RemoteError(failure.code, failure.message, failure.details)
