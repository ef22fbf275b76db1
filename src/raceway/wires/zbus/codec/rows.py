"""Runs of zbus messages as columns: the destination of each key.

A column is one value (for all messages of a run, or for the only one) or a list. Keys that may differ between messages
are converted either way. A few keys need their value inspected (`_SINGLE`); if such a key differs within a run, the run
is processed message by message.

Keys without a column are attributes: unknown headers under their own names, and

    zbus.topic      topic of a publish/subscribe message
    zbus.status     status for the receiver, if it is not 200
    zbus.encoding   charset label of the body, beside a content type
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from raceway.errors import MalformedError
from raceway.model.envelope import Column, encode_attributes
from raceway.wires.zbus.codec.head import ALIASES, EchoedId
from raceway.wires.zbus.codec.shapes import ShapedRun, same_or_all

ColumnValues = dict[str, Any]

# RFC 9110, 15.3.5, 15.3.6 and 15.4.5: responses without content. An HTTP receiver would take a body for the next
# message.
BODILESS = frozenset({204, 205, 304})
ATTRIBUTE_PREFIX = b"zbus."


class Browser(NamedTuple):
    """Headers by which a browser names the page a message comes from. Programs send none, or the host only.

    `is_browser`: its name says so. Plain HTTP to another host carries none of the other headers.
    """

    host: bytes | None = None
    origin: bytes | None = None
    fetch_site: bytes | None = None
    is_browser: bool = False


_OF_BROWSERS = (b"host", b"origin", b"sec-fetch-site")


class KeyValueError(MalformedError):
    """A key with an invalid value; the message is refused and the connection goes on."""


def is_true(value: bytes) -> bool:
    """`1` and `true` in any case; any other value, empty included, is false (as on the real server)."""
    return value.lower() in (b"1", b"true")


# Key to column. An empty value counts as absent, except for the queue: there it is a name that no queue has (404).
# `topic` of a batch is the queue, so zbus's topic is called subject here.
_EACH = {
    b"mq": "topic",
    b"msgid": "message_id",
    b"mq-reply": "reply_to",
    b"msgid-raw": "parent_id",
    b"token": "token",
    b"topic": "subject",
    b"routing-key": "routing_key",
}
_SINGLE = frozenset(
    {b"reply-code", b"encoding", b"content-type", b"content-encoding", b"schema-id", b"schema-version", b"window"}
    | frozenset(_OF_BROWSERS)
)
# Never relayed: keys the broker sets itself; hop-by-hop headers (RFC 9110, 7.6.1); credentials. Cookies are among them:
# a browser sends those of one port of a host to all its ports (RFC 6265, 8.5).
_NOT_RELAYED = frozenset(
    {b"cmd", b"ack", b"broker", b"remote-addr"}
    | {b"content-length", b"transfer-encoding", b"expect", b"connection", b"keep-alive", b"proxy-connection"}
    | {b"te", b"trailer", b"upgrade", b"http2-settings"}
    | {b"authorization", b"proxy-authorization", b"cookie"}
)


RECEIVER_NEVER_SEES = _NOT_RELAYED | frozenset(_EACH) | frozenset(ALIASES) | {b"reply-code"}
_OF_CONSUMES = {
    "topic": "mq", "message_id": "msgid", "subject": "topics", "token": "token", "ack": "ack", "browser": "browser"
}  # fmt: skip


def differs(run: ShapedRun) -> bool:
    """Report whether a key whose value must be inspected differs within the run."""
    return any(name in _SINGLE and type(value) is list for name, value in run.keys.items())


def message_columns(run: ShapedRun) -> ColumnValues:
    """Return the columns of produced messages and requests. Raises KeyValueError."""
    columns, single, relayed = _split_keys(run)
    columns["payload"] = run.bodies
    _take_status(columns, single, run)
    if single:
        _take_encoding(columns, single)
        _take_number(columns, single, b"schema-id", "schema_id")
        _take_number(columns, single, b"schema-version", "schema_version")
    relayed.update(single)
    if (subject := columns.get("subject")) is not None:
        # Relayed in the delivery as `topic` again.
        relayed[b"zbus.topic"] = subject
    if relayed:
        columns["attributes"] = _attributes(relayed, len(run.bodies))
    return columns


def consume_columns(run: ShapedRun) -> ColumnValues:
    """Return the columns of consumes, under the names of Consume's fields. Raises KeyValueError."""
    columns, single, _ = _split_keys(run)
    found = {name: columns[column] for column, name in _OF_CONSUMES.items() if column in columns}
    if b"window" in single:
        found["window"] = _window(single[b"window"])
    return found


def common_columns(run: ShapedRun) -> ColumnValues:
    """Return the columns that every command may have: queue, id, token, acknowledgement, and the browser's page."""
    return _split_keys(run)[0]


def _split_keys(run: ShapedRun) -> tuple[ColumnValues, dict[bytes, bytes], dict[bytes, Column[bytes]]]:
    """Return the columns of keys that may differ within a run; the keys to inspect; and the keys that are only
    relayed."""
    keys = run.keys
    # Acknowledgement is on by default.
    columns: ColumnValues = {"topic": b"", "ack": _truth(keys[b"ack"]) if b"ack" in keys else True}
    single: dict[bytes, bytes] = {}
    relayed: dict[bytes, Column[bytes]] = {}
    for name, value in keys.items():
        column = _EACH.get(name)
        if column is not None:
            if type(value) is list:
                # Most columns have no empty value: one scan decides whether a copy is needed.
                columns[column] = [each or None for each in value] if b"" in value and column != "topic" else value
            elif value:
                columns[column] = value
        elif name in _SINGLE:
            single[name] = cast(bytes, value)
        elif name not in _NOT_RELAYED and not name.startswith(ATTRIBUTE_PREFIX):
            relayed[name] = value
    if b"id" in keys:
        columns["message_id"] = _echoed(columns.get("message_id"), keys[b"id"], len(run.bodies))
    if single:
        host, origin, site = map(single.get, _OF_BROWSERS)
        if any(browser := Browser(host, origin, site, _is_browser(keys.get(b"user-agent")))):
            columns["browser"] = browser
    return columns, single, relayed


