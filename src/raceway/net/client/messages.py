"""Payloads of all clients, encoded and decoded, receipts of publishes, and the message that MB clients receive."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from raceway.errors import PayloadTypeError
from raceway.model.envelope import encode_json

T = TypeVar("T")

# Bytes are sent as they are, text as UTF-8, None as an empty payload, and everything else as JSON: what JSON has, and
# objects of msgspec's classes, dataclasses, attrs' classes and pydantic's models.
Payload: TypeAlias = Any


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the bus to a published message.

    `stored`: the bus has confirmed that it is on disk; False if no confirmation was asked for. `no_route`: nobody was
    subscribed to the topic when it came, which is not an error; None if the wire does not tell (MB and HTTP do). MB
    says so at once instead of confirming: the bus stores such a message too, but `stored` is False. `offset`: its place
    in the topic, if the wire tells (HTTP does).
    """

    topic: str
    stored: bool = True
    no_route: bool | None = None
    offset: int | None = None


class Published(int):
    """Number of messages published together; for `no_route` of them nobody was subscribed, if the wire tells."""

    no_route: int

    def __new__(cls, count: int, no_route: int = 0) -> Self:
        made = super().__new__(cls, count)
        made.no_route = no_route
        return made


class Content:
    """The payload of a received message, decoded."""

    __slots__ = ()

    payload: bytes

    @property
    def text(self) -> str:
        """The payload as UTF-8, with replacement characters for malformed bytes."""
        return self.payload.decode("utf-8", "replace")

    def json(self) -> Any:
        """Decode the payload as JSON. Raises msgspec.DecodeError."""
        return msgspec.json.decode(self.payload)

    def decode(self, type: type[T]) -> T:
        """Decode the payload as JSON of this type: a class of msgspec, a dataclass, a model of pydantic, `list[Order]`.

        `bytes` and `str` are the payload itself. Raises PayloadTypeError, which names the field.
        """
        return decode_payload(self.payload, type)


class Message(Content, msgspec.Struct, frozen=True, gc=False):
    """A publish or request that was received. `id` is the id the bus gave it."""

    topic: str
    payload: bytes
    version: str = "1.0.0"
    id: str | None = None


def encode_payload(payload: Payload) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    if payload is None:
        return b""
    try:
        return encode_json(payload)
    except TypeError:
        # Tried last, so that nothing else gets slower.
        if not is_model(type(payload)):
            raise
        text: str = payload.model_dump_json()
        return text.encode()


def is_model(kind: Any) -> bool:
    """Return whether a type is a model of pydantic, by its methods: pydantic itself is not required."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")


def decode_payload(payload: bytes, kind: type[T]) -> T:
    """Decode a payload as JSON of this type. Raises PayloadTypeError."""
    if is_model(kind):
        return _decode_model(payload, kind)
    try:
        found: T = _decode(kind, payload)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise PayloadTypeError(type_name(kind), path.rstrip("`") or "$", reason) from error
    # Text that is not UTF-8 has an error of its own, in msgspec too.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadTypeError(type_name(kind), "$", str(error)) from error
    return found


def _decode(kind: Any, payload: bytes) -> Any:
    if kind is bytes:
        return payload
    return payload.decode() if kind is str else _decoder(kind).decode(payload)


@lru_cache(maxsize=1024)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _decode_model(payload: bytes, kind: type[T]) -> T:
    validate: Callable[[bytes], T] = kind.model_validate_json  # type: ignore[attr-defined]  # `is_model` has looked
    try:
        return validate(payload)
    # pydantic's ValidationError is a ValueError whose `errors` has a path and a sentence for each mistake.
    except ValueError as error:
        mistakes: list[dict[str, Any]] = getattr(error, "errors", list)()
        if not mistakes:
            raise
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistakes[0]["loc"])
        raise PayloadTypeError(type_name(kind), f"${path}", str(mistakes[0]["msg"])) from error


def type_name(kind: Any) -> str:
    """The name of a type as a sentence shows it: `Order`, `list[Order]`."""
    return kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)


def parts(payloads: Iterable[Payload], size: int) -> Iterable[list[Payload]]:
    """Split an iterable into lists of `size` items; the last one may be shorter."""
    left = iter(payloads)
    while part := list(itertools.islice(left, size)):
        yield part
