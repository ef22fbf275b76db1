"""`raceway schema …`: the schema registry and the schemas of topics, over the console port."""

from __future__ import annotations

import difflib
import getpass
import json
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.errors import RemoteError
from raceway.model.text import printable

schema_app = typer.Typer(
    name="schema",
    help="Schemas: register, compare and delete versions; bind topics to subjects; set validation policies.",
    no_args_is_help=True,
)

# Suffix of a file to the type of its schema.
TYPES_BY_ENDING = {".json": "json_schema", ".avsc": "avro", ".proto": "protobuf"}
COLOURS = {"+": "green", "-": "red", "@": "cyan"}

Subject = Annotated[str, typer.Argument(help="Name of the subject.")]
TopicName = Annotated[str, typer.Argument(help="Name of the topic.")]
DefinitionFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="File with the definition; `-` reads standard input.")
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="json_schema, avro, protobuf, string, number or bytes. Default: by the suffix .json, .avsc or .proto.",
    ),
]
Version = Annotated[int | None, typer.Option("--version", min=1, metavar="N", help="Default: the latest.")]
Mode = Literal["none", "backward", "forward", "full", "backward_transitive", "forward_transitive", "full_transitive"]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="Version that the definition refers to by this name (type, $ref or import). May be repeated.",
    ),
]
Deleted = Annotated[bool, typer.Option("--deleted", help="Include deleted versions.")]
Policy = Literal["none", "warn", "enforce"]
Validate = Annotated[
    bool | None,
    typer.Option("--validate/--no-validate", help="Validate payloads, not only the schema that a message names."),
]
Admin = Annotated[
    str, typer.Option("--token", metavar="TOKEN", help="Administrator's token (listen.zbus.admin_token), if set.")
]


