"""The strict parser of the header line of an MB message.

    header  = action ":" topic ":" version [ ":" [requestId] [ ":" [parentId] [ ":" [timeout] ] ] ]

Checks run in the order of the specification, and the first failure is reported; so their order matters. This is the
slow path, and the oracle of the tests: `MbReceiver` must agree with it on every input.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from raceway.errors import MalformedError
from raceway.model.topics import MAX_NAME_LENGTH
from raceway.wires.mb.codec.topics import is_mb_pattern, is_mb_topic

PUBLISH, REQUEST, RESPONSE, SUBSCRIBE = b"publish", b"request", b"response", b"subscribe"
ACTIONS = (PUBLISH, REQUEST, RESPONSE, SUBSCRIBE)

MALFORMED_MESSAGE = "MALFORMED_MESSAGE"

ID_LENGTH = 36
MAX_VERSION_LENGTH = 20
# 2^53 - 1, the largest integer a JavaScript number holds exactly; semver in the reference implementation refuses more.
MAX_VERSION_NUMBER = 9_007_199_254_740_991

# A parent may be a UUID of any version (the specification's own example has version 1), a request id only version 4.
UUID = rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
MESSAGE_ID = rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"

# No leading zeros, as in Semantic Versioning. Possessive quantifiers: headers come from the network.
_version = re.compile(rb"(0|[1-9][0-9]*+)\.(0|[1-9][0-9]*+)\.(0|[1-9][0-9]*+)").fullmatch
_uuid = re.compile(UUID).fullmatch
_uuid4 = re.compile(MESSAGE_ID).fullmatch
_number = re.compile(rb"-?[0-9]++(?:\.[0-9]++)?").fullmatch


class MbLimits(msgspec.Struct, frozen=True, dict=True):
    """Limits of a received message. All other limits follow from these two."""

    payload_limit: int = 16_384
    timeout_max_ms: int = 3_600_000

    @cached_property
    def timeout_digits(self) -> int:
        """Digits of the longest timeout."""
        return len(str(self.timeout_max_ms))

    @cached_property
    def header_limit(self) -> int:
        """Longest header in bytes: 367 with the default timeout."""
        # The longest value of each field (8 bytes for the action, as in the specification), and five colons.
        fields = len(RESPONSE) + MAX_NAME_LENGTH + MAX_VERSION_LENGTH + 2 * ID_LENGTH + self.timeout_digits
        return fields + 5

    @cached_property
    def frame_limit(self) -> int:
        """Longest message in bytes: 16,751 by default, the specification's number."""
        return self.payload_limit + self.header_limit


class MbHeader(NamedTuple):
    """A valid header. `action` is in lower case, all other fields are spelled as they were received."""

    action: bytes
    topic: bytes
    version: bytes
    message_id: bytes | None = None
    parent_id: bytes | None = None
    timeout_ms: int | None = None


class MbRefused(msgspec.Struct, frozen=True):
    """The reason why a message is refused, with an MB code. The reply has no details if `details` is None.

    `head` is the header if it was valid. If it was not, `message_id` is its id if that could be read.
    """

    code: str
    text: str
    details: Any = None
    head: MbHeader | None = None
    message_id: bytes | None = None


