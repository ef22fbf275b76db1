"""Live subscribers of random slowness beside a plain model: everything accepted while subscribed, in order, once.

Commits fail now and then: what was not stored then may come, as it left before, and nothing else may be missed.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.rigs.live import PEERS, TOPICS, LiveModel
from tests.rigs.rounds import rounds

peers = st.integers(0, PEERS - 1)


def steps(name: str, *facts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *facts)


topics = st.sampled_from(TOPICS)
STEPS = st.one_of(
    steps("publish", topics, st.integers(1, 8), st.integers(10, 1500)),
    steps("publish", st.just(TOPICS[0]), st.just(8), st.just(1500)),
    steps("publish_mixed", st.lists(topics, min_size=2, max_size=8), st.integers(10, 1500)),
    steps("subscribe", peers, topics, st.booleans()),
    steps("take", peers, st.sampled_from([1, 1000, 10_000, 10**9])),
    steps("wait", st.sampled_from([0.01, 0.3, 2.0])),
    steps("read"),
    steps("settle"),
    steps("fail"),
)


@settings(max_examples=rounds(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([500, 100_000]), st.lists(STEPS, min_size=20, max_size=120))
def test_live_subscribers_get_what_the_model_says(aside: int, chosen: list[tuple[Any, ...]]) -> None:
    model = LiveModel(aside)
    for name, *facts in chosen:
        getattr(model, name)(*facts)
        model.output_is_bounded()
    model.finish()
    event(f"detached {min(3, model.desk.counted('bus.detached'))}")
