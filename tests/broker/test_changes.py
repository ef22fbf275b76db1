from __future__ import annotations

from raceway.broker.changes import AUDIT
from raceway.model.intents.administration import RecordChange
from raceway.model.intents.kinds import Done
from tests.rigs.doubles import Bench


def test_an_entry_is_a_row_of_the_audit_topic() -> None:
    bench = Bench()
    assert bench.broker.perform(bench.peer(), RecordChange({"action": "Delete a queue"}, b'{"name": "jobs"}')) == Done()
    bench.loop.advance(1)
    (row,) = [row for row in bench.rows() if row["topic"] == AUDIT]
    assert (row["kind"], row["payload"], row["encoding"]) == ("publish", b'{"name": "jobs"}', "application/json")
    assert dict(row["attributes"])["action"] == "Delete a queue"
    assert dict(row["attributes"])["principal"] == row["producer"]


def test_a_journal_that_cannot_be_written_does_not_undo_the_change() -> None:
    bench = Bench()
    bench.journal.refuse_writes()
    assert bench.broker.perform(bench.peer(), RecordChange({"action": "Delete a queue"}, b"{}")) == Done()
    bench.journal.take_writes()
    bench.loop.advance(1)
    assert bench.rows() == []
