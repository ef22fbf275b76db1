"""Custom data and unknown meta data of a Seneca message as attributes of the bus, and back.

A custom value that is a string is stored as that string, so that other wires can read and set it; any other value is
stored as JSON, and the attribute `seneca.typed` lists the names of those. Fields without a column:

    seneca.typed       names of custom values that are JSON, as a JSON array
    seneca.meta.x      unknown meta data `x`, its JSON untouched
    seneca.custom.x    custom data whose name `x` itself begins with `seneca.`
    seneca.vin         version increment, if it is not 1
    seneca.pat         pattern at the sender
    seneca.multiple    "true" if several responses are wanted
    seneca.parents     W's call chain; seneca.trace: the calls below it; both as JSON
    seneca.rtn         the return path, if it has more members than `urn`
    seneca.hops_cut    number of `trk` entries that were cut
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from raceway.errors import TooLargeError
from raceway.model.document import Members, maybe_decoded, maybe_text, maybe_whole, raw_of
from raceway.model.envelope import encode_json

PREFIX = "seneca."
TYPED, META, CUSTOM = PREFIX + "typed", PREFIX + "meta.", PREFIX + "custom."
# Attributes in which each wire keeps its own fields. They are not custom data for a Seneca service.
_OF_WIRES = (PREFIX, "mb.", "zbus.", "danube.", "http.")

# Bounds of what one message may add to its row, and to the headers of its deliveries on other wires.
MAX_ATTRIBUTES, MAX_ATTRIBUTE_BYTES = 128, 64 * 1024
SCHEMA_COLUMNS = ("schema_id", "schema_version")

_names = msgspec.json.Decoder(set[str]).decode
_number = msgspec.json.Decoder(int).decode


class Kept:
    """Names of the attributes in which fields without a column are kept."""

    VIN, PAT, MULTIPLE = PREFIX + "vin", PREFIX + "pat", PREFIX + "multiple"
    PARENTS, TRACE, RTN, HOPS_CUT = PREFIX + "parents", PREFIX + "trace", PREFIX + "rtn", PREFIX + "hops_cut"


def encoded_attributes(custom: Members, unknown: Members, remembered: dict[str, str]) -> bytes | None:
    """Encode all attributes of a message's row; None if there are none. Raises TooLargeError."""
    attributes = attributes_of(custom, unknown) | remembered if custom or unknown else remembered
    if not attributes:
        return None
    encoded = encode_json(attributes)
    if len(attributes) > MAX_ATTRIBUTES:
        raise TooLargeError("custom data", len(attributes), MAX_ATTRIBUTES, "entries")
    if len(encoded) > MAX_ATTRIBUTE_BYTES:
        raise TooLargeError("custom data", len(encoded), MAX_ATTRIBUTE_BYTES)
    return encoded


def attributes_of(custom: Members, unknown: Members) -> dict[str, str]:
    """Custom data and unknown meta data as attributes."""
    attributes: dict[str, str] = {}
    typed: list[str] = []
    for name, value in custom.items():
        # The prefix keeps a sender's own name `seneca.vin` apart from the bus's attribute of that name.
        key = CUSTOM + name if name.startswith(PREFIX) else name
        text = maybe_text(value)
        if text is None:
            typed.append(key)
            # Kept as received, not decoded and re-encoded: numbers beyond 2^53 keep their digits.
            text = bytes(value).decode()
        attributes[key] = text
    if typed:
        attributes[TYPED] = encode_json(typed).decode()
    for name, value in unknown.items():
        attributes[META + name] = bytes(value).decode()
    return attributes


def custom_of(attributes: Mapping[str, str]) -> Members:
    """Extract the custom data from the attributes of a Seneca message."""
    # Values listed there are JSON already; every other one is text and is encoded as a string.
    typed = maybe_decoded(_names, Raw(attributes[TYPED].encode())) or () if TYPED in attributes else ()
    custom: Members = {}
    for key, text in attributes.items():
        if not key.startswith(PREFIX) or key.startswith(CUSTOM):
            custom[key.removeprefix(CUSTOM)] = Raw(text.encode()) if key in typed else raw_of(text)
    return custom


def texts_of(attributes: Mapping[str, str]) -> Members:
    """Convert the attributes of another wire's message to custom data, without those only its own wire uses."""
    return {key: raw_of(text) for key, text in attributes.items() if not key.startswith(_OF_WIRES)}


def unknown_of(attributes: Mapping[str, str]) -> Members:
    """Extract unknown meta data from the attributes."""
    # Protocol document: fields of a newer `vin` are kept untouched, so a newer receiver still finds them.
    return {key[len(META) :]: Raw(text.encode()) for key, text in attributes.items() if key.startswith(META)}


def split_schema(custom: Members) -> tuple[Members, dict[str, int]]:
    """Move numeric `schema_id` and `schema_version` out of the custom data, into their columns."""
    if "schema_id" not in custom and "schema_version" not in custom:
        return custom, {}
    # A value that is not a whole number stays custom data: it belongs to the application, not to the registry.
    numbers: dict[str, Any] = {name: maybe_whole(maybe_decoded(_number, custom.get(name))) for name in SCHEMA_COLUMNS}
    columns = {name: number for name, number in numbers.items() if number is not None}
    return {name: value for name, value in custom.items() if name not in columns}, columns
