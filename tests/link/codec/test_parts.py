from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway import errors
from raceway.errors import MalformedError, RacewayError
from raceway.link.codec.parts import BodyDecoder, encode_body, sendable
from raceway.model.envelope import JSON_COLUMNS, NUMBER_COLUMNS, TEXT_COLUMNS, Batch

decode_batch, decode_error = BodyDecoder(Batch), BodyDecoder(RacewayError)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    count = draw(st.integers(0, 5))
    batch = Batch(count)
    for name in draw(st.sets(st.sampled_from((*TEXT_COLUMNS, *NUMBER_COLUMNS, *JSON_COLUMNS, "payload")))):
        values = NUMBERS if name in NUMBER_COLUMNS else st.binary(max_size=20)
        listed = st.lists(st.none() | values, min_size=count, max_size=count)
        setattr(batch, name, draw(values | listed))
    if draw(st.booleans()):
        first = draw(st.integers(0, 1 << 40))
        batch.offset = range(first, first + count)
    return batch


def same_text(one: BaseException, other: BaseException) -> bool:
    return type(one) is type(other) and str(one) == str(other) and vars(one) == vars(other) and one.args == other.args


@given(batches())
def test_a_batch_arrives_as_it_was(batch: Batch) -> None:
    arrived = decode_batch(encode_body(batch))
    assert arrived.__dict__ == batch.__dict__
    assert type(arrived.offset) is type(batch.offset)


def test_a_batch_is_completed_before_it_is_sent() -> None:
    batch = Batch(1, topic=b"a")
    batch.source, batch.later = object(), lambda later: setattr(later, "payload", [b"x"])
    arrived = decode_batch(encode_body(batch))
    assert (arrived.payload, arrived.source, arrived.later) == ([b"x"], None, None)


@pytest.mark.parametrize(
    "columns",
    [
        {"count": 2, "payload": [b"x"]},
        {"count": 1, "topic": 5},
        {"count": 1, "colour": b"red"},
        {"count": -1},
        {"count": 2, "offsets": (0, 3)},
        {"topic": b"a"},
        [1],
    ],
)
def test_a_batch_that_does_not_add_up_is_refused(columns: Any) -> None:
    with pytest.raises(MalformedError):
        decode_batch(encode_body(columns))


VALUES = {
    "str": "x", "int": 7, "float": 1.5, "bool": True, "list[str]": ["a", "b"], "str | None": None, "int | None": 3,
}  # fmt: skip


def examples() -> Iterator[RacewayError]:
    """One error of each class, with arguments of the types that it wants."""
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, errors.FactsError) and issubclass(kind, RacewayError):
            wanted = inspect.signature(kind).parameters.values()
            yield kind(*(VALUES.get(str(each.annotation)) for each in wanted))
        elif issubclass(kind, RacewayError):
            yield kind("text")


@pytest.mark.parametrize("error", list(examples()), ids=lambda error: type(error).__name__)
def test_an_error_arrives_with_its_facts(error: RacewayError) -> None:
    arrived = decode_error(encode_body(sendable(error)))
    assert same_text(arrived, error)
    assert (arrived.code, arrived.retriable) == (error.code, error.retriable)


def test_an_error_of_a_program_is_told_by_its_text() -> None:
    class OwnError(RacewayError):
        pass

    arrived = decode_error(encode_body(sendable(OwnError("out of luck"))))
    assert same_text(arrived, RacewayError("out of luck"))
    held = errors.RemoteError("x", "text", object())
    assert str(decode_error(encode_body(sendable(held)))) == str(held)


@pytest.mark.parametrize("sent", [["NoSuchError", {}, []], ["NoRouteError", {}, []], ["NoRouteError"], 7])
def test_an_error_that_nobody_could_have_sent_is_refused(sent: Any) -> None:
    with pytest.raises(MalformedError):
        decode_error(encode_body(sent))


@given(st.binary(max_size=40))
def test_noise_is_refused(noise: bytes) -> None:
    for decode in (decode_batch, decode_error):
        with contextlib.suppress(MalformedError):
            decode(noise)


def test_an_id_of_a_wires_own_kind_arrives_as_bytes() -> None:
    class OwnId(bytes):
        """Stands in for an id that its wire recognizes."""

    sent = Batch(2, topic=b"a", payload=[b"1", b"2"], message_id=[OwnId(b"x"), b"y"])
    found = BodyDecoder(Batch)(encode_body(sent))
    assert found.message_id == [b"x", b"y"]
    assert type(found.message_id[0]) is bytes
