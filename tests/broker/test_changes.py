from __future__ import annotations

from typing import Any

from raceway.broker.changes import AUDIT, DETAIL_BYTES
from raceway.model.intents.administration import RecordChange
from raceway.model.intents.kinds import Done
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench


def record(bench: Bench, facts: dict[str, str], asked: dict[str, Any] | None = None) -> list[Any]:
    told: list[Any] = []
    DOOR(bench.broker).perform(bench.peer(), RecordChange(facts, asked), told.append)
    bench.loop.settle()
    return told


def test_an_entry_is_a_row_of_the_audit_topic() -> None:
    bench = Bench()
    assert record(bench, {"action": "Delete a queue"}, {"name": "jobs"}) == [Done()]
    (row,) = [row for row in bench.rows() if row["topic"] == AUDIT]
    assert (row["kind"], row["payload"], row["encoding"]) == ("publish", b'{"name":"jobs"}', "application/json")
    assert dict(row["attributes"])["action"] == "Delete a queue"
    assert dict(row["attributes"])["principal"] == row["producer"]


def test_a_journal_that_cannot_be_written_does_not_undo_the_change() -> None:
    bench = Bench()
    bench.journal.refuse_writes()
    assert record(bench, {"action": "Delete a queue"}) == [Done()]
    bench.journal.take_writes()
    assert bench.rows() == []


def test_secrets_are_hidden_and_large_requests_are_a_size() -> None:
    bench = Bench()
    record(bench, {"action": "a"}, {"token": "hush", "rules": [{"password": "hush", "topic": "a"}], "secret": ""})
    record(bench, {"action": "b"}, {"payload": "x" * DETAIL_BYTES})
    first, second = [row["payload"] for row in bench.rows() if row["topic"] == AUDIT]
    assert first == b'{"token":"***","rules":[{"password":"***","topic":"a"}],"secret":""}'
    assert second == b'{"bytes":%d}' % (DETAIL_BYTES + len('{"payload":""}'))