def _is_browser(agent: Column[bytes]) -> bool:
    """Report whether the user agent is a browser: all of them call themselves Mozilla."""
    named = agent if isinstance(agent, list) else [agent]
    return any(each is not None and each.startswith(b"Mozilla/") for each in named)


def _echoed(msgids: Column[bytes], plain: Column[bytes], count: int) -> Column[bytes]:
    """Add the header `id` to the ids, for the reply."""
    ours, theirs = _by_row(msgids, count), _by_row(plain, count)
    found = [EchoedId.maybe_of(msgid, each) for msgid, each in zip(ours, theirs, strict=True)]
    return found[0] if count == 1 else found


def _by_row(column: Column[bytes], count: int) -> list[bytes | None]:
    """A column as a list."""
    return column if isinstance(column, list) else [column] * count


def _truth(value: Column[bytes]) -> bool | list[bool]:
    """Convert `ack` to a flag or flags."""
    if type(value) is list:
        return [is_true(each) for each in value]  # type: ignore[arg-type]  # a key that is there has a value
    return is_true(value)  # type: ignore[arg-type]  # as above


def _take_status(columns: ColumnValues, single: dict[bytes, bytes], run: ShapedRun) -> None:
    """Take the status from the key, otherwise from a status line. 200 is the default and not stored."""
    # `reply-code` is an extension of the real server, for clients that send a request line.
    code = single.pop(b"reply-code", None)
    status = run.first.status if code is None else _number(code, "reply-code")
    if status is None or status == 200:
        return
    # RFC 9110, 15: only 2xx to 5xx are final; and a status without content must not carry a body.
    if not is_final(status) or (status in BODILESS and any(run.bodies)):
        raise KeyValueError("status")
    columns["status"] = status
    single[b"zbus.status"] = b"%d" % status


def is_final(status: int) -> bool:
    """Report whether a status may be delivered: 1xx are interim (RFC 9110, 15.2) and announce another reply."""
    return 200 <= status <= 599


def _take_encoding(columns: ColumnValues, single: dict[bytes, bytes]) -> None:
    """Fill the one column for content type (has a slash) and charset (has none); the other becomes an attribute."""
    encoding, content_type = single.pop(b"encoding", b""), single.get(b"content-type", b"")
    label = encoding or single.get(b"content-encoding", b"")
    if b"/" in content_type:
        columns["encoding"] = single.pop(b"content-type")
    elif label and b"/" not in label:
        columns["encoding"] = label
        return
    if encoding:
        single[b"zbus.encoding"] = encoding


def _take_number(columns: ColumnValues, single: dict[bytes, bytes], name: bytes, column: str) -> None:
    """Move a number in canonical decimal form to its column; any other text stays an attribute."""
    text = single.get(name, b"")
    # Canonical only ("7", not "07"): the value must leave in the spelling it came in.
    if text.isdigit() and len(text) <= 18 and b"%d" % int(text) == text:
        columns[column] = int(single.pop(name))


def _number(text: bytes, name: str) -> int:
    """Parse a small decimal number."""
    if not text.isdigit() or len(text) > 9:
        raise KeyValueError(name)
    return int(text)


def _window(text: bytes) -> int:
    """Parse the number of deliveries one consume allows; -1 is unlimited."""
    if text == b"-1":
        return -1
    window = _number(text, "window")
    if window == 0:
        raise KeyValueError("window")
    return window


def _attributes(relayed: dict[bytes, Column[bytes]], count: int) -> Column[bytes]:
    """Encode the attributes; one object for all rows if no value differs."""
    # Fast path: one client sends the same headers every time, so one object serves the whole run.
    if list not in map(type, relayed.values()):
        return _attributes_of(relayed, relayed.values())
    columns = [value if type(value) is list else [value] * count for value in relayed.values()]
    return [_attributes_of(relayed, row) for row in zip(*columns, strict=True)]


def _attributes_of(names: Iterable[bytes], values: Iterable[Any]) -> bytes | None:
    """Encode the attributes of one row."""
    pairs = zip(names, values, strict=True)
    return encode_attributes({name.decode(): value.decode() for name, value in pairs if value is not None})


def joined(parts: list[tuple[int, ColumnValues]]) -> ColumnValues:
    """Concatenate the columns of consecutive runs, each with its number of rows."""
    if len(parts) == 1:
        return parts[0][1]
    names = {name for _, columns in parts for name in columns}
    return {name: _joined([(count, columns.get(name)) for count, columns in parts]) for name in names}


def _joined(parts: list[tuple[int, Any]]) -> Any:
    """Concatenate one column; one value if all rows agree."""
    values = [value for _, value in parts]
    if list not in map(type, values):
        values = [value for count, value in parts for _ in range(count)]
        return same_or_all(values)
    joined: list[Any] = []
    for count, value in parts:
        joined += value if type(value) is list else [value] * count
    return joined


def as_keys(run: ShapedRun) -> dict[str, str]:
    """Return all keys of a single message as text, without the token, so that it cannot be shown by accident."""
    pairs = ((name, value) for name, value in run.keys.items() if name != b"token" and type(value) is bytes)
    return {name.decode(): value.decode() for name, value in pairs}
