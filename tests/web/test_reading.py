"""Topics that match patterns, for one caller. Pages and streams are tested over sockets: end_to_end/test_http_*.py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.requests import Request

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.door import Door
from raceway.errors import ForbiddenError
from raceway.model.security import Principal
from raceway.web import reading
from raceway.web.answers import PRINCIPAL
from raceway.web.reading import MatchingTopics
from raceway.web.routing import Site
from tests.rigs.danube_tokens import ISSUER, SECRET
from tests.rigs.doubles import Bench

TILL = Principal("service_account", "till")


@pytest.fixture
def broker() -> Broker:
    bench = Bench()
    security = config.SecuritySettings(enabled=True, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",))
    broker = Broker(config.BrokerSettings(), bench.journal, bench.loop, bench.clock_us, security)
    broker.security.put_role("reader", ["Consume"])
    for name in ("shop.a", "shop.b", "belt"):
        broker.topics.own(name)
    return broker


def matching(broker: Broker, *patterns: str) -> MatchingTopics:
    nothing = cast(Any, None)
    site = Site(
        Door(broker), nothing, nothing, nothing, nothing, config.Listen(), config.SqlSettings(), "", None, {}, (), ()
    )
    scope = {"type": "http", "client": ("127.0.0.1", 9), "headers": [], PRINCIPAL: TILL}
    return MatchingTopics(site, Request(scope), patterns, "first")


def test_only_topics_that_the_caller_may_read_are_matched(broker: Broker) -> None:
    broker.security.bind(TILL, "reader", "topic", "shop.a")

    async def run() -> None:
        topics = matching(broker, "#")
        assert await topics.first() == [("shop.a", 0)]
        broker.topics.own("shop.later")
        assert await topics.find() == []

    asyncio.run(run())


def test_a_topic_that_the_caller_may_not_read_is_refused_by_its_name(broker: Broker) -> None:
    broker.security.bind(TILL, "reader", "topic", "shop.a")
    with pytest.raises(ForbiddenError):
        asyncio.run(matching(broker, "shop.a", "shop.b").first())


def test_new_topics_are_found_once(broker: Broker) -> None:
    broker.security.bind(TILL, "reader", "cluster")

    async def run() -> None:
        topics = matching(broker, "shop.+")
        assert sorted(await topics.first()) == [("shop.a", 0), ("shop.b", 0)]
        broker.topics.own("shop.later")
        broker.topics.own("other")
        assert await topics.find() == [("shop.later", 0)]
        assert await topics.find() == []

    asyncio.run(run())


def test_a_permission_that_is_withdrawn_ends_the_stream(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOOK_S", 0.0)
    binding = broker.security.bind(TILL, "reader", "cluster")
    topics = matching(broker, "shop.#")
    asyncio.run(topics.first())
    topics.check()
    broker.security.unbind(binding.id)
    with pytest.raises(ForbiddenError):
        topics.check()


def test_topics_of_other_namespaces_are_named_exactly_or_not_at_all(broker: Broker) -> None:
    broker.security.bind(TILL, "reader", "cluster")
    broker.topics.own("/shop/orders")
    assert "/shop/orders" not in dict(asyncio.run(matching(broker, "#").first()))
    assert asyncio.run(matching(broker, "/shop/orders").first()) == [("/shop/orders", 0)]
