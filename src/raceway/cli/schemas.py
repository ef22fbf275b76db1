"""`raceway schema …`: the schema registry and the schemas of topics, over the console port."""

from __future__ import annotations

import difflib
import getpass
import json
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import quote

import typer

from raceway.cli import options, output
from raceway.errors import RemoteError
from raceway.model.schemas import CompatibilityMode, Policy
from raceway.model.text import printable

schema_app = options.Commands(
    "schema", "Schemas: register, compare and delete versions; bind topics to subjects; set validation policies."
)

# Suffix of a file to the type of its schema.
TYPES_BY_ENDING = {".json": "json_schema", ".avsc": "avro", ".proto": "protobuf"}
COLOURS = {"+": "green", "-": "red", "@": "cyan"}

Subject = Annotated[str, "Name of the subject."]
SchemaTopic = Annotated[str, "Name of the topic."]
DefinitionFile = Annotated[Path, "File with the definition; `-` reads standard input.", {"metavar": "FILE"}]
Type = Annotated[
    str | None,
    "--type TYPE",
    "json_schema, avro, protobuf, string, number or bytes. Default: by the suffix .json, .avsc or .proto.",
]
VersionOption = Annotated[int | None, "--version N", "Default: the latest.", {"min": 1}]
MODES = ", ".join(get_args(CompatibilityMode))
ReferenceOption = Annotated[
    list[str] | None,
    "--reference NAME=SUBJECT:VERSION",
    "Version that the definition refers to by this name (type, $ref or import). May be repeated.",
]
DeletedOption = Annotated[bool, "--deleted", "Include deleted versions."]
Validate = Annotated[
    bool | None, "--validate/--no-validate", "Validate payloads, not only the schema that a message names."
]


@schema_app.command()
def register(
    cli: options.OverConsole,
    subject: Subject,
    file: DefinitionFile,
    schema_type: Type = None,
    reference: ReferenceOption = None,
    description: Annotated[str, "--description", "Description of the version."] = "",
    tag: Annotated[list[str] | None, "--tag TAG", "Tag of the version. May be repeated."] = None,
) -> None:
    """Register a definition as the next version of a subject. A definition that is registered already is a no-op."""
    document = _definition(file, schema_type, reference) | {
        "description": description, "created_by": getpass.getuser(), "tags": tag or []
    }  # fmt: skip
    row = _ask(cli, f"{_path(subject)}/versions", "POST", document)
    what = "is" if row["is_new_version"] else "was already"
    numbers = f"schema id {row['schema_id']}, registry id {row['registry_id']}"
    cli.tell(row, f"{file} {what} version {row['version']} of {subject} ({numbers})")


@schema_app.command("list")
def list_subjects(cli: options.OverConsole, deleted: DeletedOption = False) -> None:
    """List subjects and the topics bound to them."""
    rows = _ask(cli, "/api/schemas", deleted=deleted)["subjects"]
    topics = _ask(cli, "/api/topic-schemas")["topics"]
    columns = {
        "subject": lambda row: row["subject"] + (" (deleted)" if row["deleted"] else ""), ">id": "schema_id",
        "type": "schema_type", ">latest version": "latest_version", "compatibility": "mode",
        "tags": lambda row: ", ".join(row["tags"]),
    }  # fmt: skip
    cli.show(rows, columns, "Subjects", document={"subjects": rows, "topics": topics})
    if topics and not cli.as_json:
        _show_topics(cli, topics)


