from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta
from starlette.requests import Request

from raceway.errors import MalformedError
from raceway.web.inputs import CLAMPED, CLAMPED_UNLESS_EMPTY, read_query


class Query(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from"}):
    start: str = "first"
    strict: Annotated[int, Meta(ge=1, le=5)] = 3
    limit: Annotated[int, Meta(ge=1, le=100, extra=CLAMPED)] = 10
    since: Annotated[int, Meta(ge=0, extra=CLAMPED)] | None = None
    after: Annotated[int, Meta(ge=0, extra=CLAMPED_UNLESS_EMPTY)] | None = None
    deleted: Annotated[bool, Meta(description="Whether to show deleted ones too.")] = False


def read(text: str) -> Query:
    return read_query(Request({"type": "http", "query_string": text.encode(), "headers": []}), Query)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Query()),
        ("unknown=1", Query()),
        ("from=7&strict=5", Query(start="7", strict=5)),
        ("limit=0", Query(limit=1)),
        ("limit=5000", Query(limit=100)),
        ("since=999999999999999999", Query(since=999999999999999999)),
        ("after=", Query()),
        ("after=7", Query(after=7)),
        ("deleted=TRUE", Query(deleted=True)),
        ("deleted=1", Query()),
        ("deleted=", Query()),
    ],
)
def test_a_query_is_decoded_into_a_record(text: str, expected: Query) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limit=", "limit must be a whole number"),
        ("limit=-1", "limit must be a whole number"),
        ("since=", "since must be a whole number"),
        ("since=1000000000000000000", "since must be a whole number"),
        ("after=x", "after must be a whole number"),
        ("strict=6", "Expected `int` <= 5 - at `$.strict`"),
        ("strict=x", "Expected `int`, got `str` - at `$.strict`"),
    ],
)
def test_what_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(MalformedError) as caught:
        read(text)
    assert str(caught.value) == message
