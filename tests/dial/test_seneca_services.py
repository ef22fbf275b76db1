from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from raceway import config
from raceway.errors import ConfigError, ForbiddenError, MalformedError, NameInvalidError, PinTakenError, RacewayError
from tests.seneca_bus import FAST, RawService, Received, legacy, lines, raw_service, respond, seneca_bus, web
from tests.server import wait_until

SUM = {"role": "math", "cmd": "sum", "a": 1, "b": 2}


def add(document: dict[str, Any]) -> dict[str, Any]:
    return {"sum": document["a"] + document["b"]}


def test_a_call_reaches_a_service_in_the_dialect_it_speaks() -> None:
    with seneca_bus() as bus, raw_service(web(add)) as w, raw_service(legacy(add)) as legacy_service:
        assert [row.dialect for row in bus.attach("role:math,cmd:sum", w.url)] == ["W"]
        assert [row.dialect for row in bus.attach("role:old,cmd:sum", legacy_service.url)] == ["L"]
        assert bus.act(SUM).body == {"sum": 3}
        assert bus.act(SUM | {"role": "old"}).body == {"sum": 3}
        assert "meta$" in w.messages[0]
        assert "seneca-id" in legacy_service.received[-1].headers
        assert legacy_service.messages == [SUM | {"role": "old", "custom$": {}}]


def test_a_service_on_tcp_keeps_one_connection_for_many_calls() -> None:
    with seneca_bus() as bus, raw_service(lines(add), lines=True) as service:
        assert [(row.dialect, row.state) for row in bus.attach("role:math,cmd:*", service.url)] == [("T", "up")]
        for a in range(5):
            assert bus.act(SUM | {"a": a}).body == {"sum": a + 2}
        assert {one.connection for one in service.received} == {service.received[0].connection}
