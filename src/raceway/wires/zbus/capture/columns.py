"""Keys of zbus messages as columns of bronze, by the rules of `codec.rows`, for many messages at once.

Keys without a column become attributes: unknown headers and keys under their own names, and `zbus.topic`,
`zbus.status`, `zbus.encoding`. A message to the broker without content (consume, heartbeat, admin) is of the kind
`control` and has the attribute `zbus.cmd`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.wires.captures.slices import as_mask, matches, sentence
from raceway.wires.captures.verdicts import where
from raceway.wires.zbus.capture.heads import HeadChecks
from raceway.wires.zbus.codec.rows import ATTRIBUTE_PREFIX, BODILESS, RECEIVER_NEVER_SEES

if TYPE_CHECKING:
    from raceway.wires.captures.slices import Mask, Places

PRODUCE, REQUEST, CONSUME, ADMIN = "produce", "request", "consume", "admin"
KINDS = {PRODUCE: "publish", REQUEST: "request"}
_CONTROL = "control"
_CONTROLS = (CONSUME, "heartbeat", ADMIN, "track_report", "track_sub")
_OK, _FIRST_FINAL, _LAST_FINAL, _FIRST_ERROR = 200, 200, 599, 400
# Keys that become a column if their value fits it, and an attribute otherwise.
_CHANGED = ("encoding", "content-type", "schema-id", "schema-version")


class CapturedColumns:
    """Columns of all messages, good or not; faults of values go to the verdicts of the heads."""

    def __init__(self, heads: HeadChecks) -> None:
        self._heads = heads
        self.payload = heads.bodies()
        self._command = pc.fill_null(_text(heads, "cmd"), ADMIN)
        self._carries = self._is((PRODUCE, REQUEST))

    def _is(self, commands: tuple[str, ...]) -> Mask:
        """Return a mask of the messages with one of these commands."""
        return as_mask(pc.is_in(self._command, pa.array(commands)))

    # ---- rules ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Apply the rules for values."""
        window = self._heads.key("window")
        is_window = matches(window, r"\A(?:-1|[0-9]{1,9})\z") & ~matches(window, r"\A0+\z")
        self._heads.refuse(self._is((CONSUME,)) & as_mask(window.is_valid()) & ~is_window, "window")
        self._heads.verdicts.refuse_each(
            ~self._carries & ~self._is(_CONTROLS),
            lambda rows: sentence("Bad format: command(", self._command.take(pa.array(rows)), ") not support"),
        )
        self._check_status()

    def _check_status(self) -> None:
        """Check the status, from the key, otherwise from a status line. 200 is the default and not stored."""
        told = self._heads.key("reply-code")
        is_number = matches(told, r"\A[0-9]{1,9}\z")
        self._heads.refuse(self._carries & as_mask(told.is_valid()) & ~is_number, "reply-code")
        of_line = pa.array([first.status for first in self._heads.firsts], pa.int64())
        number = where(is_number, told).cast(pa.string()).cast(pa.int64())
        status = pc.coalesce(number, of_line.take(pa.array(self._heads.first_codes)))
        self.status = where(as_mask(pc.not_equal(status, _OK)), status)
        is_final = as_mask(pc.and_(pc.greater_equal(status, _FIRST_FINAL), pc.less_equal(status, _LAST_FINAL)))
        is_bodiless = as_mask(pc.is_in(status, pa.array(sorted(BODILESS), pa.int64())))
        has_body = as_mask(pc.greater(pc.binary_length(self.payload), 0))
        is_told = self._carries & as_mask(self.status.is_valid())
        self._heads.refuse(is_told & (~is_final | (is_bodiless & has_body)), "status")

    # ---- columns ----------------------------------------------------------------------------------------------------

    def of(self, rows: Places) -> dict[str, pa.Array]:
        """Return the columns of these messages, which broke no rule. A command has only its queue and its id."""
        kinds = [where(self._is((command,)), pa.repeat(kind, self._heads.count)) for command, kind in KINDS.items()]
        message_id = self._filled("msgid")
        carried = {
            "parent_id": self._filled("msgid-raw"),
            "reply_to": self._filled("mq-reply"),
            "routing_key": self._filled("routing-key"),
            "schema_id": self._number("schema-id"),
            "schema_version": self._number("schema-version"),
            "encoding": self._encoding()[0],
            "error": where(as_mask(pc.greater_equal(self.status, _FIRST_ERROR)), self.status.cast(pa.string())),
        }
        columns = {name: where(self._carries, column) for name, column in carried.items()} | {
            "topic": pc.fill_null(_text(self._heads, "mq"), ""),
            "kind": pc.coalesce(*kinds, pa.scalar(_CONTROL)),
            "message_id": message_id,
            "payload": self.payload,
        }
        columns["correlation_id"] = pc.coalesce(columns["parent_id"], message_id)
        index = pa.array(rows)
        found = {name: column.take(index) for name, column in columns.items()}
        return found | {"attributes": self._attributes(rows)}

    def _filled(self, name: str) -> pa.Array:
        """Return a key as text; an empty value counts as absent."""
        text = _text(self._heads, name)
        return where(as_mask(pc.not_equal(text, "")), text)

    def _number(self, name: str) -> pa.Array:
        """Return a key as a number if it is in canonical form; otherwise it stays an attribute."""
        text = self._heads.key(name)
        return where(matches(text, r"\A(?:0|[1-9][0-9]{0,17})\z"), text).cast(pa.string()).cast(pa.int64())

    def _encoding(self) -> tuple[pa.Array, pa.Array, Mask]:
        """Return the column `encoding`, the attribute `zbus.encoding`, and where the column is the content type.

        One column for both: a content type has a slash, a charset has none. A value that does not fit is an attribute.
        """
        own, content_type = self._filled("encoding"), self._filled("content-type")
        is_content_type = as_mask(pc.match_substring(content_type, "/"))
        label = pc.coalesce(own, self._filled("content-encoding"))
        is_label = ~is_content_type & as_mask(pc.invert(pc.match_substring(label, "/")))
        column = pc.coalesce(where(is_content_type, content_type), where(is_label, label))
        return column, where(~is_label, own), is_content_type

    # ---- attributes -------------------------------------------------------------------------------------------------

    def _attributes(self, rows: Places) -> pa.Array:
        """Return maps of the keys of the URI, the headers, which take precedence, and derived attributes."""
        carries = self._carries
        found = [*self._of_uris(), self._of_headers(), *(_of_column(*each) for each in self._made().items())]
        owners = np.concatenate([owners for owners, _, _ in found])
        names = pa.concat_arrays([names for _, names, _ in found])
        values = pa.concat_arrays([values for _, _, values in found])
        kept = np.flatnonzero(carries[owners])
        kept = kept[_last_of_each(owners[kept], names.take(pa.array(kept)))]
        commands = np.flatnonzero(~carries)
        owners = np.concatenate([owners[kept], commands])
        names = pa.concat_arrays([names.take(pa.array(kept)), pa.repeat("zbus.cmd", len(commands))])
        values = pa.concat_arrays([values.take(pa.array(kept)), self._command.take(pa.array(commands))])
        return _maps(rows, owners, names, values, self._heads.count)

    def _made(self) -> dict[str, pa.Array]:
        """Return the values of keys with a column that did not fit into it."""
        _, label, is_content_type = self._encoding()
        made = {
            "zbus.topic": self._filled("topic"),
            "zbus.status": self.status.cast(pa.string()),
            "zbus.encoding": label,
            "content-type": where(~is_content_type, _text(self._heads, "content-type")),
        }
        for name in ("schema-id", "schema-version"):
            made[name] = where(~as_mask(self._number(name).is_valid()), _text(self._heads, name))
        return made

    def _of_headers(self) -> tuple[Places, pa.Array, pa.Array]:
        """Return owner, name and value of each header that becomes an attribute."""
        heads = self._heads
        is_relayed = np.array([_is_relayed(name) for name in heads.names], np.bool_)
        lines = np.flatnonzero(is_relayed[heads.header_names]) if heads.names else np.zeros(0, np.int64)
        # Only of heads that are UTF-8; the others are refused.
        lines = lines[heads.verdicts.open[heads.header_owners[lines]]]
        names = pa.array(heads.names, pa.string()).take(pa.array(heads.header_names[lines]))
        return heads.header_owners[lines], names, heads.values(lines).cast(pa.string())

    def _of_uris(self) -> list[tuple[Places, pa.Array, pa.Array]]:
        """Return owner, name and value of each key in a URI that becomes an attribute."""
        heads = self._heads
        names = {name.decode() for first in heads.firsts for name in first.keys if first.fault is None}
        return [_of_column(name, heads.uri(name).cast(pa.string())) for name in sorted(names) if _is_relayed(name)]


