"""Captures that are text: one message per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from raceway.wires.captures.form import PIECE_BYTES, PIECE_MESSAGES
from raceway.wires.captures.parsed import Borders, CaptureBytes
from raceway.wires.captures.slices import Bytes

if TYPE_CHECKING:
    from raceway.wires.captures.slices import Mask, Places

NEWLINE, BACKSLASH, LETTER_N = 0x0A, 0x5C, 0x6E


def split_lines(data: CaptureBytes, at: int, blanks: bytes = b"") -> Borders:
    """Return the borders of the next lines, enough for a piece. The last line of a file needs no newline.

    Empty lines, and lines of nothing but `blanks`, are left out.
    """
    codes = np.frombuffer(data, np.uint8)
    stop = min(len(codes), at + PIECE_BYTES)
    ends = at + np.flatnonzero(codes[at:stop] == NEWLINE)
    while not len(ends) and stop < len(codes):  # a line that is longer than a piece
        begun, stop = stop, min(len(codes), stop + PIECE_BYTES)
        ends = begun + np.flatnonzero(codes[begun:stop] == NEWLINE)
    if stop == len(codes) and (not len(ends) or ends[-1] < stop - 1):
        ends = np.append(ends, stop)
    ends = ends[:PIECE_MESSAGES]
    starts = np.concatenate(([at], ends[:-1] + 1))[: len(ends)]
    firsts, lasts = Bytes(codes).stripped(starts, ends, blanks) if blanks else (starts, ends)
    full = firsts < lasts
    end = min(len(codes), int(ends[-1]) + 1) if len(ends) else stop
    return Borders(starts[full], ends[full], end)


def unescaped(data: Bytes, starts: Places, stops: Places) -> tuple[Bytes, Places, Places, Mask]:
    """Return the lines with `\\n` as LF and `\\\\` as a backslash, and a mask of lines with any other escape.

    In a run of backslashes every second one is escaped by the one before it.
    """
    codes = data.codes
    slashes = np.flatnonzero(codes == BACKSLASH)
    if not len(slashes):
        return data, starts, stops, np.zeros(len(starts), np.bool_)
    begins_run = np.append(True, np.diff(slashes) != 1)
    run_starts = np.flatnonzero(begins_run)
    place_in_run = np.arange(len(slashes)) - run_starts[np.cumsum(begins_run) - 1]
    escapes = slashes[place_in_run % 2 == 0]
    # A newline stands for the end of the data, so that a last backslash has a successor too.
    following = np.append(codes, np.uint8(NEWLINE))[escapes + 1]
    odd = escapes[(following != LETTER_N) & (following != BACKSLASH)]
    changed = codes.copy()
    changed[escapes[following == LETTER_N] + 1] = NEWLINE
    kept = np.ones(len(codes), np.bool_)
    kept[escapes] = False
    # Each removed backslash moves everything after it one place to the front.
    before_start, before_stop = np.searchsorted(escapes, starts), np.searchsorted(escapes, stops)
    is_odd = np.searchsorted(odd, stops) > np.searchsorted(odd, starts)
    return Bytes(changed[kept]), starts - before_start, stops - before_stop, is_odd
