"""Heads of many zbus messages at once: lines, names, values, and where framing breaks.

Cuts are found with NumPy: each CRLF of a head ends a line, the first colon of a line ends its name. A name is checked
once for each spelling. So is a first line, by the codec's own function: clients send one or a few, again and again.
Only if URIs carry whole messages there are as many first lines as messages, and no kernel decodes their escapes.

Rules are in the order of `codec.head`, with its sentences. A differential test holds both to the same verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.errors import MalformedError
from raceway.wires.captures.parsed import Borders
from raceway.wires.captures.slices import Bytes, count_between, first_from, is_text, matches, sentence
from raceway.wires.captures.verdicts import Verdicts, spread, where
from raceway.wires.zbus.codec.head import ALIASES, BLANK, ONCE, First, ZbusLimits, read_first

if TYPE_CHECKING:
    from raceway.wires.captures.slices import Mask, Places

BAD_FORMAT = "400"
TOO_LARGE = "413"

# Control characters other than tab, LF and CR; those two are checked as line ends.
_CONTROL = np.zeros(256, np.bool_)
_CONTROL[[*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F]] = True
_NAME = r"\A[!#$%&'*+\-.^_`|~0-9A-Za-z]+\z"
_OLDER = {newer: older for older, newer in ALIASES.items()}


class HeadChecks:
    """Messages being checked; results are in `verdicts`.

    `check_framing` returns the first message after which no other can be found.
    """

    def __init__(self, data: Bytes, borders: Borders, limits: ZbusLimits) -> None:
        self.data, self._limits = data, limits
        self._starts, self._stops = borders.starts, borders.stops
        self.count = len(borders.starts)
        self.verdicts = Verdicts(self.count, BAD_FORMAT)
        self._cut_lines()
        self._cut_headers()
        self._read_firsts()

    # ---- cuts -------------------------------------------------------------------------------------------------------

    def _cut_lines(self) -> None:
        """Cut all heads into lines; `_owners` has the message of each."""
        # Padding, so that looking up to three bytes ahead needs no bounds check.
        codes = np.append(self.data.codes, np.zeros(4, np.uint8))
        returns = self.data.places_of(b"\r")
        line_ends = returns[codes[returns + 1] == 0x0A]
        head_ends = line_ends[(codes[line_ends + 2] == 0x0D) & (codes[line_ends + 3] == 0x0A)]
        self._ends = first_from(head_ends, self._starts, len(self.data.codes))
        self.body_starts = self._ends + 4
        first, last = np.searchsorted(line_ends, self._starts), np.searchsorted(line_ends, self._ends, "right")
        self._line_counts = last - first
        self._owners = np.repeat(np.arange(self.count), self._line_counts)
        before = np.cumsum(self._line_counts) - self._line_counts
        within = np.arange(len(self._owners)) - before[self._owners]
        self._line_stops = line_ends[first[self._owners] + within]
        self._line_starts = np.where(
            within == 0, self._starts[self._owners], np.append(0, self._line_stops[:-1] + 2)[: len(within)]
        )
        self._is_first = within == 0
        self._has_control = (
            (count_between(returns, self._starts, self._ends) != self._line_counts - 1)
            | (count_between(self.data.places_of(b"\n"), self._starts, self._ends) != self._line_counts - 1)
            | (count_between(self.data.places_in(_CONTROL), self._starts, self._ends) > 0)
        )

    def _cut_headers(self) -> None:
        """Find names, once for each spelling, and values. Lines without a colon are ignored."""
        starts, stops = self._line_starts[~self._is_first], self._line_stops[~self._is_first]
        owners = self._owners[~self._is_first]
        colons = first_from(self.data.places_of(b":"), starts, len(self.data.codes))
        has_name = colons < stops
        padded = np.append(self.data.codes, np.uint8(0))
        folded = ~has_name & (starts < stops) & np.isin(padded[starts], list(BLANK))
        self._odd_lines = [(owners[folded], np.flatnonzero(folded), "folded header line")]
        rows = np.flatnonzero(has_name)
        spelled = self.data.parts(starts[rows], colons[rows]).dictionary_encode()
        is_token = matches(spelled.dictionary, _NAME)
        folded_names = pc.ascii_lower(pc.if_else(pa.array(is_token), spelled.dictionary, b"").cast(pa.string()))
        names = folded_names.dictionary_encode()
        spelling = spelled.indices.to_numpy()
        odd = ~is_token[spelling] if len(spelling) else np.zeros(0, np.bool_)
        self._odd_lines.append((owners[rows[odd]], rows[odd], "header name"))
        self.names: list[str] = names.dictionary.to_pylist()
        self._number = {name: number for number, name in enumerate(self.names)}
        self.header_owners, self._header_lines = owners[rows], rows
        self.header_names = names.indices.to_numpy()[spelling] if len(spelling) else np.zeros(0, np.int64)
        self._value_starts, self._value_stops = self.data.stripped(colons[rows] + 1, stops[rows])

    def _read_firsts(self) -> None:
        """Parse the first lines, each spelling once."""
        lines = self.data.parts(self._line_starts[self._is_first], self._line_stops[self._is_first])
        coded = lines.dictionary_encode()
        self.first_codes = coded.indices.to_numpy()
        self.firsts: list[First] = []
        broken: list[str | None] = []
        for line in coded.dictionary.to_pylist():
            try:
                self.firsts.append(read_first(line, self._limits.headers))
                broken.append(None)
            except MalformedError as error:
                self.firsts.append(First(None, {}))
                broken.append(error.reason)
        self._broken_firsts = pa.array(broken, pa.string()).take(coded.indices)

    # ---- values -----------------------------------------------------------------------------------------------------

    def header(self, name: str) -> pa.Array:
        """Return the last value of a header in each message, under its current name; NULL if absent."""
        number = self._number.get(name)
        if number is None:
            return pa.nulls(self.count, pa.binary())
        lines = np.flatnonzero(self.header_names == number)
        last = np.full(self.count, -1)
        # Assignment with repeated indexes: the last one wins, which is the rule of the codec.
        last[self.header_owners[lines]] = lines
        owners = np.flatnonzero(last >= 0)
        return spread(self.values(last[owners]), owners, self.count)

    def values(self, lines: Places) -> pa.Array:
        """Return the values of these headers."""
        return self.data.parts(self._value_starts[lines], self._value_stops[lines])

    def uri(self, name: str) -> pa.Array:
        """Return the value of a key in the URI."""
        values = [first.keys.get(name.encode()) for first in self.firsts]
        return pa.array(values, pa.binary()).take(pa.array(self.first_codes))

    def key(self, name: str) -> pa.Array:
        """Return a key: header before URI, and in each the newer name before the older; NULL if absent."""
        older = _OLDER.get(name.encode())
        spellings = [name] if older is None else [name, older.decode()]
        return pc.coalesce(*map(self.header, spellings), *map(self.uri, spellings))

    # ---- rules ------------------------------------------------------------------------------------------------------

    def check_framing(self) -> int | None:
        """Refuse messages whose end is in doubt; return the first one, None if there is none."""
        limits = self._limits
        self.refuse(self._has_control, "control character in the head")
        self.refuse(self._line_counts - 1 > limits.headers, f"more than {limits.headers} headers")
        is_broken = self._broken_firsts.is_valid().to_numpy(zero_copy_only=False)
        self.verdicts.refuse_each(
            is_broken, lambda rows: sentence("Bad format: ", self._broken_firsts.take(pa.array(rows)))
        )
        self._check_lines()
        self.refuse(self.header("transfer-encoding").is_valid().to_numpy(zero_copy_only=False), "transfer-encoding")
        self._check_length()
        broken = np.flatnonzero(~self.verdicts.open)
        return int(broken[0]) if len(broken) else None

    def refuse(self, mask: Mask, reason: str) -> None:
        """Refuse messages as malformed."""
        self.verdicts.refuse(mask, f"Bad format: {reason}")

    def _check_lines(self) -> None:
        """Refuse malformed lines; the first one in a head decides."""
        lengths = self.header_names == self._number.get("content-length", -1)
        lines = np.flatnonzero(lengths)
        if len(lines) > 1:
            owners, values = self.header_owners[lines], self.values(lines).dictionary_encode().indices.to_numpy()
            differs = (owners[1:] == owners[:-1]) & (values[1:] != values[:-1])
            self._note_odd(lines[1:][differs], "differing content-length")
        for name in sorted(each.decode() for each in ONCE):
            lines = np.flatnonzero(self.header_names == self._number.get(name, -1))
            owners = self.header_owners[lines]
            self._note_odd(lines[1:][owners[1:] == owners[:-1]], f"more than one {name}")
        owners = np.concatenate([owners for owners, _, _ in self._odd_lines])
        places = np.concatenate([places for _, places, _ in self._odd_lines])
        reasons = np.repeat(np.arange(len(self._odd_lines)), [len(places) for _, places, _ in self._odd_lines])
        # Sorted by message, then by line: the first entry of each message is its first fault.
        order = np.lexsort((places, owners))
        concerned, first = np.unique(owners[order], return_index=True)
        decisive = np.full(self.count, -1)
        decisive[concerned] = reasons[order][first]
        for number, (_, _, reason) in enumerate(self._odd_lines):
            self.refuse(decisive == number, reason)

    def _note_odd(self, lines: Places, reason: str) -> None:
        """Record malformed header lines."""
        self._odd_lines.append((self.header_owners[lines], self._header_lines[lines], reason))

    def _check_length(self) -> None:
        """Check `content-length`."""
        told = self.header("content-length")
        text = pc.fill_null(told, b"0")
        is_number = matches(text, r"\A[0-9]+\z")
        self.refuse(~is_number, "content-length")
        # As many digits as an int64 holds: a longer number is over every limit anyway.
        digits = pc.utf8_slice_codeunits(pc.utf8_ltrim(where(is_number, text).cast(pa.string()), "0"), 0, 18)
        self.lengths = pc.fill_null(pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64()), 0).to_numpy()
        limit = self._limits.body_bytes
        shown = pa.array(self.lengths)
        self.verdicts.refuse_each(
            self.lengths > limit,
            lambda rows: sentence("Body of ", shown.take(pa.array(rows)).cast(pa.string()),
                                  f" bytes is over the limit of {limit}"),
            TOO_LARGE,
        )  # fmt: skip

    def check_whole(self) -> None:
        """Refuse the last message of a file if it is cut off."""
        there = self._stops - self.body_starts
        is_cut = there < self.lengths
        self.verdicts.refuse_each(
            is_cut,
            lambda rows: pa.array([f"the file ends after {there[row]} bytes of a body of {self.lengths[row]}"
                                   for row in rows]),
        )  # fmt: skip

    def check_text(self) -> None:
        """Refuse messages with faults that do not affect the next message."""
        heads = self.data.parts(self._starts, np.minimum(self._ends, self._stops))
        self.refuse(~is_text(heads), "head is not UTF-8")
        faults = pa.array([first.fault for first in self.firsts], pa.string()).take(pa.array(self.first_codes))
        self.verdicts.refuse_each(
            faults.is_valid().to_numpy(zero_copy_only=False),
            lambda rows: sentence("Bad format: ", faults.take(pa.array(rows))),
        )

    def bodies(self) -> pa.Array:
        """Return the bodies. A body in the URI counts if the message has none itself."""
        own = self.data.parts(np.minimum(self.body_starts, self._stops), self._stops)
        if not any(first.body for first in self.firsts):
            return own
        told = pa.array([first.body or b"" for first in self.firsts], pa.binary()).take(pa.array(self.first_codes))
        return pc.if_else(pc.equal(pc.binary_length(own), 0), told, own)
