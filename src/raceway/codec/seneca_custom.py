"""Custom data and unknown meta data of a Seneca message as attributes of the bus, and back.

A custom value that is text stands as itself, so that other wires can read and set it; any other value as its JSON, and
the attribute `seneca.typed` lists the names of those. What the model has no column for:

    seneca.typed       names of custom values that are JSON, as a JSON array
    seneca.meta.x      unknown meta data `x`, its JSON untouched
    seneca.custom.x    custom data whose name `x` itself begins with `seneca.`
    seneca.vin         version increment, when it is not 1
    seneca.pat         pattern at the sender
    seneca.multiple    "true" when several answers are wanted
    seneca.parents     the web dialect's call chain, seneca.trace its calls below, both as JSON
    seneca.rtn         the return path, when it says more than an address
    seneca.hops_cut    how many entries of `trk` were left out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from raceway.codec.seneca_document import Members, maybe_decoded, maybe_text, maybe_whole, raw_of
from raceway.errors import TooLargeError
from raceway.model.envelope import encode_json

PREFIX = "seneca."
TYPED, META, CUSTOM = PREFIX + "typed", PREFIX + "meta.", PREFIX + "custom."
VIN, PAT, MULTIPLE = PREFIX + "vin", PREFIX + "pat", PREFIX + "multiple"
PARENTS, TRACE, RTN, HOPS_CUT = PREFIX + "parents", PREFIX + "trace", PREFIX + "rtn", PREFIX + "hops_cut"
# Attributes by which a wire remembers what only it can say. They are no custom data to a Seneca service.
_OF_WIRES = (PREFIX, "mb.", "zbus.", "danube.")

MAX_ATTRIBUTES, MAX_ATTRIBUTE_BYTES = 128, 64 * 1024
SCHEMA_COLUMNS = ("schema_id", "schema_version")

_names = msgspec.json.Decoder(list[str]).decode
_number = msgspec.json.Decoder(int).decode


def encoded_attributes(custom: Members, unknown: Members, remembered: dict[str, str]) -> bytes | None:
    """The column of all that a message's row keeps as attributes. Raises TooLargeError."""
    attributes = attributes_of(custom, unknown) | remembered if custom or unknown else remembered
    if not attributes:
        return None
    encoded = encode_json(attributes)
    if len(attributes) > MAX_ATTRIBUTES:
        raise TooLargeError("custom data, by entries,", len(attributes), MAX_ATTRIBUTES)
    if len(encoded) > MAX_ATTRIBUTE_BYTES:
        raise TooLargeError("custom data", len(encoded), MAX_ATTRIBUTE_BYTES)
    return encoded


def attributes_of(custom: Members, unknown: Members) -> dict[str, str]:
    attributes: dict[str, str] = {}
    typed: list[str] = []
    for name, value in custom.items():
        key = CUSTOM + name if name.startswith(PREFIX) else name
        text = maybe_text(value)
        if text is None:
            typed.append(key)
            text = bytes(value).decode()
        attributes[key] = text
    if typed:
        attributes[TYPED] = encode_json(typed).decode()
    for name, value in unknown.items():
        attributes[META + name] = bytes(value).decode()
    return attributes


def custom_of(attributes: Mapping[str, str]) -> Members:
    """The custom data among the attributes of a Seneca message."""
    typed = set(_typed(attributes)) if TYPED in attributes else ()
    custom: Members = {}
    for key, text in attributes.items():
        if not key.startswith(PREFIX) or key.startswith(CUSTOM):
            custom[key.removeprefix(CUSTOM)] = Raw(text.encode()) if key in typed else raw_of(text)
    return custom


def texts_of(attributes: Mapping[str, str]) -> Members:
    """The attributes of a message of another wire as custom data, without what only its wire understands."""
    return {key: raw_of(text) for key, text in attributes.items() if not key.startswith(_OF_WIRES)}


def _typed(attributes: Mapping[str, str]) -> list[str]:
    return maybe_decoded(_names, Raw(attributes[TYPED].encode())) or []


def unknown_of(attributes: Mapping[str, str]) -> Members:
    """Unknown meta data that came with the message."""
    return {key[len(META) :]: Raw(text.encode()) for key, text in attributes.items() if key.startswith(META)}


def split_schema(custom: Members) -> tuple[Members, dict[str, int]]:
    """`schema_id` and `schema_version` that are numbers have columns of their own."""
    if "schema_id" not in custom and "schema_version" not in custom:
        return custom, {}
    numbers: dict[str, Any] = {name: maybe_whole(maybe_decoded(_number, custom.get(name))) for name in SCHEMA_COLUMNS}
    columns = {name: number for name, number in numbers.items() if number is not None}
    return {name: value for name, value in custom.items() if name not in columns}, columns
