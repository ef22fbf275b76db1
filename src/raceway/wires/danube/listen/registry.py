"""The schema registry over the Danube wire: eleven calls, each one operation of the bus's registry.

Reading schemas needs `Lookup`, changing them `ManageSchema`. Subjects belong to no namespace, so both permissions are
checked for the whole cluster; for a topic's settings they are checked for that topic.
"""

from __future__ import annotations

from typing import ClassVar

from raceway.errors import ForbiddenError
from raceway.model.intents.schemas import CheckSchema, DeleteVersion, RegisterSchema, SetMode
from raceway.model.intents.topics import SetTopicSchema
from raceway.model.schemas import SchemaVersion
from raceway.wires.danube.codec.pb import schema_registry_pb2 as pb
from raceway.wires.danube.listen.calls import Caller, DanubeService, ask


class RegistryCalls(DanubeService):
    services: ClassVar[tuple[str, ...]] = ("danube_schema.SchemaRegistry",)
    records_changes: ClassVar[bool] = True
    questions: ClassVar[frozenset[str]] = frozenset({"CheckCompatibility"})

    # ---- subjects ----------------------------------------------------------------------------------------------------

    async def register_schema(self, caller: Caller, request: pb.RegisterSchemaRequest) -> pb.RegisterSchemaResponse:
        self._check(caller, "ManageSchema")
        registered = await ask(RegisterSchema(
            request.subject, request.schema_type, request.schema_definition,
            description=request.description, created_by=request.created_by, tags=tuple(request.tags),
        ))  # fmt: skip
        version = registered.version
        return pb.RegisterSchemaResponse(
            schema_id=version.schema_id, version=version.version, is_new_version=registered.is_new,
            fingerprint=version.fingerprint,
        )  # fmt: skip

    def get_schema(self, caller: Caller, request: pb.GetSchemaRequest) -> pb.GetSchemaResponse:
        self._may_read(caller)
        return self._schema(
            self._schemas.get(request.schema_id, request.version if request.HasField("version") else None)
        )

    def get_latest_schema(self, caller: Caller, request: pb.GetLatestSchemaRequest) -> pb.GetSchemaResponse:
        self._may_read(caller)
        return self._schema(self._schemas.latest(request.subject))

    def list_versions(self, caller: Caller, request: pb.ListVersionsRequest) -> pb.ListVersionsResponse:
        self._may_read(caller)
        answer = pb.ListVersionsResponse()
        for each in self._schemas.versions(request.subject):
            answer.versions.add(
                version=each.version, created_at=each.created_at_ms // 1000, created_by=each.created_by,
                description=each.description, fingerprint=each.fingerprint, schema_id=each.schema_id,
            )  # fmt: skip
        return answer

    async def check_compatibility(
        self, caller: Caller, request: pb.CheckCompatibilityRequest
    ) -> pb.CheckCompatibilityResponse:
        self._may_read(caller)
        mode = request.compatibility_mode if request.HasField("compatibility_mode") else None
        errors = await ask(CheckSchema(request.subject, request.schema_type, request.new_schema_definition, mode=mode))
        return pb.CheckCompatibilityResponse(is_compatible=not errors, errors=errors)

    async def delete_schema_version(
        self, caller: Caller, request: pb.DeleteSchemaVersionRequest
    ) -> pb.DeleteSchemaVersionResponse:
        self._check(caller, "ManageSchema")
        await ask(DeleteVersion(request.subject, request.version))
        return pb.DeleteSchemaVersionResponse(
            success=True, message=f"version {request.version} of subject {request.subject} is deleted"
        )

    async def set_compatibility_mode(
        self, caller: Caller, request: pb.SetCompatibilityModeRequest
    ) -> pb.SetCompatibilityModeResponse:
        self._check(caller, "ManageSchema")
        await ask(SetMode(request.subject, request.compatibility_mode))
        mode = self._schemas.mode(request.subject)
        return pb.SetCompatibilityModeResponse(success=True, message=f"subject {request.subject} is {mode} compatible")

    def list_subjects(self, caller: Caller, request: pb.ListSubjectsRequest) -> pb.ListSubjectsResponse:
        self._may_read(caller)
        answer = pb.ListSubjectsResponse()
        for row in self._schemas.subjects():
            answer.subjects.add(
                subject=row.subject, schema_type=row.schema_type, latest_version=row.latest_version,
                compatibility_mode=row.mode, schema_id=row.schema_id, tags=row.tags,
            )  # fmt: skip
        return answer

    def _schema(self, version: SchemaVersion) -> pb.GetSchemaResponse:
        """Encode a version. The definition is returned byte for byte as it was registered."""
        return pb.GetSchemaResponse(
            schema_id=version.schema_id, version=version.version, subject=version.subject,
            schema_type=version.schema_type, schema_definition=version.definition, description=version.description,
            created_at=version.created_at_ms // 1000, created_by=version.created_by, tags=version.tags,
            fingerprint=version.fingerprint, compatibility_mode=self._schemas.mode(version.subject),
        )  # fmt: skip

    def _may_read(self, caller: Caller) -> None:
        """Check that the caller may read schemas: `Lookup` or `ManageSchema`. Raises ForbiddenError."""
        try:
            self._check(caller, "Lookup")
        except ForbiddenError:
            self._check(caller, "ManageSchema")

    # ---- topics ------------------------------------------------------------------------------------------------------

    async def configure_topic_schema(
        self, caller: Caller, request: pb.ConfigureTopicSchemaRequest
    ) -> pb.ConfigureTopicSchemaResponse:
        topic, policy = self._known(caller, request.topic_name, "ManageSchema"), request.validation_policy
        await ask(SetTopicSchema(topic, policy, request.enable_payload_validation, request.schema_subject))
        message = f"{request.topic_name} has subject {request.schema_subject}"
        return pb.ConfigureTopicSchemaResponse(success=True, message=message)

    async def update_topic_validation_policy(
        self, caller: Caller, request: pb.UpdateTopicValidationPolicyRequest
    ) -> pb.UpdateTopicValidationPolicyResponse:
        topic, policy = self._known(caller, request.topic_name, "ManageSchema"), request.validation_policy
        await ask(SetTopicSchema(topic, policy, request.enable_payload_validation))
        message = f"{request.topic_name} has policy {request.validation_policy}"
        return pb.UpdateTopicValidationPolicyResponse(success=True, message=message)

    def get_topic_schema_config(
        self, caller: Caller, request: pb.GetTopicSchemaConfigRequest
    ) -> pb.GetTopicSchemaConfigResponse:
        topic = self._known(caller, request.topic_name, "ManageSchema")
        found = self._schemas.topic_schema(self._topics.partitions(topic)[0])
        return pb.GetTopicSchemaConfigResponse(
            schema_subject=found.subject or "", validation_policy=found.policy,
            enable_payload_validation=found.validate_payload, schema_id=found.schema_id or 0,
        )  # fmt: skip
