from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import InvalidValueError
from raceway.model.subscriptions import LARGEST, FailurePolicy, Policies

milliseconds = st.integers(0, 10**9)


@given(st.integers(1, 10**6), milliseconds, milliseconds, milliseconds, st.sampled_from(["fixed", "exponential"]))
def test_a_wait_lies_between_the_base_and_the_most(
    failures: int, base_ms: int, most_ms: int, wanted_ms: int, backoff: str
) -> None:
    policy = FailurePolicy(
        base_redelivery_delay_ms=base_ms,
        max_redelivery_delay_ms=most_ms,
        backoff=backoff,  # type: ignore[arg-type]
    )
    wait_ms = policy.wait_ms(failures, wanted_ms)
    assert wait_ms <= most_ms
    assert wait_ms == most_ms or wait_ms >= max(base_ms, wanted_ms)
    assert policy.wait_ms(failures + 1, wanted_ms) >= wait_ms


def test_the_wider_policies_hold_where_the_narrower_say_nothing() -> None:
    wide = Policies(max_publish_rate=5, max_message_size=7)
    narrow = Policies(max_publish_rate=0, max_consumers_per_topic=2)
    assert narrow.within(wide) == Policies(max_publish_rate=0, max_consumers_per_topic=2, max_message_size=7)


@pytest.mark.parametrize("value", [-1, LARGEST + 1])
def test_numbers_must_fit(value: int) -> None:
    with pytest.raises(InvalidValueError):
        Policies(max_message_size=value).check()
    with pytest.raises(InvalidValueError):
        FailurePolicy(max_redelivery_delay_ms=value).check()
    FailurePolicy(max_redelivery_delay_ms=LARGEST).check()
