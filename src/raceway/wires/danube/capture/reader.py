"""Danube captures: `StreamMessage`s, each after its length as a varint, as protobuf libraries write them to files.

Protobuf is decoded message by message, there being no kernel for it, by the function that decodes what clients send.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from raceway import config
from raceway.errors import MalformedError, PeerError, TooLargeError
from raceway.wires.captures.batches import bronze_columns
from raceway.wires.captures.form import PIECE_BYTES, PIECE_MESSAGES, Form
from raceway.wires.captures.parsed import Borders, CaptureBytes, CaptureFault, Parsed, Refusals
from raceway.wires.captures.slices import Bytes
from raceway.wires.danube.codec.pb.danube_api_pb2 import StreamMessage
from raceway.wires.danube.codec.rows import SendLimits, decode_sends
from raceway.wires.danube.settings import DanubeWire

# A varint of 64 bits has at most ten bytes of 7 bits; the high bit says that another byte follows.
_VARINT_BYTES = 10
_CONTINUES, _BITS = 0x80, 7


def form(settings: config.Config, _: bytes) -> Form:
    """Return how Danube captures are read."""
    wire = settings.listen.of(DanubeWire)
    limits = SendLimits(attributes=wire.attribute_limit, attribute_bytes=wire.attribute_bytes)
    return Form(partial(split, limit=settings.listen.grpc.message_limit), partial(parse, limits=limits))


def split(data: CaptureBytes, at: int, limit: int) -> Borders:
    """Return the borders of the next messages, enough for a piece. After a length over the limit no message can be
    found."""
    size = len(data)
    stop, error = min(size, at + PIECE_BYTES), None
    starts: list[int] = []
    stops: list[int] = []
    while at < stop and len(starts) < PIECE_MESSAGES:
        try:
            length, start = _read_varint(data, at)
            if length > limit:
                raise TooLargeError("message", length, limit)
            if start + length > size:
                raise MalformedError(f"the file ends after {size - start} bytes of a message of {length}")
        except PeerError as found:
            error = found
            break
        starts.append(start)
        at = start + length
        stops.append(at)
    fault = None if error is None else CaptureFault(error.code, str(error))
    return Borders(np.array(starts, np.int64), np.array(stops, np.int64), at, fault)


def _read_varint(data: CaptureBytes, at: int) -> tuple[int, int]:
    """Return a length, and where it ends. Raises MalformedError."""
    length = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES]):
        length |= (byte & ~_CONTINUES) << (_BITS * place)
        if byte < _CONTINUES:
            return length, at + place + 1
    if at + _VARINT_BYTES > len(data):
        raise MalformedError("the file ends inside the length of a message")
    raise MalformedError("the length of a message has more than 10 bytes")


def parse(data: Bytes, borders: Borders, limits: SendLimits) -> Parsed:
    """Parse messages by the rules that need no broker state, such as known producers."""
    messages = data.parts(borders.starts, borders.stops).to_pylist()
    sends = decode_sends(messages, limits)
    columns = bronze_columns(sends.batch)
    # A broker knows the names of its producers by their ids; in a capture only the messages have them.
    names = [StreamMessage.FromString(messages[index]).producer_name or None for index in sends.indexes]
    columns["producer"] = pa.array(names, pa.string())
    refused = Refusals(
        np.array([index for index, _ in sends.refused], np.int64),
        pa.array([error.code for _, error in sends.refused], pa.string()),
        pa.array([str(error) for _, error in sends.refused], pa.string()),
        pa.nulls(len(sends.refused), pa.string()),
    )
    return Parsed(np.array(sends.indexes, np.int64), columns, refused)