class _HeaderError(MalformedError):
    def __init__(self, reason: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.details = details


def read_message(message: bytes, limits: MbLimits) -> tuple[MbHeader, bytes] | MbRefused:
    """Split a whole message into header and payload, and check both."""
    # Check 1 of the specification. The search ends at the longest header: a message without LF costs no more.
    end = message.find(b"\n", 0, limits.header_limit + 1)
    if end < 0:
        text = f"no newline separator found within the maximum header length of {limits.header_limit} bytes"
        fields = message[: limits.header_limit].split(b":")
        return MbRefused(MALFORMED_MESSAGE, f"Invalid message format: {text}", message_id=_maybe_message_id(fields))
    head = parse_header(message[:end], limits)
    if isinstance(head, MbRefused):
        return head
    payload = message[end + 1 :]
    if len(payload) > limits.payload_limit:
        return payload_refused(head, len(payload), limits)
    return head, payload


def parse_header(header: bytes, limits: MbLimits) -> MbHeader | MbRefused:
    """Parse the bytes before the first LF: checks 2 to 11 of the specification."""
    fields = header.split(b":")
    try:
        return _read_fields(fields, limits)
    except _HeaderError as error:
        return MbRefused(MALFORMED_MESSAGE, error.reason, error.details, message_id=_maybe_message_id(fields))


def payload_refused(head: MbHeader, length: int, limits: MbLimits) -> MbRefused:
    """Return the refusal of a payload over the limit."""
    limit = limits.payload_limit
    # "16KB" for the default, as the specification spells it.
    size = f"{limit // 1024}KB" if limit % 1024 == 0 else f"{limit} bytes"
    text = f"Payload exceeds maximum length of {size}"
    return MbRefused(MALFORMED_MESSAGE, text, {"payloadLength": length}, as_request(head))


def as_request(head: MbHeader) -> MbHeader:
    """Return the header of the request that `subscribe:{pattern}` is short for; other headers unchanged."""
    if head.action != SUBSCRIBE:
        return head
    return head._replace(action=REQUEST, topic=b"system.topic.subscribe")


def is_message_id(field: bytes) -> bool:
    """Return whether a field is a UUID of version 4, in either letter case."""
    return _uuid4(field) is not None


def is_timeout(digits: bytes, limits: MbLimits) -> bool:
    """Return whether these digits are a timeout within the limit."""
    # Length first: `int` raises for thousands of digits.
    return len(digits) <= limits.timeout_digits and int(digits) <= limits.timeout_max_ms


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID of any version, in either letter case."""
    return _uuid(text.encode("utf-8", "replace")) is not None


def as_text(field: bytes) -> str:
    """Decode bytes from the network, invalid UTF-8 replaced, so that every reply can quote them."""
    return field.decode("utf-8", "replace")


def _read_fields(fields: list[bytes], limits: MbLimits) -> MbHeader:
    # The texts and the details below are the specification's, letter for letter.
    if len(fields) < 3:
        raise _HeaderError("Invalid header format: missing action, topic, or version")
    if len(fields) > 6:
        raise _HeaderError("Invalid header format: too many fields", {"fields": len(fields)})
    action = _read_first(*fields[:3])
    # Missing fields and empty fields mean the same.
    message_id, parent_id, timeout, *_ = [*fields[3:], b"", b"", b""]
    _check_message_id(message_id, action)
    if parent_id and not _uuid(parent_id):
        text = as_text(parent_id)
        raise _HeaderError(f"Invalid parent request ID format: {text}", {"parentRequestId": text})
    timeout_ms = _read_timeout(timeout, action, limits) if timeout else None
    return MbHeader(action, fields[1], fields[2], message_id or None, parent_id or None, timeout_ms)


@lru_cache(maxsize=4096)
def _read_first(action: bytes, topic: bytes, version: bytes) -> bytes:
    """Check action, topic and version; return the action in lower case. Cached: most messages repeat them."""
    # Actions are case-insensitive on this wire, topics keep their spelling.
    known, name = action.lower(), as_text(topic)
    if known not in ACTIONS:
        # `subscribe` is accepted but not named: it is not one of the specification's actions.
        valid = [as_text(each) for each in (PUBLISH, REQUEST, RESPONSE)]
        raise _HeaderError(f"Invalid action: {as_text(action).lower()}", {"validActions": valid})
    # The topic of a subscribe is a pattern, and may have wildcards.
    if not (is_mb_pattern(name) if known == SUBSCRIBE else is_mb_topic(name)):
        raise _HeaderError(f"Invalid topic name: {name}", {"topic": name})
    found = _version(version) if len(version) <= MAX_VERSION_LENGTH else None
    if found is None or any(int(number) > MAX_VERSION_NUMBER for number in found.groups()):
        raise _HeaderError(f"Invalid message version format: {as_text(version)}", {"version": as_text(version)})
    return known


def _check_message_id(field: bytes, action: bytes) -> None:
    if field and not _uuid4(field):
        raise _HeaderError(f"Invalid request ID format: {as_text(field)}", {"requestId": as_text(field)})
    # Both are answered, and the id is how the sender finds its answer.
    if not field and action in (REQUEST, SUBSCRIBE):
        raise _HeaderError("Missing request ID for request action", {"action": as_text(action)})


def _read_timeout(field: bytes, action: bytes, limits: MbLimits) -> int:
    # Checked before the value: a publish with a bad timeout is told that it may have none.
    if action != REQUEST:
        raise _HeaderError("Timeout is only allowed for request actions", {"action": as_text(action)})
    if field.isdigit() and is_timeout(field, limits):
        return int(field)
    # Shown as a double, as the reference implementation does: a header may have more digits than any client's integer.
    number = float(field) if _number(field) else None
    raise _HeaderError("Invalid timeout value", {"timeout": plain_number(number) if number is not None else None})


def plain_number(value: float) -> float:
    """Return 3.0 as 3, as JavaScript writes it in JSON; other numbers unchanged."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_VERSION_NUMBER:
        return int(value)
    return value


def _maybe_message_id(fields: list[bytes]) -> bytes | None:
    """Return the request id of an invalid header, if valid: it tells the sender which message was refused."""
    return fields[3] if len(fields) > 3 and _uuid4(fields[3]) else None
