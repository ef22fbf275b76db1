"""Calls and answers of Seneca in a form that tests can write down and compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from raceway.model.document import Members
from raceway.model.envelope import Hop, encode_json
from raceway.wires.seneca.codec.answer import HttpAnswer
from raceway.wires.seneca.codec.call import Call
from raceway.wires.seneca.codec.line import LineRefused, read_line
from raceway.wires.seneca.codec.request import NotACall, read_http

NOBODY: Mapping[bytes, bytes] = {}


def fresh_ids() -> Callable[[], str]:
    """new1, new2, …"""
    numbers = count(1)
    return lambda: f"new{next(numbers)}"


def call_of(document: Mapping[str, Any] | bytes, headers: Mapping[bytes, bytes] = NOBODY, query: bytes = b"") -> Call:
    """A request over HTTP that is taken."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    call = read_http(headers, body, fresh_ids(), query)
    assert isinstance(call, Call), call
    return call


def refused(body: bytes, headers: Mapping[bytes, bytes] = NOBODY, query: bytes = b"") -> NotACall:
    """A request over HTTP that is not."""
    refusal = read_http(headers, body, fresh_ids(), query)
    assert isinstance(refusal, NotACall), refusal
    return refusal


def line_call(document: Mapping[str, Any] | bytes) -> Call:
    line = document if isinstance(document, bytes) else json.dumps(document).encode()
    call = read_line(line, fresh_ids())
    assert isinstance(call, Call), call
    return call


def line_refused(document: Mapping[str, Any] | bytes) -> LineRefused:
    line = document if isinstance(document, bytes) else json.dumps(document).encode()
    refusal = read_line(line, fresh_ids())
    assert isinstance(refusal, LineRefused), refusal
    return refusal


def custom_of(call: Call) -> dict[str, Any]:
    return plain(call.custom)


def plain(members: Members | None) -> dict[str, Any]:
    return {name: json.loads(bytes(value)) for name, value in (members or {}).items()}


def told(hops: tuple[Hop, ...]) -> Any:
    """Hops as `trk` on the wire."""
    return json.loads(encode_json(hops))


def body_of(answer: HttpAnswer) -> Any:
    return json.loads(answer.body)


def headers_of(answer: HttpAnswer) -> dict[bytes, bytes]:
    lines = answer.lines.split(b"\r\n")
    assert lines.pop() == b""
    pairs = [tuple(line.split(b": ", 1)) for line in lines]
    assert len({name for name, _ in pairs}) == len(pairs), "a header stands twice"
    return dict(pairs)  # type: ignore[arg-type]
