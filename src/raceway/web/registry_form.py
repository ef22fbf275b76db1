"""Response format of Confluent's schema registry: content type, error codes, schemas.

Its clients read only `error_code` and `message`, so all errors at paths of the registry have this form, also those of
other parts: access control, host check, unknown paths.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from raceway import errors
from raceway.model.envelope import encode_json
from raceway.model.schemas import SchemaReference, SchemaVersion
from raceway.web.answers import refusal
from raceway.web.routing import ResponseForm

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ADDRESSES = (
    "/subjects",
    "/schemas",
    "/config",
    "/mode",
    "/compatibility",
    "/contexts",
    "/associations",
    "/v1/metadata",
)

TYPES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
TYPE_NAMES = {ours: theirs for theirs, ours in TYPES.items()}

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
NO_OWN_LEVEL, NO_OWN_MODE = 40408, 40409
INVALID_SCHEMA, INVALID_VERSION, INVALID_LEVEL, INVALID_MODE = 42201, 42202, 42203, 42204
NOT_PERMITTED, REFERENCE_EXISTS, INVALID_SUBJECT = 42205, 42206, 42208
NOT_FOUND_CODES = {"subject": SUBJECT_NOT_FOUND, "version": VERSION_NOT_FOUND, "schema": SCHEMA_NOT_FOUND}
# (subject or version, whether it was deleted already)
DELETION_CODES = {("subject", True): 40404, ("subject", False): 40405,
                  ("version", True): 40406, ("version", False): 40407}  # fmt: skip
# Codes of errors without a message of their own; the first class that an error is an instance of decides.
CODES = {
    errors.TooManyFailuresError: 42901,
    errors.UnauthenticatedError: 40101,
    errors.ForbiddenError: 40301,
    errors.TooLargeError: 413,
    errors.PeerError: 400,
    errors.RacewayError: 50301,
}
# Codes for errors of which only the status is known.
STATUS_CODES = {401: 40101, 403: 40301, 500: 50001, 503: 50301}


class RefusalError(Exception):
    """An error with a code of this API; the HTTP status is in the first three digits of the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


def is_address(path: str) -> bool:
    """Return whether the path belongs to the registry."""
    return path.startswith(ADDRESSES) and any(path == each or path.startswith(f"{each}/") for each in ADDRESSES)


# ---- answers --------------------------------------------------------------------------------------------------------


def answer(found: Any, status: int = 200) -> Response:
    """Build a response: definitions (bytes) unchanged, everything else as JSON."""
    content = found if isinstance(found, bytes) else encode_json(found)
    return Response(content, status_code=status, media_type=CONTENT_TYPE)


def refused(error: RefusalError | errors.RacewayError) -> Response:
    said = refusal_of(error) if isinstance(error, errors.RacewayError) else error
    status = said.code if said.code < 1000 else said.code // 100
    return answer({"error_code": said.code, "message": said.message}, status)


def refusal_of(error: errors.RacewayError) -> RefusalError:
    if isinstance(error, errors.UnknownSchemaError):
        return RefusalError(NOT_FOUND_CODES[error.part], f"{error.part.capitalize()} not found: {error}")
    if isinstance(error, errors.SchemaDeletionError):
        return RefusalError(DELETION_CODES[error.part, error.already], str(error).capitalize())
    if isinstance(error, errors.SchemaInUseError):
        return RefusalError(REFERENCE_EXISTS, f"One or more references exist: {error}")
    if isinstance(error, errors.SchemaReadOnlyError):
        return RefusalError(NOT_PERMITTED, str(error).capitalize())
    if isinstance(error, errors.SchemaIncompatibleError):
        return RefusalError(409, f"Schema being registered is incompatible with an earlier schema: {error}")
    if isinstance(error, errors.SchemaInvalidError):
        code = INVALID_SUBJECT if error.what == "subject" else INVALID_SCHEMA
        return RefusalError(code, f"Invalid {'subject' if code == INVALID_SUBJECT else 'schema'}: {error}")
    return RefusalError(next(code for kind, code in CODES.items() if isinstance(error, kind)), str(error))


REGISTRY = ResponseForm(answer, refused, (errors.RacewayError, RefusalError))


# ---- schemas --------------------------------------------------------------------------------------------------------


def shown(version: SchemaVersion, definition: bytes) -> dict[str, Any]:
    """Return a schema. The type is left out if it is the default, AVRO."""
    name = TYPE_NAMES.get(version.schema_type, version.schema_type.upper())
    found: dict[str, Any] = {"schema": definition.decode("utf-8", "replace")}
    if name != "AVRO":
        found["schemaType"] = name
    if version.references:
        found["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in version.references
        ]
    return found


def references_of(sent: Any) -> tuple[SchemaReference, ...]:
    """Decode references. Raises RefusalError."""
    if not isinstance(sent, list):
        raise RefusalError(INVALID_SCHEMA, "Invalid schema: `references` must be a list")
    return tuple(map(_reference, sent))


def _reference(sent: Any) -> SchemaReference:
    fields = sent if isinstance(sent, dict) else {}
    name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
    is_number = isinstance(version, int) and not isinstance(version, bool)
    if not isinstance(name, str) or not name or not isinstance(subject, str) or not is_number:
        raise RefusalError(INVALID_SCHEMA, "Invalid schema: a reference needs a `name`, a `subject` and a `version`")
    return SchemaReference(name, subject, fields["version"])


# ---- errors of other parts ------------------------------------------------------------------------------------------


def refused_at(path: str, status: int, code: str, message: str) -> Response:
    """Build the response to a request that no handler saw: in the registry's form if the path is one of its own."""
    if is_address(path):
        return answer({"error_code": STATUS_CODES.get(status, status), "message": message}, status)
    return refusal(status, code, message)


# ---- queries --------------------------------------------------------------------------------------------------------


def is_true(request: Request, *names: str) -> bool:
    return any(request.query_params.get(name, "").lower() == "true" for name in names)


def page(request: Request, found: list[Any], most: int | None = None) -> list[Any]:
    """Apply the query's `offset` and `limit`; a negative limit means none."""
    offset, limit = _whole(request, "offset", 0), _whole(request, "limit", -1)
    if most is not None:
        limit = most if limit < 0 else min(limit, most)
    return found[max(offset, 0) :][: limit if limit >= 0 else None]


def _whole(request: Request, name: str, usual: int) -> int:
    text = request.query_params.get(name, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else usual
