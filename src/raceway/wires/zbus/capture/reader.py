"""zbus captures: messages one after the other, as TCP carries them.

Where messages end is found by a loop: the empty line after a head, then as many bytes as `content-length` says. All
other rules are applied to all messages of a piece at once (`heads`, `columns`). A capture is read as a server
reads what a peer sends. If it is in doubt where a message ends, the rest of the file becomes one refused row: on a
connection nothing would be read after it either.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pyarrow as pa

from raceway import config
from raceway.wires.captures.form import PIECE_BYTES, PIECE_MESSAGES, Form
from raceway.wires.captures.parsed import Borders, CaptureBytes, CaptureFault, Parsed
from raceway.wires.captures.slices import Bytes, replaced_text
from raceway.wires.zbus.capture.columns import CapturedColumns
from raceway.wires.zbus.capture.heads import BAD_FORMAT, HeadChecks
from raceway.wires.zbus.codec.head import END_OF_HEAD, ZbusLimits, too_long
from raceway.wires.zbus.settings import ZbusWire

_find_length = re.compile(rb"\r\ncontent-length:[ \t]*+([0-9]++)[ \t]*+\r\n", re.IGNORECASE).search


def form(settings: config.Config, _: bytes) -> Form:
    """Return how zbus captures are read."""
    wire = settings.listen.of(ZbusWire)
    limits = ZbusLimits(head_bytes=wire.head_limit, headers=wire.header_limit, body_bytes=wire.body_limit)
    return Form(partial(split, limits=limits), partial(parse, limits=limits))


def split(data: CaptureBytes, at: int, limits: ZbusLimits) -> Borders:
    """Return the borders of the next messages, enough for a piece; the last message of a file may be incomplete.

    An implausible length counts as 0: the message is refused when it is parsed, and what follows is not read.
    """
    find, size, head_limit, body_limit = data.find, len(data), limits.head_bytes, limits.body_bytes
    stop, fault = min(size, at + PIECE_BYTES), None
    places = [at]
    add = places.append
    while at < stop and len(places) <= PIECE_MESSAGES:
        end = find(END_OF_HEAD, at, at + head_limit)
        if end < 0:
            is_long, cut = size - at >= head_limit, f"the file ends after {size - at} bytes of a head"
            fault = CaptureFault(BAD_FORMAT, too_long(limits).text if is_long else cut)
            break
        found = _find_length(data, at, end + 2)
        # 18 digits fit into an int64; a longer number is over every limit anyway.
        length = int(found[1].lstrip(b"0")[:18] or b"0") if found is not None else 0
        at = min(size, end + len(END_OF_HEAD) + (length if length <= body_limit else 0))
        add(at)
    edges = np.array(places, np.int64)
    return Borders(edges[:-1], edges[1:], at, fault)


def parse(data: Bytes, borders: Borders, limits: ZbusLimits) -> Parsed:
    """Apply every rule of the codec to every message, up to the first whose end is in doubt."""
    heads = HeadChecks(data, borders, limits)
    broken = heads.check_framing()
    if broken is not None and broken < heads.count - 1:
        known = Borders(borders.starts[: broken + 1], borders.stops[: broken + 1], borders.end)
        # Messages after the broken one were cut at random places: read again without them.
        return parse(data, known, limits)
    heads.check_whole()
    heads.check_text()
    columns = CapturedColumns(heads)
    columns.check()
    rows = np.flatnonzero(heads.verdicts.open)
    refused = heads.verdicts.refusals(lambda refused: replaced_text(heads.key("mq")).take(pa.array(refused)))
    return Parsed(rows, columns.of(rows), refused, broken)
