"""Frames that announce their length in four bytes, big-endian, before them."""

from __future__ import annotations

from struct import Struct

LENGTH = Struct(">I")


class Unfinished:
    """The bytes of a frame that has not come whole. Pieces are kept apart and joined once, however small they are."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._wanted = 0

    def maybe_join(self, data: bytes) -> bytes | None:
        """What can be read now, `data` at its end; None while the frame is still not whole."""
        if not self._pieces:
            return data
        self._pieces.append(data)
        self.size += len(data)
        if self.size < self._wanted:
            return None
        joined = b"".join(self._pieces)
        self.keep(b"")
        return joined

    def keep(self, rest: bytes) -> None:
        """Wait for the rest of the frame that starts here, or for the rest of its length word."""
        self.size = len(rest)
        self._pieces = [rest] if rest else []
        self._wanted = 4 + LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else 4