@schema_app.command()
def show(
    cli: options.OverConsole, subject: Subject, version: VersionOption = None, deleted: DeletedOption = False
) -> None:
    """Show the versions of a subject and the definition of one; with --json exactly as registered."""
    found = _ask(cli, f"{_path(subject)}/versions/{version or 'latest'}", deleted=deleted)
    if cli.prints_json(found):
        return
    columns = {
        ">version": "version", ">registry id": "registry_id", "type": "schema_type",
        "made": lambda row: output.moment(row["created_at_ms"] * 1000), "by": "created_by",
        "description": lambda row: "deleted" if row["deleted"] else row["description"],
        "fingerprint": lambda row: row["fingerprint"][:19],
    }  # fmt: skip
    title = f"{printable(subject)}: schema id {found['schema_id']}, {found['mode']} compatible"
    cli.show(_ask(cli, f"{_path(subject)}/versions", deleted=deleted)["versions"], columns, title)
    cli.note(*(f"uses {each['name']}: version {each['version']} of {each['subject']}" for each in found["references"]))
    cli.note(*(f"used by {each}" for each in found["referenced_by"]))
    for line in _lines(found):
        print(printable(line))


@schema_app.command()
def diff(
    cli: options.OverConsole,
    subject: Subject,
    old: Annotated[int | None, "Older version. Default: the predecessor of the newer one.", {"min": 1}] = None,
    new: Annotated[int | None, "Default: the latest.", {"min": 1}] = None,
) -> None:
    """Show the changes between two versions, and which readers they break."""
    numbers = [row["version"] for row in _ask(cli, f"{_path(subject)}/versions")["versions"]]
    newer = new or numbers[-1]
    before = [number for number in numbers if number < newer]
    if old is None and not before:
        output.fail(f"{subject} has no version before {newer} to compare with")
    found = _ask(cli, f"{_path(subject)}/differences", old=old or before[-1], new=newer)
    if cli.prints_json(found):
        return
    before_name, after_name = (f"version {found[side]['version']}" for side in ("old", "new"))
    lines = _lines(found["old"]), _lines(found["new"])
    _print_diff(list(difflib.unified_diff(*lines, before_name, after_name, lineterm="")))
    for mode, who in (("backward", "new readers, old data"), ("forward", "old readers, new data")):
        reasons = found["reasons"][mode]
        cli.note(f"{mode} ({who}): {'compatible' if not reasons else ''}", *(f"  {reason}" for reason in reasons))


@schema_app.command()
def check(
    cli: options.OverConsole,
    subject: Subject,
    file: DefinitionFile,
    schema_type: Type = None,
    reference: ReferenceOption = None,
    mode: Annotated[
        CompatibilityMode | None, "--mode MODE", f"Compatibility mode: {MODES}. Default: that of the subject."
    ] = None,
    version: VersionOption = None,
) -> None:
    """Check whether a definition could be registered. Ends with status 1 if not."""
    document = _definition(file, schema_type, reference) | {"mode": mode, "version": version}
    found = _ask(cli, f"{_path(subject)}/check", "POST", document)
    verdict = "" if found["is_compatible"] else "not "
    text = f"{file} is {verdict}{found['mode']} compatible with version {found['version']} of {subject}"
    cli.tell(found, text, *(f"  {reason}" for reason in found["reasons"]))
    if not found["is_compatible"]:
        raise typer.Exit(output.ExitCode.FAILED)


@schema_app.command("mode")
def set_mode(
    cli: options.OverConsole,
    subject: Subject,
    mode: Annotated[
        CompatibilityMode,
        f"Compatibility that a new version must have with the latest one: {MODES}.",
        {"metavar": "MODE"},
    ],
) -> None:
    """Set the compatibility mode of a subject."""
    found = _ask(cli, f"{_path(subject)}/mode", "PUT", {"mode": mode})
    cli.tell(found, f"{subject} is {found['mode']} compatible now")


@schema_app.command()
def delete(
    cli: options.OverConsole,
    subject: Subject,
    version: Annotated[int, "Version to delete.", {"min": 1}],
    permanent: Annotated[
        bool, "--permanent", "Delete permanently; only for a version that is already deleted."
    ] = False,
    yes: options.Yes = False,
) -> None:
    """Delete a version: no message can be published with it; stored messages can still be decoded.

    A second delete with --permanent removes its definition, and its number may be used again.
    """
    for_good = " permanently" if permanent else ""
    output.confirm(f"Delete version {version} of {subject}{for_good}?", yes=yes)
    found = _ask(cli, f"{_path(subject)}/versions/{version}", "DELETE", permanent=permanent)
    cli.tell(found, f"version {version} of {subject} is deleted{for_good}")


