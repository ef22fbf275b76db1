from __future__ import annotations

from raceway.model.buckets import Buckets


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_passes_and_then_the_rate_does() -> None:
    clock = Clock()
    found = Buckets(clock)
    assert [found.take("a", 2, 5) for _ in range(7)] == [True] * 5 + [False] * 2
    clock.now = 1.0
    assert [found.take("a", 2, 5) for _ in range(3)] == [True, True, False]
    clock.now = 1000.0
    assert sum(found.take("a", 2, 5) for _ in range(20)) == 5, "no more than the burst is saved up"


def test_keys_have_buckets_of_their_own() -> None:
    found = Buckets(Clock())
    assert [found.take(key, 1, 1) for key in "aab"] == [True, False, True]


def test_the_number_of_buckets_is_bounded() -> None:
    found = Buckets(Clock(), kept=5)
    assert all(found.take(number, 1, 1) for number in range(50))
    assert len(found) == 5
    assert not found.take(49, 1, 1), "the newest are kept"
