"""The policy table, cell by cell, on wires that must name a schema and on those that need not."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from typing import Any, ClassVar

import pytest

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.errors import ReadOnlyError, SchemaRefusedError
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Publish, Request, Taken
from raceway.model.intents.schemas import RegisterSchema
from tests.rigs.doubles import Bench, ExactPeer, Message, RecordingPeer

USER = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}).encode()
USER_2 = json.dumps(
    {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}
).encode()
OTHER = json.dumps({"title": "another", **json.loads(USER)}).encode()
AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in "abcde"]}).encode()
GOOD, WRONG = b'{"id": 1}', b'{"id": "x"}'


class DanubePeer(ExactPeer):
    wire: ClassVar[bytes] = b"danube"
    names_schema: ClassVar[bool] = True


class ZbusPeer(ExactPeer):
    wire: ClassVar[bytes] = b"zbus"


class PatternPeer(ExactPeer):
    """A wire whose payloads hold more than the schema speaks of."""

    wire: ClassVar[bytes] = b"seneca"

    def judged(self, topic: Topic, payload: bytes) -> bytes:
        document = json.loads(payload)
        return json.dumps({key: value for key, value in document.items() if key != "role"}).encode()


class Rig:
    def __init__(self, policy: str = "enforce", validate: bool = True, **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.schemas = self.bench.broker.schemas
        self.schemas.register(RegisterSchema("user", "json", USER))
        self.schemas.register(RegisterSchema("other", "json", OTHER))
        self.topic = self.bench.broker.topics.spelled(b"users", folds_case=False)
        self.schemas.configure(self.topic, "user", policy, validate)
        self.reader = self.bench.exact_peer("users")
        self.rejected = self.bench.exact_peer("raceway.rejected")
        self.peers = {kind: self.bench.connected(kind()) for kind in (DanubePeer, ZbusPeer, RecordingPeer, PatternPeer)}

    def send(
        self, kind: type[RecordingPeer], *payloads: bytes, schema: list[tuple[int | None, int | None]] | None = None
    ) -> list[tuple[int, SchemaRefusedError]]:
        batch = self.batch(b"publish", kind, payloads, schema)
        outcome = self.bench.broker.perform(self.peers[kind], Publish(batch))
        assert isinstance(outcome, Taken)
        self.bench.loop.settle()
        return [(start, error) for start, _, error in outcome.refused if isinstance(error, SchemaRefusedError)]

    def batch(
        self,
        kind: bytes,
        peer: type[RecordingPeer],
        payloads: tuple[bytes, ...],
        schema: list[tuple[int | None, int | None]] | None = None,
    ) -> Batch:
        batch = Batch(len(payloads), topic=b"users", wire=peer.wire, kind=kind, payload=list(payloads))
        batch.message_id = [b"id-%d" % row for row in range(len(payloads))]
        if schema is not None:
            batch.schema_id, batch.schema_version = [each[0] for each in schema], [each[1] for each in schema]
        return batch

    def stored(self) -> list[bytes]:
        return [copy.payload for copy in self.reader.copies]

    def rows(self, topic: str) -> list[dict[str, Any]]:
        return [row for row in self.bench.rows() if row["topic"] == topic]


# What a message says of its schema, its payload, and the rule it breaks on a wire that must name a schema.
MESSAGES: list[tuple[str, tuple[int | None, int | None], bytes, str | None]] = [
    ("names nothing", (None, None), GOOD, "missing_schema_id"),
    ("unknown id", (999, None), GOOD, "unknown_schema_id"),
    ("id of another subject", (2, 1), GOOD, "subject_mismatch"),
    ("unknown version", (1, 9), GOOD, "unknown_version"),
    ("wrong payload", (1, 1), WRONG, "payload_invalid"),
    ("wrong payload, latest version", (1, None), WRONG, "payload_invalid"),
    ("right payload", (1, 1), GOOD, None),
    ("right payload, latest version", (1, None), GOOD, None),
]


@pytest.mark.parametrize("wire", [DanubePeer, ZbusPeer, RecordingPeer])
@pytest.mark.parametrize("policy", ["none", "warn", "enforce"])
@pytest.mark.parametrize(("claim", "payload", "rule"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES])
def test_the_policy_table(
    wire: type[RecordingPeer], policy: str, claim: tuple[int | None, int | None], payload: bytes, rule: str | None
) -> None:
    if rule == "missing_schema_id" and wire is not DanubePeer:
        rule = None  # there the latest version of the topic's subject is meant
    rig = Rig(policy)
    refused = rig.send(wire, payload, schema=[claim])
    is_refused = policy == "enforce" and rule is not None
    assert [error.violation for _, error in refused] == ([rule] if is_refused else [])
    assert rig.stored() == ([] if is_refused else [payload])
    assert len(rig.rows("users")) == (0 if is_refused else 1)
    assert len(rig.rejected.copies) == is_refused
    expected = {(policy, rule): 1} if rule is not None and policy != "none" else {}
    assert dict(rig.bench.broker.schema_violations) == expected
    if is_refused:
        assert str(refused[0][1]).split()[0] == rule


@pytest.mark.parametrize("wire", [DanubePeer, ZbusPeer, RecordingPeer])
def test_without_payload_validation_only_the_claim_is_looked_at(wire: type[RecordingPeer]) -> None:
    rig = Rig(validate=False)
    assert rig.send(wire, WRONG, schema=[(1, 1)]) == []
    assert [error.violation for _, error in rig.send(wire, WRONG, schema=[(2, 1)])] == ["subject_mismatch"]


@pytest.mark.parametrize(("policy", "expected"), [("enforce", ["no_subject"]), ("warn", [])])
def test_a_policy_without_a_subject_refuses_everything_or_warns_of_it(policy: str, expected: list[str]) -> None:
    rig = Rig()
    rig.schemas.configure(rig.topic, None, policy, True)
    assert [error.violation for _, error in rig.send(ZbusPeer, GOOD)] == expected
    assert dict(rig.bench.broker.schema_violations) == {(policy, "no_subject"): 1}


def test_each_message_is_held_to_its_own_version() -> None:
    rig = Rig()
    rig.schemas.register(RegisterSchema("user", "json", USER_2))
    mixed = b'{"id": 1, "name": 5}'  # right by the first version, wrong by the second
    refused = rig.send(DanubePeer, mixed, mixed, GOOD, schema=[(1, 1), (1, 2), (1, 2)])
    assert [(row, error.version, error.path) for row, error in refused] == [(1, 2, "/name")]
    assert rig.stored() == [mixed, GOOD]


def test_the_latest_version_is_meant_also_when_it_is_new() -> None:
    rig = Rig()
    mixed = b'{"id": 1, "name": 5}'
    assert rig.send(ZbusPeer, mixed) == []
    rig.schemas.register(RegisterSchema("user", "json", USER_2))
    assert [error.version for _, error in rig.send(ZbusPeer, mixed)] == [2]
    rig.schemas.delete_version("user", 2)
    assert rig.send(ZbusPeer, mixed) == []


def test_an_id_that_becomes_known_is_known_at_once() -> None:
    rig = Rig()
    assert rig.send(DanubePeer, GOOD, schema=[(3, 1)])[0][1].violation == "unknown_schema_id"
    rig.schemas.register(RegisterSchema("third", "json", USER))
    assert rig.send(DanubePeer, GOOD, schema=[(3, 1)])[0][1].violation == "subject_mismatch"


def test_rows_around_a_refused_one_go_on_in_order() -> None:
    rig = Rig()
    payloads = [b'{"id": %d}' % number if number % 3 else b"wrong %d" % number for number in range(10)]
    refused = rig.send(ZbusPeer, *payloads)
    assert [row for row, _ in refused] == [0, 3, 6, 9]
    kept = [payload for number, payload in enumerate(payloads) if number % 3]
    assert rig.stored() == kept
    assert [(row["offset"], row["payload"]) for row in rig.rows("users")] == list(enumerate(kept))
    assert [copy.payload for copy in rig.rejected.copies] == [payloads[row] for row in (0, 3, 6, 9)]


def test_a_refused_message_is_put_down_with_all_that_is_known_of_it() -> None:
    rig = Rig()
    rig.peers[ZbusPeer].producer = b"10.0.0.1:7"
    ((_, error),) = rig.send(ZbusPeer, WRONG)
    (row,) = rig.rows("raceway.rejected")
    assert (row["offset"], row["kind"], row["wire"], row["payload"]) == (0, "publish", "zbus", WRONG)
    assert row["message_id"] == "id-0"
    assert row["producer"] == "10.0.0.1:7"
    assert dict(row["attributes"]) == {
        "topic": "users", "code": "payload_invalid", "reason": error.reason, "path": "/id", "subject": "user",
        "version": "1", "wire": "zbus", "producer": "10.0.0.1:7",
    }  # fmt: skip
    assert error.details == {
        "reason": "payload_invalid", "subject": "user", "version": 1, "path": "/id", "rule": "properties/id/type"
    }  # fmt: skip


def test_requests_are_checked_and_answers_are_not() -> None:
    rig = Rig()
    responder = rig.bench.responder("users")
    asker = rig.peers[RecordingPeer]
    outcome = rig.bench.broker.perform(asker, Request(rig.batch(b"request", RecordingPeer, (WRONG, GOOD))))
    assert isinstance(outcome, Taken)
    assert [(start, type(error)) for start, _, error in outcome.refused] == [(0, SchemaRefusedError)]
    ((request, payload),) = responder.requests
    assert payload == GOOD
    rig.bench.respond(responder, Message(b"users", id=request.forwarded_id, payload=b"no user at all"))
    assert [answer[1] for answer in asker.answers] == [b"no user at all"]
    assert [row["kind"] for row in rig.rows("users")] == ["request", "response"]
    assert len(rig.rows("raceway.rejected")) == 1


def test_what_was_found_to_match_carries_the_name_of_its_version() -> None:
    rig = Rig()
    rig.send(ZbusPeer, GOOD)
    rig.send(ZbusPeer, GOOD, GOOD, schema=[(None, None), (1, 1)])
    rows = rig.rows("users")
    assert [(row["schema_id"], row["schema_version"]) for row in rows] == [(1, 1)] * 3


def test_what_was_not_looked_at_is_not_named() -> None:
    rig = Rig()
    rig.schemas.update_policy(rig.topic, "enforce", False)
    rig.send(ZbusPeer, WRONG)
    assert [(row["schema_id"], row["error"]) for row in rig.rows("users")] == [(None, None)]


def test_what_was_let_through_is_named_and_says_which_rule_it_broke() -> None:
    """The rows say of each message what the metric counts."""
    rig = Rig("warn")
    rig.send(ZbusPeer, GOOD, WRONG, framed(2, GOOD))
    rig.send(ZbusPeer, WRONG)
    rig.send(DanubePeer, GOOD, schema=[(77, 1)])
    found = [(row["schema_id"], row["schema_version"], row["error"]) for row in rig.rows("users")]
    assert found == [
        (1, 1, None), (1, 1, "payload_invalid"), (1, 1, "subject_mismatch"), (1, 1, "payload_invalid"),
        (77, 1, "unknown_schema_id"),
    ]  # fmt: skip
    counted = rig.bench.broker.schema_violations
    told = Counter(("warn", error) for _, _, error in found if error is not None)
    assert counted == told


def test_a_request_that_was_let_through_says_so_and_its_answer_does_not() -> None:
    rig = Rig("warn")
    responder = rig.bench.responder("users")
    rig.bench.broker.perform(rig.peers[RecordingPeer], Request(rig.batch(b"request", RecordingPeer, (WRONG,))))
    ((request, _),) = responder.requests
    rig.bench.respond(responder, Message(b"users", id=request.forwarded_id))
    assert [(row["kind"], row["error"]) for row in rig.rows("users")] == [
        ("request", "payload_invalid"), ("response", None)
    ]  # fmt: skip


def test_only_the_part_that_a_schema_speaks_of_is_judged() -> None:
    rig = Rig()
    strict = json.dumps({**json.loads(USER), "additionalProperties": False}).encode()
    rig.schemas.set_mode("user", "none")
    rig.schemas.register(RegisterSchema("user", "json", strict))
    with_pattern = b'{"role": "user", "id": 1}'
    assert rig.send(ZbusPeer, with_pattern)
    assert rig.send(PatternPeer, with_pattern) == []
    assert rig.stored() == [with_pattern]


def test_names_disregard_case_where_the_wire_does() -> None:
    rig = Rig()
    batch = rig.batch(b"publish", RecordingPeer, (WRONG,))
    batch.topic = b"USERS"
    outcome = rig.bench.broker.perform(rig.peers[RecordingPeer], Publish(batch))
    assert isinstance(outcome, Taken)
    assert isinstance(outcome.refused[0][2], SchemaRefusedError)


# ---- the prefix of serializers --------------------------------------------------------------------------------------


def framed(registry_id: int, payload: bytes) -> bytes:
    return b"\x00" + registry_id.to_bytes(4, "big") + payload


def test_behind_a_known_prefix_the_payload_is_held_to_that_version() -> None:
    rig = Rig()
    rig.schemas.register(RegisterSchema("user", "json", USER_2))  # registry id 3; `other` has 2
    mixed = b'{"id": 1, "name": 5}'
    assert rig.send(ZbusPeer, framed(1, mixed), framed(3, GOOD)) == []
    assert [(row["schema_id"], row["schema_version"]) for row in rig.rows("users")] == [(1, 1), (1, 2)]
    ((_, error),) = rig.send(ZbusPeer, framed(3, mixed))
    assert (error.violation, error.version) == ("payload_invalid", 2)
    ((_, error),) = rig.send(ZbusPeer, framed(2, GOOD))
    assert error.violation == "subject_mismatch"
    ((_, error),) = rig.send(ZbusPeer, framed(77, GOOD))
    assert error.violation == "payload_invalid"


def test_a_prefix_names_the_version_of_the_topics_own_subject_where_subjects_share_a_definition() -> None:
    rig = Rig()
    shared, _ = rig.schemas.register(RegisterSchema("a subject that comes first", "json", USER_2))
    own, _ = rig.schemas.register(RegisterSchema("user", "json", USER_2))
    assert own.registry_id == shared.registry_id
    assert rig.send(ZbusPeer, framed(own.registry_id, GOOD)) == []
    assert [(row["schema_id"], row["schema_version"]) for row in rig.rows("users")] == [(own.schema_id, 2)]


def test_nothing_can_be_published_with_a_version_that_was_deleted() -> None:
    rig = Rig()
    rig.schemas.register(RegisterSchema("user", "json", USER_2))
    rig.schemas.delete_version("user", 1)
    ((_, error),) = rig.send(ZbusPeer, framed(1, GOOD))
    assert (error.violation, error.version) == ("unknown_version", 1)


def test_on_a_wire_that_must_name_a_schema_a_prefix_does_not() -> None:
    rig = Rig()
    ((_, error),) = rig.send(DanubePeer, framed(1, GOOD), schema=[(None, None)])
    assert error.violation == "missing_schema_id"
    assert rig.send(DanubePeer, framed(1, GOOD), schema=[(1, 1)]) == []


def test_a_payload_that_begins_like_a_prefix_by_chance_is_read_without_one() -> None:
    rig = Rig()
    rig.schemas.register(RegisterSchema("numbers", "avro", AVRO))
    rig.schemas.configure(rig.topic, "numbers", "enforce", True)
    assert rig.send(ZbusPeer, b"\x00\x00\x00\x00\x01") == []  # five ints: 0, 0, 0, 0, -1
    assert rig.send(ZbusPeer, framed(3, b"\x02\x02\x02\x02\x02")) == []
    assert rig.send(ZbusPeer, framed(3, b"\x02"))[0][1].violation == "payload_invalid"


def test_a_framed_protobuf_payload_names_its_message_type() -> None:
    rig = Rig()
    text = b'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'
    registered, _ = rig.schemas.register(RegisterSchema("proto", "protobuf", text))
    rig.schemas.configure(rig.topic, "proto", "enforce", True)
    number = registered.registry_id
    assert rig.send(ZbusPeer, framed(number, b"\x00\x08\x01"), framed(number, b"\x02\x02\x0a\x01x"), b"\x08\x01") == []
    assert rig.send(ZbusPeer, framed(number, b"\x02\x02\x08\x01"))[0][1].path == "/b"
    # The client of Node names none, and means the first.
    assert rig.send(ZbusPeer, framed(number, b"\x08\x01"), framed(number, b"")) == []
    assert rig.send(ZbusPeer, framed(number, b"\x0a\x01"))[0][1].violation == "payload_invalid"


# ---- bounds ---------------------------------------------------------------------------------------------------------


def test_a_payload_too_large_to_be_checked_is_a_violation() -> None:
    rig = Rig(schemas=config.SchemaSettings(checked_bytes=100))
    assert rig.send(ZbusPeer, b'{"id": 1' + b" " * 91 + b"}") == []
    ((_, error),) = rig.send(ZbusPeer, b'{"id": 1' + b" " * 92 + b"}")
    assert error.rule == "size"


def test_a_definition_that_can_no_longer_be_read_is_a_violation_and_nothing_worse() -> None:
    """It may have been registered under another release, with other libraries."""
    rig = Rig("warn")
    kept = rig.bench.journal.state.get("schemas", "1")
    assert kept is not None
    rig.bench.journal.set_state("schemas", "1", {**kept, "definition": b64encode(b"nope").decode()})
    broker = Broker(config.BrokerSettings(linger_ms=0), rig.bench.journal, rig.bench.loop, rig.bench.clock_us)
    peer = ZbusPeer()
    broker.connect(peer)
    broker.perform(peer, Publish(rig.batch(b"publish", ZbusPeer, (GOOD,))))
    assert dict(broker.schema_violations) == {("warn", "payload_invalid"): 1}


def test_claims_of_strangers_do_not_fill_the_memory() -> None:
    rig = Rig()
    for first in range(0, 5000, 1000):
        rig.send(DanubePeer, *[GOOD] * 1000, schema=[(1000 + first + row, None) for row in range(1000)])
    assert rig.topic.contract is not None
    assert len(rig.topic.contract._verdicts) <= 1001


def test_warnings_are_logged_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig("warn", schemas=config.SchemaSettings(warn_s=10))
    rig.send(ZbusPeer, *[WRONG] * 100)
    rig.send(ZbusPeer, WRONG)
    assert capsys.readouterr().out.count("schema violated") == 1
    rig.bench.loop.advance(11)
    rig.send(ZbusPeer, WRONG)
    told = capsys.readouterr().out
    assert told.count("schema violated") == 1
    assert "unlogged=100" in told
    assert rig.bench.broker.schema_violations["warn", "payload_invalid"] == 102


def test_a_journal_that_takes_nothing_takes_no_refused_messages_either() -> None:
    rig = Rig()
    rig.bench.journal.refuse_writes()
    with pytest.raises(ReadOnlyError):
        rig.send(ZbusPeer, GOOD, WRONG)
    assert rig.stored() == []


def test_a_topic_without_a_policy_carries_no_contract() -> None:
    rig = Rig("none")
    assert rig.topic.contract is None
    rig.schemas.update_policy(rig.topic, "warn", False)
    assert rig.topic.contract is not None
    rig.schemas.update_policy(rig.topic, "none", True)
    assert rig.topic.contract is None
