from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.model import envelope
from raceway.model.envelope import Batch, Envelope, Hop, agreed

TEXT = st.none() | st.text(max_size=20)
NUMBER = st.none() | st.integers(-(2**63), 2**63 - 1)
HOPS = st.builds(
    Hop,
    sid=st.text(max_size=5),
    rid=st.text(max_size=5),
    mid=st.text(max_size=5),
    tms=st.lists(st.none() | st.integers(0, 2**50), max_size=4).map(tuple),
)
ENVELOPES = st.builds(
    Envelope,
    topic=st.text(max_size=20),
    wire=st.sampled_from(["mb", "danube", "zbus", "seneca", "http"]),
    kind=st.sampled_from(["publish", "request", "response", "control"]),
    time_us=st.integers(0, 2**60),
    **{name: TEXT for name in envelope.TEXT_COLUMNS if name not in ("topic", "wire", "kind")},
    **{name: NUMBER for name in envelope.NUMBER_COLUMNS if name != "time_us"},
    attributes=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    hops=st.lists(HOPS, max_size=3).map(tuple),
    payload=st.binary(max_size=50),
)


def with_root(row: Envelope) -> Envelope:
    """What a reader sees: a row without correlation id is the root of its own chain."""
    return row if row.correlation_id is not None else msgspec.structs.replace(row, correlation_id=row.message_id)


@given(st.lists(ENVELOPES, max_size=5))
def test_rows_survive_the_way_through_columns(rows: list[Envelope]) -> None:
    assert list(Batch.of(rows)) == [with_root(row) for row in rows]


def test_a_column_that_no_row_uses_stays_unused() -> None:
    batch = Batch.of([Envelope(topic="a", message_id="1"), Envelope(topic="b")])
    assert batch.message_id == [b"1", None]
    assert batch.parent_id is None
    assert batch.attributes is None
    assert "parent_id" not in vars(batch)


def test_a_single_value_holds_for_every_row() -> None:
    batch = Batch(2, topic=b"a.b", wire=b"mb", kind=envelope.PUBLISH, payload=[b"x", b"y"])
    assert [(row.topic, row.wire, row.payload) for row in batch] == [("a.b", "mb", b"x"), ("a.b", "mb", b"y")]
    assert [batch.item("topic", row) for row in range(2)] == [b"a.b", b"a.b"]


def test_the_root_of_a_chain_is_its_own_correlation() -> None:
    root, child = Batch(2, message_id=[b"1", b"2"], correlation_id=[None, b"1"], payload=[b"", b""])
    assert (root.correlation_id, child.correlation_id) == ("1", "1")


def test_a_row_without_any_id_has_no_correlation() -> None:
    assert Batch(1, payload=[b""]).row(0).correlation_id is None


def test_every_field_of_a_row_but_its_position_is_a_column() -> None:
    fields = [field.name for field in msgspec.structs.fields(Envelope)]
    assert set(fields) == {*envelope.COLUMNS, "partition", "sequence"}
    assert all(hasattr(Batch(0), name) for name in envelope.COLUMNS)


def test_rows_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Envelope().topic = "x"  # type: ignore[misc]


def test_empty_attributes_and_hops_cost_no_bytes() -> None:
    assert envelope.encode_attributes({}) is None
    assert envelope.encode_hops(()) is None
    assert envelope.decode_attributes(None) == {}
    assert envelope.decode_hops(None) == ()


def test_hops_leave_out_what_is_not_known() -> None:
    assert envelope.encode_hops([Hop(sid="a", tms=(1, None))]) == b'[{"sid":"a","tms":[1,null]}]'
    assert envelope.decode_hops(b'[{"sid":"a","tms":[1,null]}]') == (Hop(sid="a", tms=(1, None)),)


def test_text_is_utf8_in_columns() -> None:
    assert Batch.of([Envelope(topic="gepäck")]).topic == ["gepäck".encode()]


def test_joined_batches_have_all_rows_in_order() -> None:
    one = Batch(2, wire=b"mb", topic=b"a", message_id=[b"1", b"2"], payload=[b"x", b"x"], error=[None, b"e"])
    other = Batch(1, wire=b"mb", topic=b"b", message_id=[b"3"], payload=[b"x"], timeout_ms=7)
    joined = Batch.joined([one, other])
    assert (joined.count, joined.wire, joined.topic) == (3, b"mb", [b"a", b"a", b"b"])
    assert (joined.message_id, joined.payload) == ([b"1", b"2", b"3"], [b"x", b"x", b"x"])
    assert (joined.error, joined.timeout_ms) == ([None, b"e", None], [None, None, 7])


def test_values_that_agree_are_one_for_all_rows() -> None:
    assert (agreed([b"a", b"a"]), agreed([b"a", b"b"]), agreed([None, None])) == (b"a", [b"a", b"b"], None)


def test_a_column_is_set_if_a_row_uses_it() -> None:
    batch = Batch(2)
    batch.set_if_used("error", [None, None])
    batch.set_if_used("reply_to", [None, b"r"])
    assert batch.__dict__ == {"count": 2, "reply_to": [None, b"r"]}


def test_the_source_of_a_batch_is_no_column() -> None:
    batch = Batch(1, topic=b"a", payload=[b"x"])
    batch.source = object()
    assert "source" not in batch.__dict__
    assert batch.keep([0]).source is None


def test_columns_that_come_later_are_filled_in_once() -> None:
    filled: list[Batch] = []
    batch = Batch(2, payload=[b"a", b"b"])
    batch.later = filled.append
    batch.complete()
    batch.complete()
    assert filled == [batch]


def test_rows_that_are_kept_of_a_batch_are_complete() -> None:
    batch = Batch(2, payload=[b"a", b"b"])
    batch.later = lambda whole: setattr(whole, "hops", [b"[1]", b"[2]"])
    kept = batch.keep([1])
    assert (kept.payload, kept.hops, kept.later) == ([b"b"], [b"[2]"], None)