@schema_app.command()
def register(
    subject: Subject,
    file: DefinitionFile,
    schema_type: Type = None,
    reference: References = None,
    description: Annotated[str, typer.Option(help="Description of the version.")] = "",
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Tag of the version. May be repeated.")] = None,
    token: Admin = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Register a definition as the next version of a subject. A definition that is registered already is a no-op."""
    document = _definition(file, schema_type, reference) | {
        "description": description, "created_by": getpass.getuser(), "tags": tag or []
    }  # fmt: skip
    row = _ask(url, data, f"{_path(subject)}/versions", "POST", token, document)
    if as_json:
        output.print_json(row)
        return
    what = "is" if row["is_new_version"] else "was already"
    numbers = f"schema id {row['schema_id']}, registry id {row['registry_id']}"
    output.note(f"{file} {what} version {row['version']} of {subject} ({numbers})")


@schema_app.command("list")
def list_subjects(
    deleted: Deleted = False,
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """List subjects and the topics bound to them."""
    rows = _ask(url, data, f"/api/schemas?deleted={str(deleted).lower()}")["subjects"]
    topics = _ask(url, data, "/api/topic-schemas")["topics"]
    if as_json:
        output.print_json({"subjects": rows, "topics": topics})
        return
    columns = ["subject", "id", "type", "latest version", "compatibility", "tags"]
    cells = [
        (
            r["subject"] + (" (deleted)" if r["deleted"] else ""),
            r["schema_id"],
            r["schema_type"],
            r["latest_version"],
            r["mode"],
            ", ".join(r["tags"]),
        )
        for r in rows
    ]
    output.print_table("Subjects", columns, cells, ["id", "latest version"])
    if topics:
        _print_topics(topics)


@schema_app.command()
def show(
    subject: Subject,
    version: Version = None,
    deleted: Deleted = False,
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show the versions of a subject and the definition of one; with --json exactly as registered."""
    query = f"?deleted={str(deleted).lower()}"
    found = _ask(url, data, f"{_path(subject)}/versions/{version or 'latest'}{query}")
    if as_json:
        output.print_json(found)
        return
    every = _ask(url, data, f"{_path(subject)}/versions{query}")["versions"]
    cells = [
        (row["version"], row["registry_id"], row["schema_type"], output.moment(row["created_at_ms"] * 1000),
         row["created_by"], "deleted" if row["deleted"] else row["description"], row["fingerprint"][:19])
        for row in every
    ]  # fmt: skip
    output.print_table(
        f"{printable(subject)}: schema id {found['schema_id']}, {found['mode']} compatible",
        ["version", "registry id", "type", "made", "by", "description", "fingerprint"],
        cells,
        ["version", "registry id"],
    )
    for each in found["references"]:
        output.note(f"uses {each['name']}: version {each['version']} of {each['subject']}")
    for each in found["referenced_by"]:
        output.note(f"used by {each}")
    for line in _lines(found):
        print(printable(line))


@schema_app.command()
def diff(
    subject: Subject,
    old: Annotated[
        int | None, typer.Argument(min=1, help="Older version. Default: the predecessor of the newer one.")
    ] = None,
    new: Annotated[int | None, typer.Argument(min=1, help="Default: the latest.")] = None,
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show the changes between two versions, and which readers they break."""
    numbers = [row["version"] for row in _ask(url, data, f"{_path(subject)}/versions")["versions"]]
    newer = new or numbers[-1]
    before = [number for number in numbers if number < newer]
    if old is None and not before:
        output.fail(f"{subject} has no version before {newer} to compare with")
    found = _ask(url, data, f"{_path(subject)}/differences?old={old or before[-1]}&new={newer}")
    if as_json:
        output.print_json(found)
        return
    before_name, after_name = (f"version {found[side]['version']}" for side in ("old", "new"))
    lines = _lines(found["old"]), _lines(found["new"])
    _print_diff(list(difflib.unified_diff(*lines, before_name, after_name, lineterm="")))
    for mode, who in (("backward", "new readers, old data"), ("forward", "old readers, new data")):
        reasons = found["reasons"][mode]
        output.note(f"{mode} ({who}): {'compatible' if not reasons else ''}")
        for reason in reasons:
            output.note(f"  {reason}")


@schema_app.command()
def check(
    subject: Subject,
    file: DefinitionFile,
    schema_type: Type = None,
    reference: References = None,
    mode: Annotated[Mode | None, typer.Option(help="Compatibility mode. Default: that of the subject.")] = None,
    version: Version = None,
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Check whether a definition could be registered. Ends with status 1 if not."""
    document = _definition(file, schema_type, reference) | {"mode": mode, "version": version}
    found = _ask(url, data, f"{_path(subject)}/check", "POST", document=document)
    if as_json:
        output.print_json(found)
    else:
        verdict = "" if found["is_compatible"] else "not "
        output.note(f"{file} is {verdict}{found['mode']} compatible with version {found['version']} of {subject}")
        for reason in found["reasons"]:
            output.note(f"  {reason}")
    if not found["is_compatible"]:
        raise typer.Exit(ExitCode.FAILED)


@schema_app.command("mode")
def set_mode(
    subject: Subject,
    mode: Annotated[Mode, typer.Argument(help="Compatibility that a new version must have with the latest one.")],
    token: Admin = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Set the compatibility mode of a subject."""
    found = _ask(url, data, f"{_path(subject)}/mode", "PUT", token, {"mode": mode})
    if as_json:
        output.print_json(found)
    else:
        output.note(f"{subject} is {found['mode']} compatible now")


@schema_app.command()
def delete(
    subject: Subject,
    version: Annotated[int, typer.Argument(min=1, help="Version to delete.")],
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Delete permanently; only for a version that is already deleted.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    token: Admin = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Delete a version: no message can be published with it; stored messages can still be decoded.

    A second delete with --permanent removes its definition, and its number may be used again.
    """
    for_good = " permanently" if permanent else ""
    if not yes:
        typer.confirm(f"Delete version {version} of {printable(subject)}{for_good}?", abort=True, err=True)
    path = f"{_path(subject)}/versions/{version}?permanent={str(permanent).lower()}"
    found = _ask(url, data, path, "DELETE", token)
    if as_json:
        output.print_json(found)
    else:
        output.note(f"version {version} of {subject} is deleted{for_good}")


@schema_app.command()
def bind(
    topic: TopicName,
    subject: Annotated[
        str | None, typer.Argument(help="Subject to bind the topic to. Without it, the binding is removed.")
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="Validation policy. Default: unchanged; `none` for a new binding.")
    ] = None,
    validate: Validate = None,
    token: Admin = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Bind a topic to a subject, or remove its binding. The topic is created if it does not exist."""
    if subject is None:
        found = _ask(url, data, _topic_path(topic), "DELETE", token)
    else:
        document = {"subject": subject, "policy": policy, "validate_payload": validate}
        found = _ask(url, data, _topic_path(topic), "PUT", token, document)
    _tell_topic(found, as_json)


@schema_app.command()
def policy(
    topic: TopicName,
    policy: Annotated[Policy | None, typer.Argument(help="Policy to set. Default: show the current one.")] = None,
    validate: Validate = None,
    token: Admin = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show or set what happens to messages that do not match the topic's schema.

    `none`: they are not checked. `warn`: they are logged and accepted. `enforce`: they are refused.
    """
    if policy is None and validate is None:
        found = _ask(url, data, _topic_path(topic))
    else:
        found = _ask(url, data, _topic_path(topic), "PUT", token, {"policy": policy, "validate_payload": validate})
    _tell_topic(found, as_json)


# ---- asking and telling ---------------------------------------------------------------------------------------------


def _ask(
    url: str | None, data: Path | None, path: str, method: str = "GET", token: str = "", document: Any = None
) -> Any:
    try:
        return bus.call_console(bus.console_url(url, data), path, method, token, document)
    except RemoteError as error:
        output.fail(error.text)


def _path(subject: str) -> str:
    return f"/api/schemas/{quote(subject, safe='')}"


def _topic_path(topic: str) -> str:
    return f"/api/topic-schemas/{quote(topic, safe='')}"


def _definition(file: Path, schema_type: str | None, references: list[str] | None) -> dict[str, Any]:
    kind = schema_type or TYPES_BY_ENDING.get(file.suffix.lower())
    if kind is None:
        output.fail(f"{file} does not end in {', '.join(TYPES_BY_ENDING)}: use --type", ExitCode.USAGE)
    try:
        content = typer.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        output.fail(f"{file} cannot be read: {error.strerror}", ExitCode.USAGE)
    used = [_reference(text) for text in references or ()]
    return {"type": kind, "definition_base64": b64encode(content).decode(), "references": used}


def _reference(text: str) -> dict[str, Any]:
    """Parse NAME=SUBJECT:VERSION. Name and subject may contain colons: the version follows the last one."""
    name, _, target = text.rpartition("=")
    subject, _, version = target.rpartition(":")
    if not name or not subject or not version.isdecimal():
        output.fail(f"{text!r} is not a reference of the form NAME=SUBJECT:VERSION", ExitCode.USAGE)
    return {"name": name, "subject": subject, "version": int(version)}


def _tell_topic(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(found)
    else:
        _print_topics([found])


def _print_topics(topics: list[dict[str, Any]]) -> None:
    cells = [
        (row["topic"], row["subject"], row["policy"], "checked" if row["validate_payload"] else "not validated")
        for row in topics
    ]
    output.print_table("Topics", ["topic", "subject", "policy", "payloads"], cells)


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
