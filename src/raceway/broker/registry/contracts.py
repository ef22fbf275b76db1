"""A topic's contract: checks messages against the schema policy of their topic.

The decision, in this order; the first rule that is broken decides:

    no_subject          the topic is bound to nothing
    missing_schema_id   the message names no schema, on a wire where it must (elsewhere: the latest version is meant)
    unknown_schema_id   no subject has that id
    subject_mismatch    another subject has it
    unknown_version     the subject has no such version (none named: the latest)
    payload_invalid     the payload does not match *that* version, if payloads are looked at

A broken rule means, by policy: `none` accept without looking (such a topic has no contract at all), `warn` accept,
count and log, `enforce` refuse and count.

Most messages of a topic claim the same schema, so everything but the payload is decided once for each (schema id,
version) and cached until the registry changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raceway.broker.registry.versions import Versions
from raceway.errors import SchemaInvalidError, SchemaRefusedError
from raceway.model.schemas import Policy, SchemaVersion
from raceway.schema import framing
from raceway.schema.definition import Fault

# Claims come from the network, so the cache is bounded.
KEPT_CLAIMS = 1000
PAYLOAD_INVALID = "payload_invalid"
MISMATCH, UNKNOWN_VERSION = "subject_mismatch", "unknown_version"


class Claim(NamedTuple):
    """The schema that a message claims, and what the registry knows about it."""

    bound: str | None
    must_name: bool
    schema_id: int | None
    wanted: int | None
    subject: str | None
    version: SchemaVersion | None


# (rule, whether it is broken, message)
RULES: tuple[tuple[str, Callable[[Claim], bool], str], ...] = (
    ("no_subject", lambda c: c.bound is None, "the topic has no schema subject"),
    (
        "missing_schema_id",
        lambda c: c.schema_id is None and c.must_name,
        "the message names no schema, the topic requires subject {bound!r}",
    ),
    ("unknown_schema_id", lambda c: c.subject is None, "no subject has the schema id {schema_id}"),
    (
        MISMATCH,
        lambda c: c.subject != c.bound,
        "schema id {schema_id} belongs to subject {subject!r}, the topic requires {bound!r}",
    ),
    (UNKNOWN_VERSION, lambda c: c.version is None, "subject {subject!r} has no version {wanted}"),
)


class ContractVerdict(NamedTuple):
    """Decision on a claim: the refusal, or the version that the payload must match."""

    refusal: SchemaRefusedError | None
    version: SchemaVersion | None


class Contract:
    """The contract of one topic; replaced whenever its binding changes."""

    def __init__(self, known: Versions, subject: str | None, policy: Policy, checks: bool, limit: int) -> None:
        self.subject, self.policy, self.checks_payload = subject, policy, checks
        # When a violation was last logged, and how many were not logged since.
        self.logged_at: float | None = None
        self.unlogged = 0
        self._known, self._limit = known, limit
        self._verdicts: dict[tuple[int | None, int | None, bool], ContractVerdict] = {}
        self._generation = known.generation

    def verdict(self, schema_id: int | None, version: int | None, must_name: bool) -> ContractVerdict:
        """Decide on everything but the payload; cached until the registry changes."""
        if self._generation != self._known.generation or len(self._verdicts) > KEPT_CLAIMS:
            self._verdicts.clear()
            self._generation = self._known.generation
        key = (schema_id, version, must_name)
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = self._decide(schema_id, version, must_name)
        return found

    def judge_payload(self, version: SchemaVersion, payload: bytes) -> tuple[SchemaRefusedError | None, SchemaVersion]:
        """Validate a payload. Return the refusal, if any, and the version of the subject it was validated against.

        A payload that starts with the prefix of a known version is validated against that one, without the prefix. A
        binary payload may start so by chance, so one that is valid without a prefix is accepted too.
        """
        if len(payload) > self._limit:
            reason = f"{len(payload)} bytes exceed the limit for validation (broker.schemas.checked_bytes)"
            return self._broken(version, Fault("", "size", reason)), version
        registry_id = framing.maybe_registry_id(payload)
        framed = None if registry_id is None else self._known.maybe_registered(registry_id, self.subject)
        if framed is None:
            fault = self._maybe_fault(version, payload)
            return (None if fault is None else self._broken(version, fault)), version
        refusal = self._judge_framed(framed, payload)
        if refusal is None:
            return None, framed
        bare = self._maybe_fault(version, payload)
        if bare is None:
            return None, version
        return refusal, version if refusal.violation == MISMATCH else framed

    def _decide(self, schema_id: int | None, wanted: int | None, must_name: bool) -> ContractVerdict:
        subject = self.subject if schema_id is None else self._known.names.get(schema_id)
        version = None if subject is None else self._known.maybe_version(subject, wanted)
        claim = Claim(self.subject, must_name, schema_id, wanted, subject, version)
        for rule, is_broken, words in RULES:
            if is_broken(claim):
                facts = claim._asdict() | {"wanted": "at all" if wanted is None else wanted}
                return ContractVerdict(SchemaRefusedError(rule, words.format(**facts), self.subject, wanted), None)
        return ContractVerdict(None, version)

    def _judge_framed(self, framed: SchemaVersion, payload: bytes) -> SchemaRefusedError | None:
        if framed.subject != self.subject:
            words = f"the payload's prefix names subject {framed.subject!r}, the topic requires {self.subject!r}"
            return SchemaRefusedError(MISMATCH, words, self.subject, framed.version)
        if framed.deleted:
            words = f"the payload's prefix names the deleted version {framed.version} of subject {framed.subject!r}"
            return SchemaRefusedError(UNKNOWN_VERSION, words, self.subject, framed.version)
        body = payload[framing.PREFIX_BYTES :]
        readings = framing.readings(body) if framed.schema_type == "protobuf" else [((), body)]
        faults = [self._maybe_fault(framed, content, index) for index, content in readings]
        return None if None in faults or faults[0] is None else self._broken(framed, faults[0])

    def _maybe_fault(self, version: SchemaVersion, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        try:
            return self._known.ready(version).maybe_fault(payload, index)
        except SchemaInvalidError as error:  # valid when it was registered, by a release with other libraries
            return Fault("", "definition", str(error))

    def _broken(self, version: SchemaVersion, fault: Fault) -> SchemaRefusedError:
        where = f" at {fault.path}" if fault.path else ""
        words = f"the payload does not match version {version.version} of subject {version.subject!r}{where}: "
        return SchemaRefusedError(
            PAYLOAD_INVALID, words + fault.reason, version.subject, version.version, fault.path, fault.rule
        )
