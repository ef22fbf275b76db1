"""The schema registry over the Danube wire: eleven calls, each one operation of the bus's registry.

Reading schemas needs `Lookup`, changing them `ManageSchema`. Subjects belong to no namespace, so both permissions are
checked for the whole cluster; for a topic's settings they are checked for that topic.
"""

from __future__ import annotations

from raceway.errors import ForbiddenError, UnknownTopicError
from raceway.model.intents.schemas import CheckSchema, DeleteVersion, RegisterSchema, SetMode
from raceway.model.intents.topics import SetTopicSchema
from raceway.model.schemas import SchemaVersion
from raceway.model.topics import parse_namespaced_topic
from raceway.net.grpc import Methods
from raceway.wires.danube.codec.pb.schema_registry_pb2 import (
    CheckCompatibilityRequest,
    CheckCompatibilityResponse,
    ConfigureTopicSchemaRequest,
    ConfigureTopicSchemaResponse,
    DeleteSchemaVersionRequest,
    DeleteSchemaVersionResponse,
    GetLatestSchemaRequest,
    GetSchemaRequest,
    GetSchemaResponse,
    GetTopicSchemaConfigRequest,
    GetTopicSchemaConfigResponse,
    ListSubjectsRequest,
    ListSubjectsResponse,
    ListVersionsRequest,
    ListVersionsResponse,
    RegisterSchemaRequest,
    RegisterSchemaResponse,
    SchemaVersionInfo,
    SetCompatibilityModeRequest,
    SetCompatibilityModeResponse,
    SubjectSummary,
    UpdateTopicValidationPolicyRequest,
    UpdateTopicValidationPolicyResponse,
)
from raceway.wires.danube.listen.calls import Caller, DanubeCalls, Handlers, ask


class RegistryCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        self._schemas, self._topics = calls.door.view.schemas, calls.door.view.administration

    def join(self, methods: Methods) -> None:
        handlers: Handlers = {
            "RegisterSchema": (RegisterSchemaRequest, self._register),
            "GetSchema": (GetSchemaRequest, self._get),
            "GetLatestSchema": (GetLatestSchemaRequest, self._get_latest),
            "ListVersions": (ListVersionsRequest, self._list_versions),
            "CheckCompatibility": (CheckCompatibilityRequest, self._check_compatibility),
            "DeleteSchemaVersion": (DeleteSchemaVersionRequest, self._delete_version),
            "SetCompatibilityMode": (SetCompatibilityModeRequest, self._set_mode),
            "ConfigureTopicSchema": (ConfigureTopicSchemaRequest, self._configure_topic),
            "UpdateTopicValidationPolicy": (UpdateTopicValidationPolicyRequest, self._update_policy),
            "GetTopicSchemaConfig": (GetTopicSchemaConfigRequest, self._get_topic_schema),
            "ListSubjects": (ListSubjectsRequest, self._list_subjects),
        }
        self._calls.serve(methods, "danube_schema.SchemaRegistry", handlers)

    # ---- subjects ----------------------------------------------------------------------------------------------------

    async def _register(self, caller: Caller, request: RegisterSchemaRequest) -> RegisterSchemaResponse:
        self._calls.check(caller, "ManageSchema")
        registered = await ask(RegisterSchema(
            request.subject, request.schema_type, request.schema_definition,
            description=request.description, created_by=request.created_by, tags=tuple(request.tags),
        ))  # fmt: skip
        version = registered.version
        return RegisterSchemaResponse(
            schema_id=version.schema_id, version=version.version, is_new_version=registered.is_new,
            fingerprint=version.fingerprint,
        )  # fmt: skip

    def _get(self, caller: Caller, request: GetSchemaRequest) -> GetSchemaResponse:
        self._may_read(caller)
        return self._schema(
            self._schemas.get(request.schema_id, request.version if request.HasField("version") else None)
        )

    def _get_latest(self, caller: Caller, request: GetLatestSchemaRequest) -> GetSchemaResponse:
        self._may_read(caller)
        return self._schema(self._schemas.latest(request.subject))

    def _list_versions(self, caller: Caller, request: ListVersionsRequest) -> ListVersionsResponse:
        self._may_read(caller)
        return ListVersionsResponse(
            versions=[
                SchemaVersionInfo(
                    version=each.version, created_at=each.created_at_ms // 1000, created_by=each.created_by,
                    description=each.description, fingerprint=each.fingerprint, schema_id=each.schema_id,
                )
                for each in self._schemas.versions(request.subject)
            ]
        )  # fmt: skip

    async def _check_compatibility(
        self, caller: Caller, request: CheckCompatibilityRequest
    ) -> CheckCompatibilityResponse:
        self._may_read(caller)
        mode = request.compatibility_mode if request.HasField("compatibility_mode") else None
        errors = await ask(CheckSchema(request.subject, request.schema_type, request.new_schema_definition, mode=mode))
        return CheckCompatibilityResponse(is_compatible=not errors, errors=errors)

    async def _delete_version(self, caller: Caller, request: DeleteSchemaVersionRequest) -> DeleteSchemaVersionResponse:
        self._calls.check(caller, "ManageSchema")
        await ask(DeleteVersion(request.subject, request.version))
        return DeleteSchemaVersionResponse(
            success=True, message=f"version {request.version} of subject {request.subject} is deleted"
        )

    async def _set_mode(self, caller: Caller, request: SetCompatibilityModeRequest) -> SetCompatibilityModeResponse:
        self._calls.check(caller, "ManageSchema")
        await ask(SetMode(request.subject, request.compatibility_mode))
        mode = self._schemas.mode(request.subject)
        return SetCompatibilityModeResponse(success=True, message=f"subject {request.subject} is {mode} compatible")

    def _list_subjects(self, caller: Caller, request: ListSubjectsRequest) -> ListSubjectsResponse:
        self._may_read(caller)
        return ListSubjectsResponse(
            subjects=[
                SubjectSummary(
                    subject=row.subject, schema_type=row.schema_type, latest_version=row.latest_version,
                    compatibility_mode=row.mode, schema_id=row.schema_id, tags=row.tags,
                )
                for row in self._schemas.subjects()
            ]
        )  # fmt: skip

    def _schema(self, version: SchemaVersion) -> GetSchemaResponse:
        """Encode a version. The definition is returned byte for byte as it was registered."""
        return GetSchemaResponse(
            schema_id=version.schema_id, version=version.version, subject=version.subject,
            schema_type=version.schema_type, schema_definition=version.definition, description=version.description,
            created_at=version.created_at_ms // 1000, created_by=version.created_by, tags=version.tags,
            fingerprint=version.fingerprint, compatibility_mode=self._schemas.mode(version.subject),
        )  # fmt: skip

    def _may_read(self, caller: Caller) -> None:
        """Check that the caller may read schemas: `Lookup` or `ManageSchema`. Raises ForbiddenError."""
        try:
            self._calls.check(caller, "Lookup")
        except ForbiddenError:
            self._calls.check(caller, "ManageSchema")

    # ---- topics ------------------------------------------------------------------------------------------------------

    async def _configure_topic(
        self, caller: Caller, request: ConfigureTopicSchemaRequest
    ) -> ConfigureTopicSchemaResponse:
        topic, policy = self._known(caller, request.topic_name), request.validation_policy
        await ask(SetTopicSchema(topic, policy, request.enable_payload_validation, request.schema_subject))
        message = f"{request.topic_name} has subject {request.schema_subject}"
        return ConfigureTopicSchemaResponse(success=True, message=message)

    async def _update_policy(
        self, caller: Caller, request: UpdateTopicValidationPolicyRequest
    ) -> UpdateTopicValidationPolicyResponse:
        topic, policy = self._known(caller, request.topic_name), request.validation_policy
        await ask(SetTopicSchema(topic, policy, request.enable_payload_validation))
        message = f"{request.topic_name} has policy {request.validation_policy}"
        return UpdateTopicValidationPolicyResponse(success=True, message=message)

    def _get_topic_schema(self, caller: Caller, request: GetTopicSchemaConfigRequest) -> GetTopicSchemaConfigResponse:
        topic = self._known(caller, request.topic_name)
        found = self._schemas.topic_schema(self._topics.partitions(topic)[0])
        return GetTopicSchemaConfigResponse(
            schema_subject=found.subject or "", validation_policy=found.policy,
            enable_payload_validation=found.validate_payload, schema_id=found.schema_id or 0,
        )  # fmt: skip

    def _known(self, caller: Caller, name: str) -> str:
        """Return the canonical name of a topic that exists. Raises UnknownTopicError."""
        topic = parse_namespaced_topic(name)
        self._calls.check(caller, "ManageSchema", topic)
        if not self._topics.partitions(topic):
            raise UnknownTopicError(name)
        return topic
