"""Batches and errors as parts of a frame's body.

A batch is a map of its columns as they are: a value for all rows, or a list. An error is its class and its facts.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from raceway import errors
from raceway.errors import FactsError, MalformedError, RacewayError
from raceway.model.envelope import Batch, Column


class BatchColumns(msgspec.Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A batch. `offsets`: the first one and how many, if they are dense; otherwise they are a column."""

    count: int
    topic: Column[bytes] = None
    wire: Column[bytes] = None
    kind: Column[bytes] = None
    message_id: Column[bytes] = None
    forwarded_id: Column[bytes] = None
    parent_id: Column[bytes] = None
    correlation_id: Column[bytes] = None
    reply_to: Column[bytes] = None
    version: Column[bytes] = None
    producer: Column[bytes] = None
    routing_key: Column[bytes] = None
    encoding: Column[bytes] = None
    error: Column[bytes] = None
    offset: Column[int] = None
    offsets: tuple[int, int] | None = None
    time_us: Column[int] = None
    sent_ms: Column[int] = None
    answers: Column[int] = None
    timeout_ms: Column[int] = None
    producer_id: Column[int] = None
    schema_id: Column[int] = None
    schema_version: Column[int] = None
    attributes: Column[bytes] = None
    hops: Column[bytes] = None
    payload: Column[bytes] = None


class ErrorFacts(msgspec.Struct, array_like=True):
    """An error: the name of its class, its attributes, the arguments it was made with."""

    kind: str
    facts: dict[str, Any]
    args: list[Any]


_ERRORS = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, RacewayError)}


def columns_of(batch: Batch) -> dict[str, Any]:
    """Return the columns of a batch, completed, as they are sent."""
    batch.complete()
    columns = dict(batch.__dict__)
    offset = columns.get("offset")
    if type(offset) is range:
        del columns["offset"]
        columns["offsets"] = (offset.start, len(offset))
    return columns


def batch_from(sent: Any) -> Batch:
    """Return the batch of these columns. Raises ValidationError or MalformedError."""
    columns = msgspec.convert(sent, BatchColumns)
    count, found = columns.count, {}
    if count < 0:
        raise MalformedError("batch with a negative number of rows")
    for name in sent:
        column = getattr(columns, name)
        if type(column) is list and len(column) != count:
            raise MalformedError(f"column {name} has {len(column)} values for {count} rows")
        found[name] = column
    offsets = found.pop("offsets", None)
    if offsets is not None:
        first, dense = offsets
        if dense != count:
            raise MalformedError(f"{dense} offsets for {count} rows")
        found["offset"] = range(first, first + dense)
    del found["count"]
    return Batch(count, **found)


def sendable(error: RacewayError | None) -> Any:
    """Return an error in the form in which it is encoded: by itself it would be taken for a record of its facts.

    An error that cannot be sent is told as one of the bus, with its text.
    """
    if error is None:
        return None
    kind = type(error)
    if _ERRORS.get(kind.__name__) is kind:
        found = ErrorFacts(kind.__name__, dict(vars(error)), list(error.args))
        try:
            encode_body(found)
        except (TypeError, ValueError, OverflowError):
            pass  # facts of a program's own types
        else:
            return found
    return ErrorFacts("RacewayError", {}, [str(error)])


def error_from(sent: Any) -> RacewayError:
    """Return the error with these facts. Raises ValidationError or MalformedError."""
    told = msgspec.convert(sent, ErrorFacts)
    kind = _ERRORS.get(told.kind)
    if kind is None:
        raise MalformedError(f"unknown error {told.kind}")
    error = kind.__new__(kind)
    # The attributes are the facts, so that the constructors, which differ, are not needed.
    vars(error).update(told.facts)
    error.args = tuple(told.args)
    if issubclass(kind, FactsError):
        try:
            str(error)
        except (AttributeError, KeyError, TypeError, ValueError) as wrong:
            raise MalformedError(f"attributes of the error {told.kind} are missing") from wrong
    return error


def _encode(part: Any) -> Any:
    if isinstance(part, Batch):
        return columns_of(part)
    if isinstance(part, bytes):  # a wire's own kind of id, which only the wire distinguishes from the id
        return bytes(part)
    raise TypeError(f"{type(part).__name__} cannot be sent over a link")


def _decode(kind: type, sent: Any) -> Any:
    if kind is Batch:
        return batch_from(sent)
    if kind is RacewayError:
        return error_from(sent)
    raise TypeError(f"{kind.__name__} cannot be received over a link")


encode_body = msgspec.msgpack.Encoder(enc_hook=_encode).encode


class BodyDecoder:
    """Decodes bodies of one type."""

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kind, dec_hook=_decode).decode

    def __call__(self, body: bytes) -> Any:
        """Return the decoded body. Raises MalformedError."""
        try:
            return self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedError(f"malformed body of a frame: {error}") from error
