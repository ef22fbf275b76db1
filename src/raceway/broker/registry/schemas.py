"""Bindings of topics to schemas, and the check of messages against them.

A topic has at most one subject. The first producer that names one binds it; an administrator may change it. A topic
with policy `none` has no contract, so its messages cost nothing here.

Refused messages are not stored under their topic. They become rows of `raceway.rejected`, with the topic and the reason
as attributes. A message that breaks a rule and is accepted (`warn`) has the rule in the column `error` of its row, so
that readers of the journal count the same as the metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.registry.contracts import Contract
from raceway.broker.registry.registry import Registry
from raceway.broker.runs import Refused, RowSpan, without
from raceway.broker.steps import Steps
from raceway.broker.topics import Topic
from raceway.broker.undelivered.undeliverable import kept_attributes
from raceway.errors import SchemaReferenceError, SchemaRefusedError, UnknownSchemaError, UnknownTopicError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import PUBLISH, Batch, agreed, encode_attributes
from raceway.model.intents import schemas as intents
from raceway.model.schemas import Policy, SchemaVersion, TopicSchema
from raceway.model.topics import refuse_reserved
from raceway.schema.definition import policy_of

log = structlog.get_logger("raceway.schemas")

BINDINGS = "topic_schemas"
REJECTED = "raceway.rejected"
# Longest reason in attributes and logs: it may quote the payload.
REASON_CHARACTERS = 1000

StoreRows = Callable[[Batch, list[RowSpan], OnCommit | None, bytes | None], None]


class TopicBinding(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    subject: str | None = None
    policy: Policy = "none"
    validate_payload: bool = False


NO_BINDING = TopicBinding()


class Schemas(Registry):
    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._bindings: dict[str, TopicBinding] = {}
        for name, value in bus.journal.state.section(BINDINGS).items():
            self._apply(bus.topics.own(name), msgspec.convert(value, TopicBinding))

    def calls(self) -> dict[type, IntentHandler]:
        changes: dict[type, Callable[[Any], Any]] = {
            intents.DeleteVersion: lambda call: self.delete_version(call.subject, call.version, call.permanent),
            intents.DeleteSubject: lambda call: self.delete_subject(call.subject, call.permanent),
            intents.SetMode: lambda call: self.set_mode(call.subject, call.mode),
            intents.PrepareMode: lambda call: self.prepare_mode(call.subject, call.mode),
            intents.SetAccess: lambda call: self.set_access(call.subject, call.access),
            intents.BindTopic: self._bind_topic,
            intents.UnbindTopic: self._unbind_topic,
        }
        calls = {kind: self._bus.changing(work) for kind, work in changes.items()}
        return calls | {
            intents.RegisterSchema: self._register,
            intents.CheckSchema: self._check,
            intents.FindSchema: self._find,
        }

    # ---- definitions -------------------------------------------------------------------------------------------------

    def _read_large(self, call: intents.RegisterSchema | intents.CheckSchema | intents.FindSchema) -> Steps[None]:
        """Parse a large definition in another thread. Errors are raised by the call that uses it."""
        reading = self.maybe_read_aside(call.schema_type, call.definition, call.references)
        if reading is not None:
            yield self._bus.aside(reading.result)

    def _register(self, peer: Peer, call: intents.RegisterSchema) -> Steps[intents.Registered]:
        self._bus.journal.check_writable()
        yield from self._read_large(call)
        version, is_new = self.register(call)
        yield self._bus.commit
        return intents.Registered(version, is_new)

    def _check(self, peer: Peer, call: intents.CheckSchema) -> Steps[list[str]]:
        yield from self._read_large(call)
        return self.check(call)

    def _find(self, peer: Peer, call: intents.FindSchema) -> Steps[SchemaVersion | None]:
        yield from self._read_large(call)
        return self.maybe_same(call)

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _bind_topic(self, call: intents.BindTopic) -> TopicSchema:
        refuse_reserved(call.topic)
        topic = self._bus.topics.maybe_get(call.topic)
        if topic is None:
            topic = self._bus.topics.spelled(call.topic.encode(), folds_case=False)
        topics = topic.partitions or (topic,)
        for each in topics:
            known = self.topic_schema(each)
            self.configure(
                each,
                call.subject if call.changes_subject else known.subject,
                call.policy or known.policy,
                known.validate_payload if call.validate_payload is None else call.validate_payload,
            )
        return self.topic_schema(topics[0])

    def _unbind_topic(self, call: intents.UnbindTopic) -> TopicSchema:
        topic = self._bus.topics.maybe_get(call.topic)
        if topic is None:
            raise UnknownTopicError(call.topic)
        topics = topic.partitions or (topic,)
        for each in topics:
            self.forget(each)
        return self.topic_schema(topics[0])

    # ---- bindings ----------------------------------------------------------------------------------------------------

    def topic_schema(self, topic: Topic) -> TopicSchema:
        binding = self._bindings.get(topic.name, NO_BINDING)
        record = None if binding.subject is None else self._subjects.get(binding.subject)
        # The subject of a binding may be lost with a file of the journal.
        schema_id = None if record is None else record.schema_id
        return TopicSchema(topic.name, binding.subject, binding.policy, binding.validate_payload, schema_id)

    def bound_topics(self) -> Iterator[str]:
        return iter(self._bindings)

    def configure(self, topic: Topic, subject: str | None, policy: str, validate_payload: bool) -> None:
        """Set subject and policy of a topic. Raises SchemaInvalidError, UnknownSchemaError."""
        wanted = policy_of(policy)
        if subject is not None:
            self.latest(subject)
        self._keep(topic, TopicBinding(subject, wanted, validate_payload))

    def update_policy(self, topic: Topic, policy: str, validate_payload: bool) -> None:
        """Set the policy of a topic. Raises SchemaInvalidError, or SchemaReferenceError if the topic has no subject."""
        wanted = policy_of(policy)
        binding = self._bindings.get(topic.name, NO_BINDING)
        if binding.subject is None:
            raise SchemaReferenceError(f"topic {topic.name!r} has no schema subject yet")
        self._keep(topic, TopicBinding(binding.subject, wanted, validate_payload))

    def check_reference(
        self, topic: Topic | None, subject: str, *, version: int | None = None, min_version: int | None = None
    ) -> None:
        """Check that a producer with this subject may attach to the topic. Raises SchemaReferenceError."""
        try:
            latest = self.latest(subject)
            if version is not None:
                self.find(subject, version)
        except UnknownSchemaError as error:
            raise SchemaReferenceError(f"{error}: register it first") from error
        if min_version is not None and latest.version < min_version:
            raise SchemaReferenceError(f"subject {subject!r} is at version {latest.version}, {min_version} is required")
        bound = None if topic is None else self.topic_schema(topic).subject
        if topic is not None and bound is not None and bound != subject:
            raise SchemaReferenceError(f"topic {topic.name!r} has schema subject {bound!r}, not {subject!r}")

    def bind(self, topic: Topic, subject: str) -> None:
        """Bind the topic to the subject of its first producer that names one. The policy stays."""
        binding = self._bindings.get(topic.name, NO_BINDING)
        if binding.subject is None:
            self._keep(topic, msgspec.structs.replace(binding, subject=subject))

    def forget(self, topic: Topic) -> None:
        """Remove the binding of a topic."""
        if topic.name in self._bindings:
            self._bus.set_state(BINDINGS, topic.name, None)
            del self._bindings[topic.name]
            topic.contract = None

    def _keep(self, topic: Topic, binding: TopicBinding) -> None:
        if self._bindings.get(topic.name) != binding:
            self._bus.set_state(BINDINGS, topic.name, msgspec.to_builtins(binding))
            self._apply(topic, binding)

    def _apply(self, topic: Topic, binding: TopicBinding) -> None:
        self._bindings[topic.name] = binding
        topic.contract = None
        if binding.policy != "none":
            topic.contract = Contract(
                self.known, binding.subject, binding.policy, binding.validate_payload, self._settings.checked_bytes
            )


class _Judged(NamedTuple):
    """Decisions on the rows of a batch, by row number.

    broken     refused: the topic and the error
    tolerated  accepted although a rule is broken: the rule
    named      the subject and version that a row was validated against, if it named none itself
    """

    broken: dict[int, tuple[Topic, SchemaRefusedError]]
    tolerated: dict[int, bytes]
    named: dict[int, tuple[int, int]]


class SchemaDoor:
    """Check of all publishes and requests, of any wire, against the contracts of their topics. Answers are not checked.

    `store` publishes messages of the bus itself.
    """

    def __init__(self, bus: Bus, store: StoreRows) -> None:
        self._bus = bus
        self._store = store
        # (policy, rule) to violations; both are few and fixed.
        self.violations: Counter[tuple[str, str]] = Counter()

    def admit(
        self, peer: Peer, batch: Batch, spans: list[RowSpan], refused: Refused, askers: Sequence[Peer] | None = None
    ) -> list[RowSpan]:
        """Return the spans without rows that a contract refuses. Costs one check per span without a contract.

        `askers`: the peers of the rows, if they have several.
        Raises UnavailableError before any change if refused rows cannot be stored.
        """
        for span in spans:
            if span.topic.contract is not None:
                break
        else:
            return spans
        batch.complete()
        found = _Judged({}, {}, {})
        for topic, _, start, stop in spans:
            if topic.contract is not None:
                self._judge(topic, topic.contract, peer, batch, range(start, stop), found, askers)
        _name_schemas(batch, found.named)
        if found.tolerated:
            batch.error = agreed([found.tolerated.get(row) for row in range(batch.count)])
        broken = found.broken
        if not broken:
            return spans
        if peer.keeps_refused:
            self._put_down(peer, batch, broken)
        refused += [(row, row + 1, error) for row, (_, error) in broken.items()]
        return without(spans, broken)

    def _judge(
        self, topic: Topic, contract: Contract, peer: Peer, batch: Batch, rows: range, found: _Judged,
        askers: Sequence[Peer] | None,
    ) -> None:  # fmt: skip
        payloads: list[bytes] = batch.payload  # type: ignore[assignment]  # every row has one
        enforces = contract.policy == "enforce"
        for row in rows:
            schema_id, wanted = batch.item("schema_id", row), batch.item("schema_version", row)
            error, version = contract.verdict(schema_id, wanted, peer.names_schema)
            if version is not None and contract.checks_payload:
                sender = peer if askers is None else askers[row]
                error, version = contract.judge_payload(version, sender.judged(topic, payloads[row]))
                if schema_id is None and not (error is not None and enforces):
                    found.named[row] = (version.schema_id, version.version)
            if error is not None:
                self.violations[contract.policy, error.violation] += 1
                if enforces:
                    found.broken[row] = (topic, error)
                else:
                    found.tolerated[row] = error.violation.encode()
                    self._warn(topic, contract, peer, error)

    def _warn(self, topic: Topic, contract: Contract, peer: Peer, error: SchemaRefusedError) -> None:
        """Log a tolerated violation, at most once per `warn_s` and topic."""
        now = self._bus.loop.time()
        if contract.logged_at is not None and now - contract.logged_at < self._bus.settings.schemas.warn_s:
            contract.unlogged += 1
            return
        text = str(error)[:REASON_CHARACTERS]
        log.warning(
            "schema violated", topic=topic.name, wire=peer.wire.decode(), producer=peer.producer.decode(),
            reason=text, unlogged=contract.unlogged,
        )  # fmt: skip
        self._bus.logs.emit("warn", f"[{topic.name}] {text}", module="schemas")
        contract.logged_at, contract.unlogged = now, 0

    def _put_down(self, peer: Peer, batch: Batch, broken: dict[int, tuple[Topic, SchemaRefusedError]]) -> None:
        rows = batch.keep(list(broken))
        topic = self._bus.topics.own(REJECTED)
        rows.kind, rows.wire = PUBLISH, peer.wire
        rows.producer = rows.producer or peer.producer
        rows.timeout_ms = rows.reply_to = rows.forwarded_id = None
        producers = [rows.item("producer", row).decode("utf-8", "replace") for row in range(rows.count)]
        own = [rows.item("attributes", row) for row in range(rows.count)]
        rows.attributes = [
            encode_attributes(_facts(meant.name, error, peer.wire.decode(), producer) | kept_attributes(attributes))
            for (meant, error), producer, attributes in zip(broken.values(), producers, own, strict=True)
        ]
        self._store(rows, [RowSpan(topic, topic.encoded, 0, rows.count)], None, None)


def _facts(topic: str, error: SchemaRefusedError, wire: str, producer: str) -> dict[str, str]:
    return {
        "topic": topic,
        "code": error.violation,
        "reason": error.reason[:REASON_CHARACTERS],
        "path": error.path[:REASON_CHARACTERS],
        "subject": error.subject or "",
        "version": "" if error.version is None else str(error.version),
        "wire": wire,
        "producer": producer,
    }


def _name_schemas(batch: Batch, named: dict[int, tuple[int, int]]) -> None:
    """Set schema id and version of rows that were validated against a version they did not name."""
    if not named:
        return
    one = next(iter(named.values()))
    if len(named) == batch.count and all(each == one for each in named.values()):
        batch.schema_id, batch.schema_version = one
        return
    claims = [(batch.item("schema_id", row), batch.item("schema_version", row)) for row in range(batch.count)]
    filled = [named.get(row, claim) for row, claim in enumerate(claims)]
    batch.schema_id, batch.schema_version = [each[0] for each in filled], [each[1] for each in filled]
