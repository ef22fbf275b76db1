"""Names, patterns, and the trie against the plain matcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import NameInvalidError, NameReservedError
from raceway.model.topics import (
    PatternTrie,
    canonical_name,
    fold,
    has_wildcard,
    is_reserved,
    matches,
    refuse_reserved,
)
from tests.rigs.vectors.mb import VECTORS

words = st.sampled_from(["a", "b", "A", "system", "raceway", "x1"])
topics = st.lists(words, min_size=1, max_size=5).map(".".join)
patterns = st.tuples(st.lists(words | st.just("+"), min_size=1, max_size=4), st.sampled_from(["", "#", "+", "a"])).map(
    lambda parts: ".".join([*parts[0], parts[1]] if parts[1] else parts[0])
) | st.just("#")


@pytest.mark.parametrize(("pattern", "topic", "expected"), VECTORS["matches"])
def test_match_of_the_vectors(pattern: str, topic: str, expected: bool) -> None:
    trie: PatternTrie[str] = PatternTrie()
    trie.add(pattern, "me")
    assert matches(pattern, topic) is expected
    assert trie.find(topic) == (["me"] if expected else [])


@pytest.mark.parametrize("name", ["a", "orders.eu-west_1", "Größe", "заказы.новые", "注文", "a..b", "9", "x" * 255])
def test_canonical_name_is_kept_as_it_is(name: str) -> None:
    assert canonical_name(name) == name


def test_canonical_name_is_brought_to_normal_form_c() -> None:
    assert canonical_name("Gro\u0308\u00dfe") == "Größe"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n", "#", "a.+", "x" * 256, "½", "a:b", "\u0301", "\ud800"])
def test_what_is_no_name_is_refused_and_named(name: str) -> None:
    with pytest.raises(NameInvalidError) as caught:
        canonical_name(name)
    assert caught.value.name == name


def test_length_is_counted_after_normalising() -> None:
    assert len(canonical_name("o\u0308" * 255)) == 255


def test_names_that_differ_in_case_fold_to_one() -> None:
    assert fold("Orders.EU") == fold("orders.eu")
    assert fold("ΟΔΟΣ") == fold("οδος")


@pytest.mark.parametrize("name", ["system.log", "System.Message", "raceway.rejected", "RACEWAY.x"])
def test_reserved_name_is_refused(name: str) -> None:
    assert is_reserved(name)
    with pytest.raises(NameReservedError):
        refuse_reserved(name)


@pytest.mark.parametrize("name", ["system", "raceway", "systems.a", "a.system.b"])
def test_name_that_only_resembles_a_reserved_one_is_ordinary(name: str) -> None:
    refuse_reserved(name)


@pytest.mark.parametrize("pattern", ["#", "+.message", "+.#", "+.+"])
def test_first_level_wildcards_do_not_see_the_brokers_streams(pattern: str) -> None:
    assert not matches(pattern, "system.message")


@pytest.mark.parametrize("pattern", ["system.#", "SYSTEM.+", "system.message"])
def test_patterns_that_say_system_see_its_streams(pattern: str) -> None:
    assert matches(pattern, "system.message")


def test_bare_word_system_is_seen_by_wildcards() -> None:
    assert matches("#", "system")
    assert matches("+", "system")


def test_wildcards_are_told_from_plain_names() -> None:
    assert has_wildcard("a.+.b")
    assert has_wildcard("#")
    assert not has_wildcard("a.b")


@given(st.lists(patterns, max_size=12), topics)
def test_trie_finds_what_the_plain_matcher_finds(chosen: list[str], topic: str) -> None:
    trie: PatternTrie[int] = PatternTrie()
    for number, pattern in enumerate(chosen):
        trie.add(pattern, number)
    assert sorted(trie.find(topic)) == [n for n, pattern in enumerate(chosen) if matches(pattern, topic)]


@given(st.lists(st.tuples(patterns, st.integers(0, 3), st.booleans()), max_size=30), topics)
def test_trie_follows_any_sequence_of_adding_and_removing(steps: list[tuple[str, int, bool]], topic: str) -> None:
    trie: PatternTrie[int] = PatternTrie()
    expected: set[tuple[str, int]] = set()
    for pattern, value, adding in steps:
        entry = (fold(pattern), value)
        if adding:
            trie.add(pattern, value)
            expected.add(entry)
        else:
            assert trie.remove(pattern, value) is (entry in expected)
            expected.discard(entry)
    assert sorted(trie.find(topic)) == sorted(value for pattern, value in expected if matches(pattern, topic))
    assert bool(trie) is bool(expected)


def test_removing_the_last_pattern_leaves_nothing_behind() -> None:
    trie: PatternTrie[str] = PatternTrie()
    for number in range(100):
        trie.add(f"topic{number}.a.b", "me")
        assert trie.remove(f"Topic{number}.a.b", "me")
    assert not trie
