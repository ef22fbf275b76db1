"""Frames of the link: 4 bytes length of the body, big-endian; 1 byte type; the body in msgpack.

There is no lane and no epoch in a frame: a connection leads to one lane, and `Welcome` says which. A lane that starts
again is reached by a new connection, so that no frame of the old one can be taken for one of the new.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from raceway.errors import MalformedError

_HEAD = struct.Struct(">IB")


class FrameType(IntEnum):
    """Types of frames. Those from 64 on come from the lane."""

    HELLO = 1
    CONNECT = 2
    LEAVE = 3
    PERFORM = 4
    WRITTEN = 5
    AFTER_COMMIT = 6
    START_STREAM = 7
    ROOM = 8
    CLOSE_STREAM = 9
    WELCOME = 64
    OUTCOME = 65
    COMMITTED = 66
    COPIES = 67
    FORWARDS = 68
    ANSWERS = 69
    FAILURE = 70
    HANG_UP = 71
    ANNOUNCE = 72
    HANDOVER = 73
    STREAM_ENDED = 74
    ENTRIES = 75
    QUEUE_ANSWER = 76
    DISMISSED = 77
    LOG = 78


class LinkFrame(NamedTuple):
    """A frame. `body` is msgpack."""

    type: FrameType
    body: bytes


_TYPES = {each.value: each for each in FrameType}


def encode_frame(kind: FrameType, body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return _HEAD.pack(len(body), kind) + body


class FrameReader:
    """Cuts received bytes into frames. A body is at most `limit` bytes long."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> list[LinkFrame]:
        """Return the frames that these bytes complete. Raises MalformedError; then nothing more can be read."""
        self._buffer += data
        frames: list[LinkFrame] = []
        buffer, at, size = self._buffer, 0, len(self._buffer)
        while size - at >= _HEAD.size:
            length, number = _HEAD.unpack_from(buffer, at)
            kind = _TYPES.get(number)
            if kind is None:
                raise MalformedError(f"unknown frame type {number}")
            if length > self._limit:
                raise MalformedError(f"frame of {length} bytes: the limit is {self._limit}")
            begin = at + _HEAD.size
            if size - begin < length:
                break
            frames.append(LinkFrame(kind, bytes(memoryview(buffer)[begin : begin + length])))
            at = begin + length
        if at:
            del buffer[:at]
        return frames

    @property
    def unfinished(self) -> int:
        """Number of bytes received of a frame that is not complete."""
        return len(self._buffer)
