"""Frames with a length prefix of four bytes, big-endian."""

from __future__ import annotations

from struct import Struct

LENGTH = Struct(">I")


class Unfinished:
    """The buffer of an incomplete frame. Pieces are joined once, however small they are."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._wanted = 0

    def maybe_join(self, data: bytes) -> bytes | None:
        """Return the buffered bytes followed by `data`; None while the frame is still incomplete."""
        if not self._pieces:
            return data
        self._pieces.append(data)
        self.size += len(data)
        # Joining for each piece would be quadratic for a frame that arrives byte by byte.
        if self.size < self._wanted:
            return None
        joined = b"".join(self._pieces)
        self.keep(b"")
        return joined

    def keep(self, rest: bytes) -> None:
        """Buffer the start of an incomplete frame, which may be a part of its length prefix."""
        self.size = len(rest)
        self._pieces = [rest] if rest else []
        # Once the length is read, the caller has checked it: it bounds what is buffered.
        self._wanted = 4 + LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else 4
