"""`raceway schema …` against a started bus."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from tests.rigs.server import Server, running_server

FIRST = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
SECOND = {**FIRST, "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
CLASHING = {**FIRST, "properties": {"id": {"type": "string"}}}

numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def subject() -> str:
    return f"cli/{next(numbers)}"


def run(server: Server, *arguments: str, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["schema", *arguments, "--data", str(server.data)], input=stdin)


def as_json(server: Server, *arguments: str) -> Any:
    result = run(server, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def write(folder: Path, document: Any, name: str = "schema.json") -> str:
    file = folder / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(file)


def test_a_file_is_registered_once(server: Server, subject: str, tmp_path: Path) -> None:
    file = write(tmp_path, FIRST)
    first = as_json(server, "register", subject, file, "--description", "the first", "--tag", "a", "--tag", "b")
    assert (first["version"], first["is_new_version"], first["tags"]) == (1, True, ["a", "b"])
    assert as_json(server, "register", subject, file)["is_new_version"] is False
    assert "was already version 1" in run(server, "register", subject, file).stderr


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", "{}", "json_schema"),
        ("a.avsc", '"string"', "avro"),
        ("a.proto", 'syntax = "proto3"; message A {}', "protobuf"),
    ],
)
def test_the_ending_of_a_file_says_the_type(
    server: Server, subject: str, tmp_path: Path, name: str, text: str, expected: str
) -> None:
    assert as_json(server, "register", subject, write(tmp_path, text, name))["schema_type"] == expected


def test_a_type_may_be_said_and_the_definition_come_from_standard_input(server: Server, subject: str) -> None:
    result = run(server, "register", subject, "-", "--type", "avro", "--json", stdin=b'"long"')
    assert json.loads(result.stdout)["schema_type"] == "avro"


def test_what_cannot_be_registered_says_why(server: Server, subject: str, tmp_path: Path) -> None:
    unsaid = run(server, "register", subject, write(tmp_path, "{}", "schema.txt"))
    assert unsaid.exit_code == ExitCode.USAGE
    assert "use --type" in unsaid.stderr
    missing = run(server, "register", subject, str(tmp_path / "none.json"))
    assert missing.exit_code == ExitCode.USAGE
    broken = run(server, "register", subject, write(tmp_path, "{", "broken.json"))
    assert broken.exit_code == ExitCode.FAILED
    assert "is not JSON" in broken.stderr
    assert as_json(server, "register", subject, write(tmp_path, FIRST))["version"] == 1
    clashing = run(server, "register", subject, write(tmp_path, CLASHING, "c.json"))
    assert clashing.exit_code == ExitCode.FAILED
    assert "/id: the type differs" in clashing.stderr


def test_versions_are_shown_with_the_definition(server: Server, subject: str, tmp_path: Path) -> None:
    file = write(tmp_path, FIRST)
    as_json(server, "register", subject, file, "--description", "the first")
    as_json(server, "register", subject, write(tmp_path, SECOND, "second.json"))
    assert json.loads(as_json(server, "show", subject, "--version", "1")["definition"]) == FIRST
    shown = run(server, "show", subject).stdout
    assert "the first" in shown
    assert '"name": {' in shown
    unknown = run(server, "show", "nobody")
    assert unknown.exit_code == ExitCode.FAILED
    assert "subject 'nobody' not found" in unknown.stderr


def test_a_difference_is_shown_line_by_line_with_what_it_breaks(server: Server, subject: str, tmp_path: Path) -> None:
    as_json(server, "register", subject, write(tmp_path, FIRST))
    alone = run(server, "diff", subject)
    assert alone.exit_code == ExitCode.FAILED
    as_json(server, "mode", subject, "none")
    as_json(server, "register", subject, write(tmp_path, CLASHING, "c.json"))
    result = run(server, "diff", subject)
    assert '-      "type": "integer"' in result.stdout
    assert '+      "type": "string"' in result.stdout
    assert "/id: the type differs" in result.stderr
    found = as_json(server, "diff", subject, "1", "2")
    assert (found["old"]["version"], found["new"]["version"]) == (1, 2)
    assert found["reasons"]["backward"]
    same = run(server, "diff", subject, "2", "2")
    assert "the definitions are the same" in same.stderr


def test_a_check_ends_with_a_status_of_its_own(server: Server, subject: str, tmp_path: Path) -> None:
    as_json(server, "register", subject, write(tmp_path, FIRST))
    assert run(server, "check", subject, write(tmp_path, SECOND, "s.json")).exit_code == 0
    clashing = write(tmp_path, CLASHING, "c.json")
    refused = run(server, "check", subject, clashing)
    assert refused.exit_code == ExitCode.FAILED
    assert "is not backward compatible with version 1" in refused.stderr
    assert run(server, "check", subject, clashing, "--mode", "none").exit_code == 0
    assert len(json.loads(run(server, "list", "--json").stdout)["subjects"]) > 0


def test_a_topic_is_bound_and_its_policy_changed(server: Server, subject: str, tmp_path: Path) -> None:
    topic = f"topic{next(numbers)}"
    as_json(server, "register", subject, write(tmp_path, FIRST))
    bound = as_json(server, "bind", topic, subject)
    assert (bound["subject"], bound["policy"], bound["validate_payload"]) == (subject, "none", False)
    assert as_json(server, "policy", topic, "enforce", "--validate")["policy"] == "enforce"
    assert as_json(server, "policy", topic, "warn")["validate_payload"] is True
    shown = as_json(server, "policy", topic)
    assert (shown["policy"], shown["validate_payload"], shown["subject"]) == ("warn", True, subject)
    assert topic in run(server, "list").stdout
    assert as_json(server, "bind", topic)["subject"] is None


def test_bindings_that_cannot_be_are_refused(server: Server, subject: str, tmp_path: Path) -> None:
    known = f"{subject}/known"
    as_json(server, "register", known, write(tmp_path, FIRST))
    for arguments in (("bind", "topic", subject), ("policy", "nobody"), ("bind", "raceway.rejected", known)):
        result = run(server, *arguments)
        assert result.exit_code == ExitCode.FAILED, arguments
        assert result.stderr.startswith("raceway: ")


def test_a_version_is_deleted_when_that_is_meant(server: Server, subject: str, tmp_path: Path) -> None:
    as_json(server, "register", subject, write(tmp_path, FIRST))
    assert run(server, "delete", subject, "1", stdin=b"n\n").exit_code != 0
    assert as_json(server, "delete", subject, "1", "--yes")["version"] == 1
    assert run(server, "show", subject).exit_code == ExitCode.FAILED
    assert "deleted" in run(server, "show", subject, "--deleted").stdout
    assert subject not in [row["subject"] for row in as_json(server, "list")["subjects"]]
    assert {"subject": subject, "deleted": True}.items() <= next(
        row for row in as_json(server, "list", "--deleted")["subjects"] if row["subject"] == subject
    ).items()
    assert run(server, "delete", subject, "1", "--yes").exit_code == ExitCode.FAILED
    assert "permanently" in run(server, "delete", subject, "1", "--permanent", "--yes").stderr
    assert as_json(server, "register", subject, write(tmp_path, SECOND))["version"] == 1


def test_a_definition_uses_another_one(server: Server, subject: str, tmp_path: Path) -> None:
    used = f"{subject}:used"
    as_json(server, "register", used, write(tmp_path, FIRST))
    file = write(tmp_path, {"type": "object", "properties": {"order": {"$ref": "http://x/order.json"}}}, "outer.json")
    reference = ("--reference", f"http://x/order.json={used}:1")
    assert run(server, "register", subject, file).exit_code == ExitCode.FAILED
    row = as_json(server, "register", subject, file, *reference)
    assert row["references"] == [{"name": "http://x/order.json", "subject": used, "version": 1}]
    assert as_json(server, "check", subject, file, *reference)["is_compatible"]
    assert f"uses http://x/order.json: version 1 of {used}" in run(server, "show", subject).stderr
    assert f"used by {subject} 1" in run(server, "show", used).stderr
    assert run(server, "delete", used, "1", "--yes").exit_code == ExitCode.FAILED
    for wrong in ("x", "x=y", "=y:1", "x=y:z"):
        assert run(server, "register", subject, file, "--reference", wrong).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("mode", ["backward_transitive", "forward_transitive", "full_transitive"])
def test_transitive_modes(server: Server, subject: str, tmp_path: Path, mode: str) -> None:
    as_json(server, "register", subject, write(tmp_path, FIRST))
    assert as_json(server, "mode", subject, mode)["mode"] == mode
    assert as_json(server, "check", subject, write(tmp_path, SECOND), "--mode", mode)["is_compatible"]


def test_without_a_bus_nothing_is_asked(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["schema", "list", "--data", str(tmp_path)])
    assert result.exit_code == ExitCode.UNREACHABLE
