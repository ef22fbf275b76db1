"""Three brokers for all tests of clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.kafka import running_kafka
from tests.rigs.tools import FETCH_S
from tools.kafka import Kafka


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"kafka", "brokers"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.may_skip("Maven Central cannot be reached from everywhere"))
            item.add_marker(pytest.mark.timeout(FETCH_S + 300))


@pytest.fixture(scope="session")
def brokers() -> Iterator[Kafka]:
    with running_kafka(3) as kafka:
        yield kafka


@pytest.fixture
def kafka(brokers: Kafka) -> Kafka:
    """All three serve, whatever the test before did."""
    brokers.mend()
    return brokers
