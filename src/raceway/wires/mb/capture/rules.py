"""Rules of an MB message, each applied to many messages at once, in the order of the specification: the first one that
a message breaks decides.

Cuts are found with NumPy: the first LF after a start ends the header, the colons before it separate its fields. Values
that repeat from message to message (action, topic, version) are checked once for each spelling; ids are a matrix of 36
columns. The sentences are those of `codec.header`, and a differential test holds both to the same verdicts.

Python looks at single messages in one case: calls to the broker, whose payload has rules of its own. They occur at the
beginning of a connection and are rare in its traffic.
"""

from __future__ import annotations

from string import hexdigits
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.model.topics import MAX_NAME_LENGTH
from raceway.wires.captures.parsed import Refusals
from raceway.wires.captures.slices import Bytes, as_mask, coded, matches, replaced_text, sentence
from raceway.wires.captures.verdicts import Verdicts, where
from raceway.wires.mb.codec import header
from raceway.wires.mb.codec.calls import read_call, subscribe_payload
from raceway.wires.mb.codec.header import ID_LENGTH, MAX_VERSION_LENGTH, MbHeader, MbLimits, MbRefused, as_text
from raceway.wires.mb.codec.topics import MAX_MB_LEVELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from raceway.wires.captures.slices import Mask, Places

_REQUEST, _SUBSCRIBE = header.ACTIONS.index(header.REQUEST), header.ACTIONS.index(header.SUBSCRIBE)
KINDS = pa.array([as_text(action) for action in header.ACTIONS if action != header.SUBSCRIBE])
ACTION, TOPIC, VERSION, MESSAGE_ID, PARENT_ID, TIMEOUT = range(6)

_LEVEL = "[A-Za-z][A-Za-z0-9]*"
_TOPIC = rf"\A{_LEVEL}(?:\.{_LEVEL}){{0,{MAX_MB_LEVELS - 1}}}\z"
_PATTERN = rf"\A(?:(?:{_LEVEL}|\+)\.){{0,{MAX_MB_LEVELS - 1}}}(?:{_LEVEL}|\+|#)\z"
_NUMBER = "0|[1-9][0-9]*"
_VERSION = rf"\A(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})\z"

# Class of each byte in a UUID: x for a hexadecimal digit, a hyphen, a blank for anything else.
_CLASSES = bytes(ord("x" if chr(n) in hexdigits else "-" if chr(n) == "-" else " ") for n in range(256))
_UUID = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
# RFC 9562, section 4: version in the 13th, variant in the 17th hexadecimal digit, here counted with hyphens.
_VERSION_PLACE, _VARIANT_PLACE = 14, 19


class _HeaderStarts:
    """First three fields of headers. They repeat from message to message, so each spelling is checked once.

    `codes` says which spelling a message has; one without three fields has an empty one.
    """

    def __init__(self, starts: pa.Array, rows: Places, count: int) -> None:
        spelled = starts.dictionary_encode()
        fields = pc.split_pattern(pa.concat_arrays([spelled.dictionary, pa.array([b"::"])]), b":")
        self.action, self.topic, self.version = (pc.list_element(fields, number) for number in range(3))
        self.codes = np.full(count, len(spelled.dictionary))
        self.codes[rows] = spelled.indices.to_numpy()

    def has(self, verdict: Mask) -> Mask:
        """Return a mask of the messages from a mask of the spellings."""
        found: Mask = verdict[self.codes]
        return found

    def values(self, field: pa.Array, rows: Places) -> pa.Array:
        """Return a field of these messages as text. Refused messages are left out: their field may not be UTF-8."""
        codes = self.codes[rows]
        used = np.flatnonzero(np.bincount(codes, minlength=len(field)))
        values = field.take(pa.array(used)).cast(pa.string()).dictionary_encode()
        numbers = np.zeros(len(field), np.int32)
        numbers[used] = values.indices.to_numpy()
        return coded(numbers[codes], values.dictionary)


