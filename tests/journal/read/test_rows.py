"""From the columns of a block to the canonical ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from raceway.journal.format import SCHEMA, Meta
from raceway.journal.read.rows import Budget, counting, decode_rows
from raceway.journal.write.columns import lay_out
from raceway.model.envelope import Hop, encode_attributes, encode_hops
from tests.rigs.journal import BytesSource, buffer_of


class Decoded:
    """Batches laid out, ready to be decoded in parts; `source` notes what is loaded."""

    def __init__(self, batches: list[dict[str, Any]], counts: list[int]) -> None:
        layout = lay_out(batches, counts)
        self.rows = sum(counts)
        self.source = BytesSource(layout.body())
        self.meta = Meta(layout.columns, layout.constants, [], b"", 0)

    def batch(self, begin: int = 0, end: int | None = None, columns: list[str] | None = None) -> pa.RecordBatch:
        end = self.rows if end is None else end
        return decode_rows(self.meta, 1000, self.rows, buffer_of(self.source), begin, end, columns)


def values(decoded: Decoded, name: str) -> list[Any]:
    found: list[Any] = decoded.batch(columns=[name]).column(name).to_pylist()
    return found


def test_a_row_without_anything_has_empty_and_null_columns() -> None:
    (row,) = Decoded([{"payload": [None]}], [1]).batch().to_pylist()
    filled = {"partition": 0, "sequence": 1000, "topic": "", "attributes": [], "hops": [], "payload": b""}
    assert row == dict.fromkeys(SCHEMA.names) | filled


def test_a_root_has_its_own_id_as_correlation_id() -> None:
    decoded = Decoded([{"message_id": [b"m1", b"m2", None], "correlation_id": [None, b"root", None]}], [3])
    assert values(decoded, "correlation_id") == ["m1", "root", None]
    assert values(Decoded([{"message_id": [b"m1"]}], [1]), "correlation_id") == ["m1"]
    assert values(Decoded([{"message_id": b"m", "correlation_id": b"c"}], [1]), "correlation_id") == ["c"]


def test_attributes_and_hops_become_maps_and_lists() -> None:
    attributes = encode_attributes({"a": "1", "b": "2"})
    hops = encode_hops([Hop(sid="s", rid="r", tms=(1, None, 3))])
    decoded = Decoded([{"attributes": [attributes, None, attributes], "hops": [None, hops, None]}], [3])
    assert values(decoded, "attributes") == [[("a", "1"), ("b", "2")], [], [("a", "1"), ("b", "2")]]
    assert values(decoded, "hops") == [[], [{"sid": "s", "rid": "r", "mid": "", "tms": [1, None, 3]}], []]
    decoded.batch().validate(full=True)


def test_text_that_is_no_utf8_is_readable_all_the_same() -> None:
    decoded = Decoded([{"producer": [b"ok", b"\xff", None], "topic": b"\xe9t\xe9"}], [3])
    assert values(decoded, "producer") == ["ok", "\ufffd", None]
    assert values(decoded, "topic") == ["\ufffdt\ufffd"] * 3


def test_only_the_bytes_of_chosen_columns_and_rows_are_loaded() -> None:
    large = [b"%03d" % n + bytes(5000) for n in range(100)]
    decoded = Decoded([{"message_id": [b"%d" % n for n in range(100)], "payload": large}], [100])
    decoded.batch(columns=["message_id"])
    assert sum(size for _, size in decoded.source.reads) < 1000
    decoded.source.reads.clear()
    found = decoded.batch(40, 42, ["payload"])
    assert found.column("payload").to_pylist() == large[40:42]
    assert sum(size for _, size in decoded.source.reads) < 11_000


def test_counting_reaches_beyond_its_first_table() -> None:
    assert counting(65_530, 65_540).to_pylist() == list(range(65_530, 65_540))
    assert counting(0, 0).to_pylist() == []


_text = st.none() | st.binary(max_size=5)


@given(st.lists(st.tuples(_text, st.none() | st.integers(0, 9), _text), min_size=1, max_size=30), st.data())
def test_any_range_of_rows_is_a_slice_of_the_whole(items: list[Any], data: st.DataObject) -> None:
    ids, numbers, payloads = (list(column) for column in zip(*items, strict=True))
    batches: list[dict[str, Any]] = [
        {"message_id": ids, "timeout_ms": numbers, "payload": payloads, "topic": b"t", "offset": range(len(items))},
        {"topic": b"u", "payload": [b"x"] * 9, "offset": range(9), "attributes": b'{"a":"b"}'},
    ]
    decoded = Decoded(batches, [len(items), 9])
    begin = data.draw(st.integers(0, decoded.rows - 1))
    end = data.draw(st.integers(begin + 1, decoded.rows))
    whole, part = decoded.batch(), decoded.batch(begin, end)
    part.validate(full=True)
    assert part.to_pylist() == whole.slice(begin, end - begin).to_pylist()


def test_a_budget_ends_at_rows_or_bytes_and_lets_one_row_pass() -> None:
    batch = Decoded([{"payload": [bytes(100)] * 10}], [10]).batch()
    rows = Budget(4, 10**6)
    assert (rows.take(batch).num_rows, rows.is_spent) == (4, True)
    enough = Budget(100, 10**6)
    assert (enough.take(batch).num_rows, enough.is_spent) == (10, False)
    assert (enough.take(batch).num_rows, enough.rows) == (10, 80)
    small = Budget(100, 250)
    assert (small.take(batch).num_rows, small.is_spent) == (2, True)
    tiny = Budget(100, 1)
    assert (tiny.take(batch).num_rows, tiny.is_spent) == (1, True)
