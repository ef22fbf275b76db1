from __future__ import annotations

from typing import Any

from raceway.wires.mb.listen.rates import RateLimits
from raceway.wires.mb.settings import MbWire


class Clock:
    """Time in seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def limits(**settings: Any) -> tuple[RateLimits, Clock]:
    clock = Clock()
    return RateLimits(MbWire(**settings), clock), clock


def admitted(found: RateLimits, count: int, service: str = "s", topic: str = "t") -> int:
    return sum(found.admits(service, topic) for _ in range(count))


def test_without_limits_nothing_is_counted() -> None:
    found, _ = limits()
    assert not found.active
    assert admitted(found, 1000) == 1000
    assert len(found._buckets) == 0


def test_a_second_of_messages_passes_at_once_and_no_more() -> None:
    found, _ = limits(rate_per_service=5)
    assert found.active
    assert admitted(found, 100) == 5


def test_tokens_come_back_with_time() -> None:
    found, clock = limits(rate_per_service=10)
    assert admitted(found, 100) == 10
    clock.now += 0.35
    assert admitted(found, 100) == 3
    clock.now += 100
    assert admitted(found, 100) == 10, "never more than a second's worth"


def test_refused_messages_do_not_delay_the_next_token() -> None:
    found, clock = limits(rate_per_service=1)
    assert admitted(found, 1) == 1
    passed = 0
    for _ in range(31):
        clock.now += 0.1
        passed += found.admits("s", "t")
    assert passed == 3


def test_each_service_has_its_own_bucket() -> None:
    found, _ = limits(rate_per_service=2)
    assert admitted(found, 5, service="a") == 2
    assert admitted(found, 5, service="b") == 2


def test_a_topics_bucket_is_shared_by_all_services_and_spellings() -> None:
    found, _ = limits(rate_per_topic=3)
    assert admitted(found, 2, service="a", topic="Orders") == 2
    assert admitted(found, 5, service="b", topic="orders") == 1
    assert admitted(found, 5, service="b", topic="other") == 3


def test_a_topic_may_be_limited_for_each_service() -> None:
    found, _ = limits(topic_rate_per_service={"Orders": 2})
    assert found.active
    assert admitted(found, 5, service="a", topic="ORDERS") == 2
    assert admitted(found, 5, service="b", topic="orders") == 2
    assert admitted(found, 5, service="a", topic="other") == 5


def test_the_strictest_limit_counts() -> None:
    found, _ = limits(rate_per_service=10, rate_per_topic=4, topic_rate_per_service={"t": 2})
    assert admitted(found, 10) == 2
