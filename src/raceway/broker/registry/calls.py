"""The intents about schemas: changes of the registry, definitions compared with it, bindings of topics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raceway.broker.bus import Bus
from raceway.broker.peers import Peer
from raceway.broker.registry.schemas import Schemas
from raceway.broker.steps import Steps
from raceway.broker.topics import Topic
from raceway.errors import UnknownTopicError
from raceway.model.intents.kinds import Done
from raceway.model.intents.schemas import (
    BindTopic,
    CheckSchema,
    DeleteSubject,
    DeleteVersion,
    FindSchema,
    PrepareMode,
    Registered,
    RegisterSchema,
    SetAccess,
    SetMode,
    UnbindTopic,
)
from raceway.model.schemas import SchemaVersion, TopicSchema
from raceway.model.topics import refuse_reserved


class SchemaCalls:
    def __init__(self, bus: Bus, schemas: Schemas) -> None:
        self._bus, self._schemas = bus, schemas

    def calls(self) -> dict[type, Callable[[Any, Any], Any]]:
        changes: dict[type, Callable[[Any], Any]] = {
            DeleteVersion: self._delete_version,
            DeleteSubject: self._delete_subject,
            SetMode: self._set_mode,
            PrepareMode: self._prepare_mode,
            SetAccess: self._set_access,
            BindTopic: self._bind,
            UnbindTopic: self._unbind,
        }
        calls = {kind: partial(self._change, work) for kind, work in changes.items()}
        return calls | {RegisterSchema: self._register, CheckSchema: self._check, FindSchema: self._find}

    def _change(self, work: Callable[[Any], Any], peer: Peer, call: Any) -> Steps[Any]:
        return self._bus.change(partial(work, call))

    # ---- definitions -------------------------------------------------------------------------------------------------

    def _read_aside(self, call: RegisterSchema | CheckSchema | FindSchema) -> Steps[None]:
        """Parse a large definition in another thread. Errors are raised by the call that uses it."""
        reading = self._schemas.maybe_read_aside(call.schema_type, call.definition, call.references)
        if reading is not None:
            yield self._bus.aside(reading.result)

    def _register(self, peer: Peer, call: RegisterSchema) -> Steps[Registered]:
        self._bus.journal.check_writable()
        yield from self._read_aside(call)
        version, is_new = self._schemas.register(
            call.subject, call.schema_type, call.definition, references=call.references,
            description=call.description, created_by=call.created_by, tags=call.tags,
        )  # fmt: skip
        yield self._bus.commit
        return Registered(version, is_new)

    def _check(self, peer: Peer, call: CheckSchema) -> Steps[list[str]]:
        yield from self._read_aside(call)
        return self._schemas.check(
            call.subject, call.schema_type, call.definition, call.mode, call.version, call.references
        )

    def _find(self, peer: Peer, call: FindSchema) -> Steps[SchemaVersion | None]:
        yield from self._read_aside(call)
        return self._schemas.maybe_same(call.subject, call.schema_type, call.definition, call.references, call.deleted)

    # ---- versions and modes ------------------------------------------------------------------------------------------

    def _delete_version(self, call: DeleteVersion) -> Done:
        delete = self._schemas.forget_version if call.permanent else self._schemas.delete_version
        delete(call.subject, call.version)
        return Done()

    def _delete_subject(self, call: DeleteSubject) -> list[int]:
        delete = self._schemas.forget_subject if call.permanent else self._schemas.delete_subject
        return delete(call.subject)

    def _set_mode(self, call: SetMode) -> Done:
        self._schemas.set_mode(call.subject, call.mode)
        return Done()

    def _prepare_mode(self, call: PrepareMode) -> Done:
        if call.subject is None:
            self._schemas.set_default_mode(call.mode or "backward")
        else:
            self._schemas.prepare_mode(call.subject, call.mode)
        return Done()

    def _set_access(self, call: SetAccess) -> Done:
        self._schemas.set_access(call.subject, call.access)
        return Done()

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _bind(self, call: BindTopic) -> TopicSchema:
        refuse_reserved(call.topic)
        topic = self._bus.topics.maybe_get(call.topic)
        if topic is None:
            topic = self._bus.topics.spelled(call.topic.encode(), folds_case=False)
        topics = topic.partitions or (topic,)
        for each in topics:
            known = self._schemas.topic_schema(each)
            self._schemas.configure(
                each,
                call.subject if call.changes_subject else known.subject,
                call.policy or known.policy,
                known.validate_payload if call.validate_payload is None else call.validate_payload,
            )
        return self._schemas.topic_schema(topics[0])

    def _unbind(self, call: UnbindTopic) -> TopicSchema:
        topics = self._parts(call.topic)
        for each in topics:
            self._schemas.forget(each)
        return self._schemas.topic_schema(topics[0])

    def _parts(self, name: str) -> tuple[Topic, ...]:
        topic = self._bus.topics.maybe_get(name)
        if topic is None:
            raise UnknownTopicError(name)
        return topic.partitions or (topic,)
