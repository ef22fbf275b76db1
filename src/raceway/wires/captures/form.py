"""How the captures of one wire are read: what each wire's capture reader gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raceway.config import MIB
from raceway.wires.captures.parsed import Borders, CaptureBytes, Parsed
from raceway.wires.captures.slices import Bytes

# Size of a piece: large enough that the cost of starting it does not matter, small enough that many fit into memory.
PIECE_MESSAGES, PIECE_BYTES = 65_536, 32 * MIB


class Form(NamedTuple):
    """Functions that read the captures of a wire.

    split       (the file, where to begin) to the borders of as many messages as make a piece
    parse       (bytes, borders of messages in them) to rows and refusals
    timeout_ms  deadline of a request that names none, as a bus with these settings would give it; None: none
    """

    split: Callable[[CaptureBytes, int], Borders]
    parse: Callable[[Bytes, Borders], Parsed]
    timeout_ms: int | None = None
