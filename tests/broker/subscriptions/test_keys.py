from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.subscriptions import keys
from raceway.broker.subscriptions.consumers import Consumer, ConsumerRecord, KeyFilter, glob_matches
from raceway.broker.subscriptions.keys import KeyRing, ring_hash


def owner(number: int, *globs: str) -> Consumer:
    return Consumer(number, ConsumerRecord("t", "s", f"c{number}", number, number, globs), 0.0)


globs = st.text("ab*?", max_size=8)
texts = st.binary(max_size=8) | st.text("ab*?.\n", max_size=8).map(str.encode)


@given(globs, texts)
def test_globs_match_as_the_regular_expression_would(glob: str, key: bytes) -> None:
    expression = "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in glob)
    assert glob_matches(glob.encode(), key) == bool(re.fullmatch(expression.encode(), key, re.DOTALL))


def test_a_question_mark_is_one_byte() -> None:
    assert not glob_matches(b"?", "ü".encode())
    assert glob_matches(b"??", "ü".encode())


def test_classes_and_escapes_are_plain_text() -> None:
    assert glob_matches(b"[a]\\*", b"[a]\\b")
    assert not glob_matches(b"[a]", b"a")


def test_no_glob_makes_matching_slow() -> None:
    began = time.process_time()
    assert not glob_matches(b"*a" * 100 + b"b", b"a" * 2000)
    assert time.process_time() - began < 2


def test_a_filter_without_globs_accepts_any_key() -> None:
    assert KeyFilter(()).accepts(b"")
    assert KeyFilter(("a", "b*")).accepts(b"bc")
    assert not KeyFilter(("a", "b*")).accepts(b"c")


@pytest.mark.parametrize(("data", "wanted"), [(b"", 3323002737), (b"a", 1987926311), (b"key-1", 2966807684)])
def test_the_hash_never_changes(data: bytes, wanted: int) -> None:
    """Keys must stay with their consumers when the broker is replaced by a newer one."""
    assert ring_hash(data) == wanted


def test_keys_are_spread_over_all_and_few_move_when_one_comes() -> None:
    many = [b"key-%d" % number for number in range(2000)]
    consumers = [owner(n) for n in range(1, 6)]
    four, five = KeyRing(consumers[:4]), KeyRing(consumers)
    owners = [four.maybe_owner(key) for key in many]
    shares = [sum(each.id == n for each in owners if each) for n in range(1, 5)]
    assert min(shares) > 200
    moved = [(before, five.maybe_owner(key)) for key, before in zip(many, owners, strict=True)]
    gone = [after for before, after in moved if after != before]
    assert 100 < len(gone) < 800
    assert {owner.id for owner in gone if owner} == {5}, "only to the one that came"


def test_the_next_one_on_the_ring_that_accepts_the_key_owns_it() -> None:
    ring = KeyRing([owner(1, "a*"), owner(2, "b*")])
    owners = [ring.maybe_owner(key) for key in (b"a1", b"b1", b"c1", b"a1")]
    assert [owner and owner.id for owner in owners] == [1, 2, None, 1]


def test_an_empty_ring_owns_nothing() -> None:
    ring = KeyRing(())
    assert ring.maybe_owner(b"a") is None


def test_what_is_remembered_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEPT_OWNERS", 10)
    ring = KeyRing([owner(1)])
    for number in range(100):
        assert ring.maybe_owner(b"%d" % number) is not None
        assert len(ring._owners) <= 10
