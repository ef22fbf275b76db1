"""Heads of HTTP/2 requests: header blocks decoded, checked and remembered.

A client's calls mostly have the same head, byte for byte. Decoding one costs 17 microseconds, finding it again 40
nanoseconds. Equal bytes mean equal fields only while the table of the compression stands still: a block that changes
it makes everything remembered worthless.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hpack
from hpack.table import HeaderTable

from raceway.codec.http2_frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, BrokenConnectionError

# Heads that are remembered, and how large they may be; a head of gRPC has about ten fields in fifty bytes.
CACHED_HEADS, CACHED_BLOCK, CACHED_FIELDS = 512, 1024, 32
# What a table may hold is 4,096 bytes unless we say otherwise, and we do not.
TABLE_BYTES = 4096

Fields = list[tuple[bytes, bytes]]

# RFC 9113, section 8.2.1: lower case, no control characters, and a colon in front only.
_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_VALUE = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?").fullmatch
_DIGITS = re.compile(rb"\d{1,18}").fullmatch
# Section 8.2.2: these speak of the connection, which is none of a request's business.
_OF_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_PSEUDO = {b":method", b":scheme", b":path", b":authority"}


class Head:
    """Shared by all requests with the same block, and so not to be changed.

    `fault` says what is wrong with it, empty if nothing. `length` is its `content-length`, -1 if it has none. `whole`
    and `call` are for whoever admits requests: whether such a request may be handed over when it is complete, and what
    it made of the head.
    """

    __slots__ = ("call", "fault", "fields", "length", "method", "path", "size", "whole")

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.size = sum(len(name) + len(value) + 32 for name, value in fields)  # as RFC 9113, section 6.5.2 counts
        self.method = self.path = b""
        self.length = -1
        self.whole = False
        self.call: Any = None
        self.fault = self._read()

    def _read(self) -> str:
        pseudo: dict[bytes, bytes] = {}
        for name, value in self.fields:
            if name[:1] == b":":
                if name not in _PSEUDO or name in pseudo:
                    return "an unknown or repeated pseudo header field"
                pseudo[name] = value
        if not pseudo.keys() >= {b":method", b":scheme", b":path"} or not pseudo[b":path"]:
            return "a pseudo header field is missing"
        if any(name[:1] == b":" for name, _ in self.fields[len(pseudo) :]):
            return "a pseudo header field after others"
        self.method, self.path = pseudo[b":method"], pseudo[b":path"]
        return _fault_of(self.fields) or self._read_length()

    def _read_length(self) -> str:
        lengths = {value for name, value in self.fields if name == b"content-length"}
        if not lengths:
            return ""
        if len(lengths) > 1 or not _DIGITS(text := lengths.pop()):
            return "a content-length that is none"
        self.length = int(text)
        return ""


def _fault_of(fields: Fields) -> str:
    for name, value in fields:
        if not _NAME(name) or not _VALUE(value):
            return "a field that cannot be"
        if name in _OF_CONNECTION or (name == b"te" and value != b"trailers"):
            return "a field that speaks of the connection"
    return ""


def fault_of_trailers(fields: Fields) -> str:
    """What is wrong with the fields after a body; empty if nothing."""
    return "a pseudo header field in trailers" if any(name[:1] == b":" for name, _ in fields) else _fault_of(fields)


class HeadReader:
    """The receiving half of one connection's header compression. `admit` is asked once for each new head.

    Lists of more than `limit` bytes are read all the same, so that their request can be answered; beyond twice as much
    the connection ends.
    """

    def __init__(self, limit: int, admit: Callable[[Head], None]) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=2 * limit)
        self._decoder.max_allowed_table_size = TABLE_BYTES
        self._admit = admit
        self.known: dict[bytes, Head] = {}

    def head(self, block: bytes) -> Head:
        found = self.known.get(block)
        if found is not None:
            return found
        fields, moved = self._decode(block)
        head = Head(fields)
        if not head.fault:
            self._admit(head)
        if not moved and len(block) <= CACHED_BLOCK and len(fields) <= CACHED_FIELDS:
            if len(self.known) >= CACHED_HEADS:
                self.known.clear()
            self.known[block] = head
        return head

    def trailers(self, block: bytes) -> Fields:
        return self._decode(block)[0]

    def _decode(self, block: bytes) -> tuple[Fields, bool]:
        """The fields, and whether the table has changed. Raises BrokenConnectionError: the rest cannot be read."""
        table = self._decoder.header_table
        before = len(table.dynamic_entries), table.maxsize, _newest(table)
        try:
            fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except hpack.OversizedHeaderListError as error:
            raise BrokenConnectionError(ENHANCE_YOUR_CALM, "header list too large") from error
        except (hpack.HPACKError, IndexError) as error:
            raise BrokenConnectionError(COMPRESSION_ERROR, "header block cannot be read") from error
        count, capacity, newest = before
        moved = (count, capacity) != (len(table.dynamic_entries), table.maxsize) or newest is not _newest(table)
        if moved:
            self.known.clear()
        return fields, moved


def _newest(table: HeaderTable) -> object:
    return table.dynamic_entries[0] if table.dynamic_entries else None
