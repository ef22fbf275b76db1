"""Who is active, by type, name, age and time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.subscriptions.consumers import Consumer, ConsumerRecord, Consumers
from raceway.errors import ForbiddenError
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, SubscriptionType
from tests.rigs.subscribing import RecordingSink

RELEASE_MS = 3000.0


def consumer(number: int, name: str, seat: int | None = None, *, live: bool = True) -> Consumer:
    made = Consumer(number, ConsumerRecord("t", "s", name, number, seat or number), 0.0)
    made.sink = RecordingSink() if live else None
    return made


def active(kind: SubscriptionType, *members: Consumer, now_ms: float = 0.0) -> list[int]:
    consumers = Consumers(kind, RELEASE_MS)
    for member in members:
        consumers.add(member)
    consumers.settle(now_ms)
    return [each.id for each in consumers.active]


def test_shared_and_key_shared_have_all_live_ones_active() -> None:
    members = [consumer(1, "a"), consumer(2, "b", live=False), consumer(3, "c")]
    for kind in ("shared", "key_shared"):
        assert active(kind, *members) == [1, 3]


def test_failover_has_the_oldest_seat() -> None:
    assert active("failover", consumer(3, "c"), consumer(2, "b")) == [2]
    assert active("failover", consumer(2, "b"), consumer(3, "c", seat=1)) == [3]


@pytest.mark.parametrize("kind", SUBSCRIPTION_TYPES)
def test_of_one_name_the_newest_counts(kind: SubscriptionType) -> None:
    assert active(kind, consumer(1, "a"), consumer(2, "a", seat=1)) == [2]


@pytest.mark.parametrize("kind", SUBSCRIPTION_TYPES)
def test_without_streams_nobody_is_active(kind: SubscriptionType) -> None:
    assert active(kind, consumer(1, "a", live=False)) == []


def test_an_exclusive_subscription_waits_for_its_owner_and_then_for_nobody() -> None:
    owner, former = consumer(2, "owner", live=False), consumer(1, "former")
    assert active("exclusive", former, owner, now_ms=2999) == []
    assert active("exclusive", former, owner, now_ms=3000) == [1]


def test_when_the_owner_is_to_lose_it_is_known() -> None:
    consumers = Consumers("exclusive", RELEASE_MS)
    owner, former = consumer(2, "owner", live=False), consumer(1, "former")
    owner.left_ms = 500
    for each in (former, owner):
        consumers.add(each)
    consumers.settle(600)
    assert consumers.release_at_ms() == 3500
    owner.sink = RecordingSink()
    consumers.settle(700)
    assert consumers.release_at_ms() is None


def test_only_another_name_is_refused_and_only_while_it_is_attached() -> None:
    consumers = Consumers("exclusive", RELEASE_MS)
    consumers.add(consumer(1, "owner", live=False))
    consumers.admit("owner", 0)
    with pytest.raises(ForbiddenError):
        consumers.admit("other", 2999)
    consumers.admit("other", 3000)


def test_those_who_are_active_no_more_are_told() -> None:
    consumers = Consumers("failover", RELEASE_MS)
    first, second = consumer(1, "a"), consumer(2, "b")
    consumers.add(second)
    assert consumers.settle(0) == []
    consumers.add(first)
    assert consumers.settle(0) == [second]


@given(
    st.sampled_from(SUBSCRIPTION_TYPES),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 5000)), max_size=8),
    st.integers(0, 5000),
)
def test_whatever_the_members_somebody_is_active_if_anybody_may_be(
    kind: SubscriptionType, drawn: list[tuple[str, bool, int]], now_ms: int
) -> None:
    members = [consumer(number, name, live=live) for number, (name, live, _) in enumerate(drawn, 1)]
    for member, (_, _, left_ms) in zip(members, drawn, strict=True):
        member.left_ms = left_ms
    found = active(kind, *members, now_ms=now_ms)
    live = [member for member in members if member.sink is not None]
    assert set(found) <= {member.id for member in live}
    assert len({member.name for member in members if member.id in found}) == len(found), "one of each name"
    if kind in ("shared", "key_shared"):
        assert {member.name for member in members if member.id in found} == {member.name for member in live}
    elif kind == "failover":
        assert len(found) == bool(live)
    elif live and not found:
        assert any(member.sink is None and now_ms - member.left_ms < RELEASE_MS for member in members)
