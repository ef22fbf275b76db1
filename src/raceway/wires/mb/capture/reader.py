"""MB captures: frames as TCP carries them, or one message per line with LF written `\\n` and a backslash `\\\\`.

Where frames end is found by their lengths; all other rules are applied to all messages of a piece at once (`rules`).
A capture is read as a server reads what a peer sends: calls to the broker (topics under `system.`) are messages like
others, and their payload has to follow its own rules too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway import config
from raceway.config import MIB
from raceway.model.failure import PREFIX, maybe_failure_code
from raceway.net.codec.frames import LENGTH
from raceway.wires.captures.form import PIECE_BYTES, PIECE_MESSAGES, Form
from raceway.wires.captures.lines import split_lines, unescaped
from raceway.wires.captures.parsed import Borders, CaptureBytes, CaptureFault, Parsed
from raceway.wires.captures.slices import Bytes, as_mask, coded, sentence
from raceway.wires.mb.capture.rules import KINDS, MESSAGE_ID, PARENT_ID, TIMEOUT, MessageChecks
from raceway.wires.mb.codec.header import ACTIONS, MALFORMED_MESSAGE, RESPONSE, MbLimits
from raceway.wires.mb.settings import MbWire

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from raceway.wires.captures.slices import Mask, Places

# Bytes searched for borders at a time.
_WINDOW_BYTES = 4 * MIB


def form(settings: config.Config, first: bytes) -> Form:
    """Return how a capture that begins with the byte `first` is read.

    A frame begins with its length, and no frame is so long that this would begin with a visible character.
    """
    limits = MbLimits(settings.listen.of(MbWire).payload_limit, settings.broker.request_timeout_max_ms)
    timeout_ms = settings.broker.request_timeout_ms
    if first.isspace() or (first.isascii() and first.decode().isprintable()):
        return Form(split_lines, partial(parse_lines, limits=limits), timeout_ms)
    return Form(partial(split_frames, limits=limits), partial(parse, limits=limits), timeout_ms)


# ---- borders --------------------------------------------------------------------------------------------------------


def split_frames(data: CaptureBytes, at: int, limits: MbLimits) -> Borders:
    """Return the borders of the next frames, enough for a piece."""
    size, left = len(data), PIECE_MESSAGES
    stop = min(size, at + PIECE_BYTES)
    edges = [np.array([at])]
    while at < stop and left:
        window = min(stop, at + _WINDOW_BYTES)
        ends = _ends_by_zeros(np.frombuffer(data, np.uint8), at, window, limits)[:left]
        ends = ends if len(ends) else _ends_by_steps(data, at, window, limits)[:left]
        if not len(ends):
            break
        edges.append(ends)
        at, left = int(ends[-1]), left - len(ends)
    fault = _fault_of_frame(data, at, size, limits) if at < stop and left else None
    places = np.concatenate(edges)
    return Borders(places[:-1] + LENGTH.size, places[1:], at, fault)


def _ends_by_zeros(codes: NDArray[np.uint8], at: int, stop: int, limits: MbLimits) -> Places:
    """Return the ends of the frames that are certain, mostly all but the last one before `stop`; maybe none.

    The length of a usual frame begins with two zeros, and texts have none. So two zeros are taken as the beginning of a
    frame as long as each one ends where the next two are: that is what a walk from frame to frame would find.
    """
    zeros = at + np.flatnonzero(codes[at:stop] == 0)
    follows = np.diff(zeros) == 1
    begins = np.append(True, ~follows[:-1]) & follows  # of three zeros, the first two count
    starts = zeros[:-1][begins] if len(zeros) else zeros
    starts = starts[starts <= stop - LENGTH.size]
    if not len(starts) or starts[0] != at:
        return starts[:0]
    # The two high bytes are zero; int64, because uint8 would overflow.
    lengths = codes[starts + 2] * np.int64(256) + codes[starts + 3]
    is_sure = (starts[:-1] + LENGTH.size + lengths[:-1] == starts[1:]) & (lengths[:-1] <= limits.frame_limit)
    return starts[1:][: int(np.argmin(np.append(is_sure, False)))]


def _ends_by_steps(data: CaptureBytes, at: int, stop: int, limits: MbLimits) -> Places:
    """Return the ends of the frames that begin before `stop`, up to one that is malformed."""
    unpack, limit, size = LENGTH.unpack_from, limits.frame_limit, len(data)
    last, ends = min(stop, size - LENGTH.size + 1), []
    while at < last:
        (length,) = unpack(data, at)
        at += LENGTH.size + length
        if length > limit or at > size:
            break
        ends.append(at)
    return np.array(ends, np.int64)


def _fault_of_frame(data: CaptureBytes, at: int, size: int, limits: MbLimits) -> CaptureFault:
    """Return why the frame at a position cannot be read."""
    there = size - at - LENGTH.size
    if there < 0:
        return CaptureFault(MALFORMED_MESSAGE, "the file ends inside the length of a frame")
    (length,) = LENGTH.unpack_from(data, at)
    if length > limits.frame_limit:
        return CaptureFault(MALFORMED_MESSAGE, f"frame of {length}{_over(limits)}")
    return CaptureFault(MALFORMED_MESSAGE, f"the file ends after {there} bytes of a frame of {length}")


def _over(limits: MbLimits) -> str:
    """Return the end of the sentence about a frame over the limit."""
    return f" bytes is over the limit of {limits.frame_limit}"


# ---- messages -------------------------------------------------------------------------------------------------------


def parse(data: Bytes, borders: Borders, limits: MbLimits) -> Parsed:
    """Apply every rule of the specification to every message."""
    return _parsed(MessageChecks(data, borders.starts, borders.stops, limits))


def parse_lines(data: Bytes, borders: Borders, limits: MbLimits) -> Parsed:
    """Parse lines. Their borders stay certain, so a line that is too long is refused and the next one is read."""
    changed, starts, stops, is_odd = unescaped(data, borders.starts, borders.stops)
    messages = MessageChecks(changed, starts, stops, limits)
    messages.verdicts.refuse(is_odd, "invalid escape: a backslash must be followed by n or a backslash")
    lengths = stops - starts
    messages.verdicts.refuse_each(
        lengths > limits.frame_limit,
        lambda rows: sentence("frame of ", pa.array(lengths[rows]).cast(pa.string()), _over(limits)),
    )
    return _parsed(messages)


def _parsed(messages: MessageChecks) -> Parsed:
    """Return the columns of the messages that passed, and the refusals."""
    messages.check()
    rows = np.flatnonzero(messages.verdicts.open)
    message_id, parent_id = messages.maybe_text(MESSAGE_ID, rows), messages.maybe_text(PARENT_ID, rows)
    kinds, payload = messages.kinds[rows], messages.payloads(rows)
    columns = {
        "topic": messages.topics(rows),
        "kind": coded(kinds.astype(np.int32), KINDS),
        "message_id": message_id,
        "parent_id": parent_id,
        # A message names only its nearest ancestor; `chains` finds the first one if the file has it.
        "correlation_id": message_id if parent_id.null_count == len(rows) else pc.coalesce(parent_id, message_id),
        "timeout_ms": messages.maybe_text(TIMEOUT, rows).cast(pa.int64()),
        "version": messages.versions(rows),
        "error": _errors(payload, kinds == ACTIONS.index(RESPONSE)),
        "payload": payload,
    }
    return Parsed(rows, columns, messages.refusals())


def _errors(payload: pa.Array, is_answer: Mask) -> pa.Array:
    """Return the code of each failed answer. Nearly all mention no error, which one search tells."""
    rows = np.flatnonzero(is_answer)
    if not len(rows):
        return pa.nulls(len(payload), pa.string())
    answers = payload.take(pa.array(rows))
    speaks = as_mask(pc.or_(pc.starts_with(answers, PREFIX), pc.match_substring(answers, b'"error"')))
    codes = np.full(len(payload), None, object)
    for row in rows[speaks]:
        code = maybe_failure_code(payload[row].as_py())
        codes[row] = None if code is None else code.decode()
    return pa.array(codes, pa.string())