class MessageChecks:
    """Messages being checked; results are in `verdicts`."""

    def __init__(self, data: Bytes, starts: Places, stops: Places, limits: MbLimits) -> None:
        self.data, self.starts, self.stops, self.limits = data, starts, stops, limits
        self.verdicts = Verdicts(len(starts), header.MALFORMED_MESSAGE)
        # Topic and payload of `subscribe` as the request it stands for.
        self._calls: dict[int, tuple[bytes, bytes]] = {}
        self._cut()

    def refusals(self) -> Refusals:
        """Return the refused messages, with the topic of those whose topic is valid."""
        return self.verdicts.refusals(
            lambda rows: where(self._has_topic[rows], replaced_text(self._field(TOPIC, rows)))
        )

    def _refuse_field(self, mask: Mask, start: str, number: int) -> None:
        """Refuse messages with a reason that ends with the field itself."""
        self.verdicts.refuse_each(mask, lambda rows: sentence(start, replaced_text(self._field(number, rows))))

    # ---- fields -----------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Find the end of each header, and the end of each of its fields: a colon, or the end of the header."""
        # A sentinel at the end, so that every search for the next mark succeeds.
        marks = np.append(self.data.places_of(b"\n", b":"), len(self.data.codes))
        is_newline = np.append(self.data.codes[marks[:-1]] == ord("\n"), True)
        first = np.searchsorted(marks, self.starts)
        newlines = np.flatnonzero(is_newline)[(np.cumsum(is_newline) - is_newline)[first]]
        length = marks[newlines] - self.starts
        self._has_header = (marks[newlines] < self.stops) & (length <= self.limits.header_limit)
        self._newlines = np.where(self._has_header, marks[newlines], self.starts)
        self._colon_count = np.where(self._has_header, newlines - first, 0)
        most = self._colon_count.max(initial=0)
        self._ends = []
        for number in range(TIMEOUT + 1):
            there = marks[np.minimum(first + number, len(marks) - 1)] if number < most else self._newlines
            self._ends.append(np.where(self._colon_count > number, there, self._newlines))

    def _borders(self, number: int) -> tuple[Places, Places]:
        """Return the borders of a field; a missing field is empty."""
        starts = np.minimum(self._ends[number - 1] + 1, self._newlines) if number else self.starts
        return starts, self._ends[number]

    def _field(self, number: int, rows: Places) -> pa.Array:
        """Return a field of these messages as bytes."""
        starts, stops = self._borders(number)
        return self.data.parts(starts[rows], stops[rows])

    # ---- columns of messages that passed ----------------------------------------------------------------------------

    def maybe_text(self, number: int, rows: Places) -> pa.Array:
        """Return a field as text; NULL where it is empty."""
        starts, stops = (edge[rows] for edge in self._borders(number))
        if not (starts < stops).any():
            return pa.nulls(len(rows), pa.string())
        return where(starts < stops, self.data.parts(starts, stops).cast(pa.string()))

    def topics(self, rows: Places) -> pa.Array:
        """Return the topics of these messages."""
        topics = self._starts.values(self._starts.topic, rows)
        return self._with_calls(rows, topics.cast(pa.binary()), 0).cast(pa.string()) if self._calls else topics

    def versions(self, rows: Places) -> pa.Array:
        """Return the versions of these messages."""
        return self._starts.values(self._starts.version, rows)

    def payloads(self, rows: Places) -> pa.Array:
        """Return the payloads of these messages."""
        return self._with_calls(rows, self.data.parts(self._newlines[rows] + 1, self.stops[rows]), 1)

    def _with_calls(self, rows: Places, column: pa.Array, part: int) -> pa.Array:
        """Replace the values of `subscribe` messages by those of the request they stand for."""
        if not self._calls:
            return column
        mask = np.isin(rows, list(self._calls))
        values = [self._calls[row][part] for row in rows[mask].tolist()]
        return pc.replace_with_mask(column, pa.array(mask), pa.array(values, pa.binary()))

    # ---- rules ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Apply all rules."""
        limit = self.limits.header_limit
        self.verdicts.refuse(
            ~self._has_header,
            f"Invalid message format: no newline separator found within the maximum header length of {limit} bytes",
        )
        self.verdicts.refuse(self._colon_count < 2, "Invalid header format: missing action, topic, or version")
        self.verdicts.refuse(self._colon_count > 5, "Invalid header format: too many fields")
        # Only headers with enough fields have a start to look up.
        rows = np.flatnonzero(self.verdicts.open)
        self._starts = _HeaderStarts(
            self.data.parts(self.starts[rows], self._ends[VERSION][rows]), rows, len(self.starts)
        )
        self._check_action()
        self._check_topic()
        self._check_version()
        self._check_message_id()
        is_there, is_uuid = self._examine_ids(PARENT_ID, of_version_4=False)
        self._refuse_field(is_there & ~is_uuid, "Invalid parent request ID format: ", PARENT_ID)
        self._check_timeout()
        too_large = header.payload_refused(MbHeader(header.REQUEST, b"", b""), 0, self.limits)
        self.verdicts.refuse(self.stops - self._newlines - 1 > self.limits.payload_limit, too_large.text)
        self._check_calls()

    def _check_action(self) -> None:
        """Check the action, in any letter case."""
        self.kinds = np.full(len(self.starts), -1)
        for number, action in enumerate(header.ACTIONS):
            self.kinds[self._starts.has(matches(self._starts.action, rf"(?i)\A{as_text(action)}\z"))] = number
        self.verdicts.refuse_each(
            self.kinds < 0,
            lambda rows: pa.array(
                [f"Invalid action: {text.lower()}" for text in replaced_text(self._field(ACTION, rows)).to_pylist()],
                pa.string(),
            ),
        )

    def _check_topic(self) -> None:
        """Check the topic; `subscribe` may have a pattern."""
        topic = self._starts.topic
        is_short = as_mask(pc.less_equal(pc.binary_length(topic), MAX_NAME_LENGTH))
        is_topic = self._starts.has(is_short & matches(topic, _TOPIC))
        is_pattern = self._starts.has(is_short & matches(topic, _PATTERN))
        self._has_topic = np.where(self.kinds == _SUBSCRIBE, is_pattern, is_topic)
        self._refuse_field(~self._has_topic, "Invalid topic name: ", TOPIC)

    def _check_version(self) -> None:
        """Check the version."""
        version = self._starts.version
        is_good = as_mask(pc.less_equal(pc.binary_length(version), MAX_VERSION_LENGTH)) & matches(version, _VERSION)
        # Only short versions are converted: a header has room for more digits than an int64.
        numbers = pc.extract_regex(pc.if_else(pa.array(is_good), version, b"0.0.0"), _VERSION)
        for name in ("major", "minor", "patch"):
            number = pc.struct_field(numbers, name).cast(pa.string()).cast(pa.int64())
            is_good &= as_mask(pc.less_equal(number, header.MAX_VERSION_NUMBER))
        self._refuse_field(~self._starts.has(is_good), "Invalid message version format: ", VERSION)

    def _check_message_id(self) -> None:
        """Check the message id, which requests must have."""
        is_there, is_uuid = self._examine_ids(MESSAGE_ID, of_version_4=True)
        self._refuse_field(is_there & ~is_uuid, "Invalid request ID format: ", MESSAGE_ID)
        needs_one = (self.kinds == _REQUEST) | (self.kinds == _SUBSCRIBE)
        self.verdicts.refuse(~is_there & needs_one, "Missing request ID for request action")

    def _examine_ids(self, number: int, of_version_4: bool) -> tuple[Mask, Mask]:
        """Return masks of the messages that have this id, and of those whose id is a UUID."""
        starts, stops = self._borders(number)
        found = stops - starts == ID_LENGTH
        if found.any():
            ids = self.data.parts(starts[found], stops[found])
            # All ids have 36 bytes and lie one after the other in Arrow's data buffer: a matrix without a copy.
            characters = np.frombuffer(ids.buffers()[2], np.uint8, len(ids) * ID_LENGTH).reshape(-1, ID_LENGTH)
            good = _are_uuids(characters)
            if of_version_4:
                variants = np.isin(characters[:, _VARIANT_PLACE], list(b"89abAB"))
                good &= variants & (characters[:, _VERSION_PLACE] == ord("4"))
            found[found] = good
        return starts < stops, found

    def _check_timeout(self) -> None:
        """Check the timeout, which only requests may have."""
        starts, stops = self._borders(TIMEOUT)
        is_there = starts < stops
        self.verdicts.refuse(is_there & (self.kinds != _REQUEST), "Timeout is only allowed for request actions")
        rows = np.flatnonzero(is_there & self.verdicts.open)
        field = self.data.parts(starts[rows], stops[rows])
        is_good = matches(field, rf"\A[0-9]{{1,{self.limits.timeout_digits}}}\z")
        digits = where(is_good, field).cast(pa.string()).cast(pa.int64())
        is_good = as_mask(pc.less_equal(digits, self.limits.timeout_max_ms))
        is_bad = np.zeros(len(self.starts), np.bool_)
        is_bad[rows[~is_good]] = True
        self.verdicts.refuse(is_bad, "Invalid timeout value")

    def _check_calls(self) -> None:
        """Check calls to the broker; `subscribe` stands for one of them."""
        is_system = self._starts.has(matches(self._starts.topic, r"(?i)\Asystem\."))
        is_call = is_system | (self.kinds == _SUBSCRIBE)
        rows = np.flatnonzero(is_call & self.verdicts.open)
        refused = {row: found for row in rows.tolist() if (found := self._maybe_refused_call(row)) is not None}
        self.kinds[rows[self.kinds[rows] == _SUBSCRIBE]] = _REQUEST
        if refused:
            codes, reasons = zip(*((each.code, each.text) for each in refused.values()), strict=True)
            self.verdicts.refuse_rows(
                np.array(list(refused)), pa.array(codes, pa.string()), pa.array(reasons, pa.string())
            )

    def _maybe_refused_call(self, row: int) -> MbRefused | None:
        """Check one call with the codec; return the refusal, if any."""
        one = np.array([row])
        head = MbHeader(header.ACTIONS[self.kinds[row]], self._field(TOPIC, one)[0].as_py(), b"")
        payload = self.data.parts(self._newlines[one] + 1, self.stops[one])[0].as_py()
        if head.action == header.SUBSCRIBE:
            payload, head = subscribe_payload(head.topic, payload), header.as_request(head)
            self._calls[row] = head.topic, payload
        call = read_call(head, payload)
        return call if isinstance(call, MbRefused) else None


def _are_uuids(characters: NDArray[np.uint8]) -> Mask:
    """Return a mask of the rows of 36 characters that are UUIDs; compared one by one only if not all are."""
    kinds = characters.tobytes().translate(_CLASSES)
    if kinds == _UUID * len(characters):
        return np.ones(len(characters), np.bool_)
    wanted = np.frombuffer(_UUID, np.uint8)
    found: Mask = (np.frombuffer(kinds, np.uint8).reshape(-1, ID_LENGTH) == wanted).all(axis=1)
    return found
