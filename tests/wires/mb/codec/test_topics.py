"""Topics and patterns of MB."""

from __future__ import annotations

import pytest

from raceway.wires.mb.codec.topics import is_mb_pattern, is_mb_topic
from tests.rigs.vectors.mb import VECTORS


@pytest.mark.parametrize("topic", VECTORS["topics_ok"])
def test_topic_of_the_vectors_is_valid_and_is_a_pattern_too(topic: str) -> None:
    assert is_mb_topic(topic)
    assert is_mb_pattern(topic)


@pytest.mark.parametrize("topic", VECTORS["topics_bad"])
def test_bad_topic_of_the_vectors_is_refused(topic: str) -> None:
    assert not is_mb_topic(topic)


@pytest.mark.parametrize("pattern", VECTORS["patterns_ok"])
def test_pattern_of_the_vectors_is_valid(pattern: str) -> None:
    assert is_mb_pattern(pattern)


@pytest.mark.parametrize("pattern", VECTORS["patterns_bad"])
def test_bad_pattern_of_the_vectors_is_refused(pattern: str) -> None:
    assert not is_mb_pattern(pattern)


def test_topic_of_255_letters_is_valid_and_of_256_is_not() -> None:
    assert is_mb_topic("a" * 255)
    assert is_mb_pattern("a" * 253 + ".#")
    assert not is_mb_topic("a" * 256)
    assert not is_mb_pattern("a" * 254 + ".#")


def test_digits_and_letters_of_other_scripts_are_no_mb_topic() -> None:
    assert not is_mb_topic("a٣")
    assert not is_mb_topic("ſ")
    assert not is_mb_pattern("\u212a.#")  # the Kelvin sign, which folds to k
