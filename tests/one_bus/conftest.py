"""One server with every wire, and the published clients, for all tests of the bus as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.one_bus import OneBus, Place, fresh_place, one_bus
from tests.rigs.seneca_wire import journal_end

TIMEOUT_MS = 700


@pytest.fixture(scope="session")
def session_bus() -> Iterator[OneBus]:
    # Short, because tests wait for it; every other wire's answers take milliseconds.
    with one_bus(
        RACEWAY_LISTEN__ZBUS__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
        RACEWAY_LISTEN__SENECA__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
        RACEWAY_LISTEN__SENECA__HOLD_MS=100,
        RACEWAY_BROKER__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
        RACEWAY_SENECA__RETRIES_MS="[20, 20, 20]",
        RACEWAY_SENECA__NAMES='{"role:odd,cmd:x*" = "odd.all"}',
        RACEWAY_BROKER__SUBSCRIPTIONS__ALIASES='{"shop.orders" = "/shop/orders"}',
    ) as bus:
        yield bus


@pytest.fixture
def bus(session_bus: OneBus) -> Iterator[OneBus]:
    """What a test opens on it is closed at the test's end."""
    session_bus.server.rows_begin = journal_end(session_bus.server)
    yield session_bus
    session_bus.close()


@pytest.fixture(scope="session")
def patient_session() -> Iterator[OneBus]:
    """With the deadlines of the settings' defaults, for many messages at once."""
    with one_bus() as bus:
        yield bus


@pytest.fixture
def patient_bus(patient_session: OneBus) -> Iterator[OneBus]:
    patient_session.server.rows_begin = journal_end(patient_session.server)
    yield patient_session
    patient_session.close()


@pytest.fixture
def place() -> Place:
    return fresh_place()
