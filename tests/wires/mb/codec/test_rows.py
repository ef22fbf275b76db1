"""Gathering messages into columns; ids checked together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raceway.model.intents.batches import Publish, Request
from raceway.wires.mb.codec.header import is_message_id
from raceway.wires.mb.codec.rows import KnownStart, Rows, last_shape
from tests.rigs.vectors.mb import I, frame

ID = I.encode()
PUBLISH = KnownStart(b"publish", b"a", b"1.0.0", b"Publish:a:1.0.0:")
REQUEST = KnownStart(b"request", b"a", b"1.0.0", b"request:a:1.0.0:")


def rows_of(*ids: bytes) -> Rows:
    rows = Rows()
    for each in ids:
        rows.add(PUBLISH, each, None, None, b"")
    return rows


good = st.uuids(version=4).map(lambda each: str(each).encode()) | st.just(ID.upper()) | st.just(b"")
spoiled = st.tuples(st.uuids(), st.integers(0, 35), st.sampled_from(b"-0489abcfgAFG:\n ")).map(
    lambda parts: b"%b%c%b" % (str(parts[0]).encode()[: parts[1]], parts[2], str(parts[0]).encode()[parts[1] + 1 :])
)


@given(st.lists(good | spoiled, max_size=6))
def test_ids_are_judged_together_as_they_would_be_alone(ids: list[bytes]) -> None:
    assert rows_of(*ids).have_good_ids() is all(not each or is_message_id(each) for each in ids)


def test_two_bad_ids_do_not_make_up_for_one_another() -> None:
    shifted = [ID[:8] + b"0-" + ID[9:-1], b"-" + ID[:-1]]
    assert not rows_of(*shifted).have_good_ids()


def test_known_heads_that_are_equal_but_not_the_same_still_give_single_values() -> None:
    rows = rows_of(ID)
    rows.add(KnownStart(b"publish", b"a", b"1.0.0", b"publish:a:1.0.0:"), ID, None, None, b"")
    (intent,) = rows.batches()
    assert isinstance(intent, Publish)
    assert (intent.batch.topic, intent.batch.version) == (b"a", b"1.0.0")


def test_rare_columns_stay_out_of_runs_that_do_not_use_them() -> None:
    rows = rows_of(b"")
    rows.add(REQUEST, ID, None, 0, b"")
    publish, request = rows.batches()
    assert isinstance(request, Request)
    assert (publish.batch.message_id, publish.batch.timeout_ms) == (None, None)
    assert (request.batch.message_id, request.batch.timeout_ms) == ([ID], [0])


def test_shape_of_a_frame_is_in_the_senders_own_spelling() -> None:
    shape = last_shape(rows_of(ID))
    assert frame(b"Publish:a:1.0.0:" + ID + b"\n").startswith(shape.start)
    assert frame(b"Publish:a:1.0.0\n") == last_shape(rows_of(b"")).start + b"\n"