def _text(heads: HeadChecks, name: str) -> pa.Array:
    """Return a key as text; NULL in refused messages, which may not be UTF-8."""
    return where(heads.verdicts.open, heads.key(name)).cast(pa.string())


def _is_relayed(name: str) -> bool:
    """Return whether a key is passed on under its own name, whatever its value."""
    key = name.encode()
    return not (key in RECEIVER_NEVER_SEES or name in _CHANGED or key.startswith(ATTRIBUTE_PREFIX))


def _of_column(name: str, column: pa.Array) -> tuple[Places, pa.Array, pa.Array]:
    """Return owner, name and value of each row that is not NULL."""
    rows = np.flatnonzero(as_mask(column.is_valid()))
    return rows, pa.repeat(name, len(rows)), column.take(pa.array(rows))


def _last_of_each(owners: Places, names: pa.Array) -> Places:
    """Return where each pair of owner and name occurs last."""
    codes = names.dictionary_encode().indices.to_numpy()
    # `unique` returns first occurrences, so the array is reversed to get the last ones.
    pairs = owners * (int(codes.max(initial=0)) + 1) + codes
    _, from_behind = np.unique(pairs[::-1], return_index=True)
    return np.sort(len(pairs) - 1 - from_behind)


def _maps(rows: Places, owners: Places, names: pa.Array, values: pa.Array, count: int) -> pa.Array:
    """Return a map for each of the rows."""
    order = np.argsort(owners, kind="stable")
    order = order[np.isin(owners[order], rows)]
    sizes = np.bincount(owners[order], minlength=count)[rows]
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    index = pa.array(order)
    return pa.MapArray.from_arrays(pa.array(offsets), names.take(index), values.take(index))
