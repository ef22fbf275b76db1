"""Runs of zbus messages as columns: which key goes where.

A key's column is one value (for all messages of a run, or for the only one) or a list. Keys that may stand in any
message are converted either way. A few keys need a look at the value itself (`_SINGLE`); when such a key differs
within a run, the run is taken message by message.

What the model has no column for is an attribute: unknown headers under their own names, and

    zbus.topic      subject of a publish/subscribe message
    zbus.status     status for the receiver, when it is not 200
    zbus.encoding   label of the body's charset, beside a content type
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from raceway.codec.zbus_head import ALIASES, EchoedId
from raceway.codec.zbus_shapes import Run, same_or_all
from raceway.errors import MalformedError
from raceway.model.envelope import Column, encode_attributes

Columns = dict[str, Any]

# A receiver that speaks HTTP expects no body after these, and would read the body as the next message.
BODILESS = frozenset({204, 205, 304})
ATTRIBUTE_PREFIX = b"zbus."


class Browser(NamedTuple):
    """What a message says about the page it comes from. Programs say nothing, or the host alone."""

    host: bytes | None = None
    origin: bytes | None = None
    fetch_site: bytes | None = None


_OF_BROWSERS = (b"host", b"origin", b"sec-fetch-site")


class KeyValueError(MalformedError):
    """A key has a value that cannot be used; the message is refused and the connection goes on."""


def is_true(value: bytes) -> bool:
    """`1` and `true` in any case; everything else, also nothing, is false."""
    return value.lower() in (b"1", b"true")


# Key to column. An empty value is as good as none, except for the queue: there it is a name that nobody has.
# `topic` of a batch is the queue, so what zbus calls topic is the subject.
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
# Never seen by a receiver: what the broker says itself, what concerns this connection only, and secrets. A browser
# sends the cookies of one port of a host to all its ports.
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


def differs(run: Run) -> bool:
    """Is there a key whose values must be looked at one by one?"""
    return any(name in _SINGLE and type(value) is list for name, value in run.keys.items())


def message_columns(run: Run) -> Columns:
    """Columns of produced messages and requests. Raises KeyValueError."""
    columns, single, relayed = _split_keys(run)
    columns["payload"] = run.bodies
    _take_status(columns, single, run)
    if single:
        _take_encoding(columns, single)
        _take_number(columns, single, b"schema-id", "schema_id")
        _take_number(columns, single, b"schema-version", "schema_version")
    relayed.update(single)
    if (subject := columns.get("subject")) is not None:
        relayed[b"zbus.topic"] = subject
    if relayed:
        columns["attributes"] = _attributes(relayed, len(run.bodies))
    return columns


def consume_columns(run: Run) -> Columns:
    """Columns of consumes, under the names that a consume has them. Raises KeyValueError."""
    columns, single, _ = _split_keys(run)
    found = {name: columns[column] for column, name in _OF_CONSUMES.items() if column in columns}
    if b"window" in single:
        found["window"] = _window(single[b"window"])
    return found


def common_columns(run: Run) -> Columns:
    """What every command may say: queue, id, token, whether to acknowledge, and the page it comes from."""
    return _split_keys(run)[0]


def _split_keys(run: Run) -> tuple[Columns, dict[bytes, bytes], dict[bytes, Column[bytes]]]:
    """Columns of keys that may differ within a run; keys that do not, one value each; and what only travels on."""
    keys = run.keys
    columns: Columns = {"topic": b"", "ack": _truth(keys[b"ack"]) if b"ack" in keys else True}
    single: dict[bytes, bytes] = {}
    relayed: dict[bytes, Column[bytes]] = {}
    for name, value in keys.items():
        column = _EACH.get(name)
        if column is not None:
            if type(value) is list:
                columns[column] = [each or None for each in value] if b"" in value and column != "topic" else value
            elif value:
                columns[column] = value
        elif name in _SINGLE:
            single[name] = cast(bytes, value)
        elif name not in _NOT_RELAYED and not name.startswith(ATTRIBUTE_PREFIX):
            relayed[name] = value
    if b"id" in keys:
        columns["message_id"] = _echoed(columns.get("message_id"), keys[b"id"], len(run.bodies))
    if single and any(browser := Browser(*map(single.get, _OF_BROWSERS))):
        columns["browser"] = browser
    return columns, single, relayed


def _echoed(msgids: Column[bytes], plain: Column[bytes], count: int) -> Column[bytes]:
    """The ids, with the header `id` for the way back."""
    ours, theirs = _by_row(msgids, count), _by_row(plain, count)
    found = [EchoedId.maybe_of(msgid, each) for msgid, each in zip(ours, theirs, strict=True)]
    return found[0] if count == 1 else found


def _by_row(column: Column[bytes], count: int) -> list[bytes | None]:
    return column if isinstance(column, list) else [column] * count


def _truth(value: Column[bytes]) -> bool | list[bool]:
    if type(value) is list:
        return [is_true(each) for each in value]  # type: ignore[arg-type]  # a key that is there has a value
    return is_true(value)  # type: ignore[arg-type]  # the same


def _take_status(columns: Columns, single: dict[bytes, bytes], run: Run) -> None:
    """From the key, else from a status line. 200 is what a receiver sees anyway."""
    code = single.pop(b"reply-code", None)
    status = run.first.status if code is None else _number(code, "reply-code")
    if status is None or status == 200:
        return
    if not is_final(status) or (status in BODILESS and any(run.bodies)):
        raise KeyValueError("status")
    columns["status"] = status
    single[b"zbus.status"] = b"%d" % status


def is_final(status: int) -> bool:
    """A status below 200 announces another one, so nothing may be delivered with it."""
    return 200 <= status <= 599


def _take_encoding(columns: Columns, single: dict[bytes, bytes]) -> None:
    """One column for both: a content type has a slash, a charset has none. Whatever does not fit is an attribute."""
    encoding, content_type = single.pop(b"encoding", b""), single.get(b"content-type", b"")
    label = encoding or single.get(b"content-encoding", b"")
    if b"/" in content_type:
        columns["encoding"] = single.pop(b"content-type")
    elif label and b"/" not in label:
        columns["encoding"] = label
        return
    if encoding:
        single[b"zbus.encoding"] = encoding


def _take_number(columns: Columns, single: dict[bytes, bytes], name: bytes, column: str) -> None:
    """A number that is spelled as we would; anything else travels on as it is."""
    text = single.get(name, b"")
    if text.isdigit() and len(text) <= 18 and b"%d" % int(text) == text:
        columns[column] = int(single.pop(name))


def _number(text: bytes, name: str) -> int:
    if not text.isdigit() or len(text) > 9:
        raise KeyValueError(name)
    return int(text)


def _window(text: bytes) -> int:
    """How many deliveries one consume allows; -1 has no limit."""
    if text == b"-1":
        return -1
    window = _number(text, "window")
    if window == 0:
        raise KeyValueError("window")
    return window


def _attributes(relayed: dict[bytes, Column[bytes]], count: int) -> Column[bytes]:
    """JSON objects; one for all where no value differs."""
    if list not in map(type, relayed.values()):
        return _attributes_of(relayed, relayed.values())
    columns = [value if type(value) is list else [value] * count for value in relayed.values()]
    return [_attributes_of(relayed, row) for row in zip(*columns, strict=True)]


def _attributes_of(names: Iterable[bytes], values: Iterable[Any]) -> bytes | None:
    pairs = zip(names, values, strict=True)
    return encode_attributes({name.decode(): value.decode() for name, value in pairs if value is not None})


def joined(parts: list[tuple[int, Columns]]) -> Columns:
    """Columns of runs that follow one another, each with how many rows it has."""
    if len(parts) == 1:
        return parts[0][1]
    names = {name for _, columns in parts for name in columns}
    return {name: _joined([(count, columns.get(name)) for count, columns in parts]) for name in names}


def _joined(parts: list[tuple[int, Any]]) -> Any:
    values = [value for _, value in parts]
    if list not in map(type, values):
        values = [value for count, value in parts for _ in range(count)]
        return same_or_all(values)
    joined: list[Any] = []
    for count, value in parts:
        joined += value if type(value) is list else [value] * count
    return joined


def as_keys(run: Run) -> dict[str, str]:
    """All keys of the one message of a run as text; without the token, so that nobody shows it by accident."""
    pairs = ((name, value) for name, value in run.keys.items() if name != b"token" and type(value) is bytes)
    return {name.decode(): value.decode() for name, value in pairs}