@schema_app.command()
def bind(
    cli: options.OverConsole,
    topic: SchemaTopic,
    subject: Annotated[str | None, "Subject to bind the topic to. Without it, the binding is removed."] = None,
    policy: Annotated[
        Policy | None, "--policy", "Validation policy. Default: unchanged; `none` for a new binding."
    ] = None,
    validate: Validate = None,
) -> None:
    """Bind a topic to a subject, or remove its binding. The topic is created if it does not exist."""
    document = {"subject": subject, "policy": policy, "validate_payload": validate}
    found = _ask(cli, _topic_path(topic), *(("DELETE",) if subject is None else ("PUT", document)))
    _show_topics(cli, [found], found)


@schema_app.command()
def policy(
    cli: options.OverConsole,
    topic: SchemaTopic,
    policy: Annotated[Policy | None, "Policy to set. Default: show the current one."] = None,
    validate: Validate = None,
) -> None:
    """Show or set what happens to messages that do not match the topic's schema.

    `none`: they are not checked. `warn`: they are logged and accepted. `enforce`: they are refused.
    """
    document = {"policy": policy, "validate_payload": validate}
    found = _ask(cli, _topic_path(topic), *(("PUT", document) if any(v is not None for v in document.values()) else ()))
    _show_topics(cli, [found], found)


# ---- asking and telling ---------------------------------------------------------------------------------------------


def _ask(cli: options.OverConsole, path: str, method: str = "GET", document: Any = None, **query: Any) -> Any:
    """Call the console port. Ends the command if the answer is an error."""
    flat = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    try:
        return cli.ask(path, method, document, query=flat)
    except RemoteError as error:
        output.fail(error.text)


def _path(subject: str) -> str:
    return f"/api/schemas/{quote(subject, safe='')}"


def _topic_path(topic: str) -> str:
    return f"/api/topic-schemas/{quote(topic, safe='')}"


def _definition(file: Path, schema_type: str | None, references: list[str] | None) -> dict[str, Any]:
    kind = schema_type or TYPES_BY_ENDING.get(file.suffix.lower())
    if kind is None:
        output.misuse(f"{file} does not end in {', '.join(TYPES_BY_ENDING)}: use --type")
    try:
        content = typer.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        output.misuse(f"{file} cannot be read: {error.strerror}")
    used = [_reference(text) for text in references or ()]
    return {"type": kind, "definition_base64": b64encode(content).decode(), "references": used}


def _reference(text: str) -> dict[str, Any]:
    """Parse NAME=SUBJECT:VERSION. Name and subject may contain colons: the version follows the last one."""
    name, _, target = text.rpartition("=")
    subject, _, version = target.rpartition(":")
    if not name or not subject or not version.isdecimal():
        output.misuse(f"{text!r} is not a reference of the form NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def _show_topics(cli: options.OverConsole, topics: list[dict[str, Any]], document: Any = None) -> None:
    payloads = ("not validated", "checked")
    columns = {
        "topic": "topic", "subject": "subject", "policy": "policy",
        "payloads": lambda row: payloads[row["validate_payload"]],
    }  # fmt: skip
    cli.show(topics, columns, "Topics", document=document)


def _lines(version: dict[str, Any]) -> list[str]:
    """Split a definition into lines; JSON is indented first, so that only real differences show."""
    text = version.get("definition", version.get("definition_base64", ""))
    if version["schema_type"] in ("json_schema", "avro"):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return str(text).splitlines()


def _print_diff(lines: list[str]) -> None:
    from rich.text import Text

    screen = output.console()
    for line in lines:
        screen.print(Text(printable(line), style=COLOURS.get(line[:1], "")))
    if not lines:
        output.note("the definitions are the same")
