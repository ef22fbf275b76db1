"""The reference says what the code says, and leaves nothing out: looked for here without the help of what writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from docs import make_reference
from docs.generate.errors import errors_page
from docs.generate.measured import PARTS, RESULTS
from raceway import config, errors, wires
from raceway.cli.app import app
from raceway.config import reading
from raceway.pipeline import options
from raceway.wires.mb.codec.encode import MB_CODES
from raceway.wires.seneca.codec.failure import SENECA_CODES
from raceway.wires.zbus.codec.encode import ZBUS_STATUSES
from tests.rigs.manual import PAGES, name_of
from tests.rigs.server import running_server
from tests.web.test_openapi import OPERATIONS

OPTIONS = re.compile(r"^│[ *]+((?:-[\w-]+[ ,/]*)+)", re.MULTILINE)
COMMAND = re.compile(r"^│ (\w[\w-]*) ", re.MULTILINE)


@cache
def written() -> dict[str, str]:
    return make_reference.pages()


def page(name: str) -> str:
    return (make_reference.FOLDER / name).read_text("utf-8")


@pytest.mark.parametrize("name", written())
def test_pages_are_what_the_code_says(name: str) -> None:
    assert page(name) == written()[name], "run `make docs`"


def test_every_result_of_a_benchmark_is_in_the_manual() -> None:
    assert {part.name for part in PARTS} >= {file.stem for file in RESULTS.glob("*.md")}


# ---- what the manual speaks of --------------------------------------------------------------------------------------

SECTIONS = {field.name for field in msgspec.structs.fields(config.Config)}
NAMED_KEY = re.compile(rf"`((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)(?: = [^`]*)?`")
ATTRIBUTES = {"seneca.times"}  # of messages; named like a setting
NAMED_METRIC = re.compile(r"`(raceway_[a-z_]+)")
NAMED_COMMAND = re.compile(r"`raceway ([a-z]+(?: [a-z]+)?)")


@pytest.mark.parametrize("named", PAGES, ids=name_of)
def test_every_setting_metric_and_command_that_a_page_names_exists(named: Path) -> None:
    text = named.read_text("utf-8")
    keys = set(reading.describe(wires.sections()))
    keys |= {key.rpartition(".")[0] for key in keys}
    keys |= set(reading.RENAMED) if named.name == "CHANGELOG.md" else set()  # it alone speaks of old names
    assert [key for key in NAMED_KEY.findall(text) if key not in keys | ATTRIBUTES] == []
    assert [name for name in NAMED_METRIC.findall(text) if f"| `{name}` |" not in page("metrics.md")] == []
    headings = page("cli.md")
    words = [command.split() for command in NAMED_COMMAND.findall(text)]
    assert [
        each for each in words if not any(f"## raceway {name}\n" in headings for name in (each[0], " ".join(each)))
    ] == []


# ---- commands -------------------------------------------------------------------------------------------------------


def help_of(*command: str) -> str:
    answer = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert answer.exit_code == 0, answer.output
    return answer.output


def every_command(*path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each command with its help page, as a person would find them."""
    text = help_of(*path)
    yield path, text
    # The root lists its commands under several headings, groups under `Commands`.
    lists = [panel for panel in text.split("╭─ ")[1:] if not panel.startswith(("Options ", "Arguments "))]
    for name in COMMAND.findall("\n".join(lists)):
        yield from every_command(*path, name)


def test_no_command_and_no_option_is_missing() -> None:
    sections = {part.partition("\n")[0]: part for part in page("cli.md").split("\n## ")}
    commands = list(every_command())
    assert len(commands) > 40
    seen = 0
    for path, text in commands:
        section = sections[" ".join(["raceway", *path])]
        boxes = text.split("╭─ Options")[1] if "╭─ Options" in text else ""
        offered = {name for names in OPTIONS.findall(boxes) for name in re.split("[ ,/]+", names.strip(" ,/"))}
        assert "--help" in offered
        assert [option for option in sorted(offered - {"--help", "-h"}) if f"`{option}`" not in section] == [], path
        seen += len(offered)
    assert seen > 200


# ---- settings -------------------------------------------------------------------------------------------------------


def every_key(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(section, key) of each setting, found in the records themselves."""
    for field in msgspec.structs.fields(kind):
        name = f"{prefix}.{field.name}" if prefix else field.name
        if inspect.isclass(field.type) and issubclass(field.type, msgspec.Struct):
            yield from every_key(field.type, name)
        elif field.name != "wires":
            yield prefix, field.name


def test_no_setting_is_missing() -> None:
    sections = {part.partition("\n")[0]: part for part in page("config.md").split("\n## ")}
    keys = list(every_key(config.Config))
    keys += [key for prefix, section in wires.sections().items() for key in every_key(section, prefix)]
    assert len(keys) > 100
    assert [each for each in keys if f"| `{each[1]}` |" not in sections[f"[{each[0]}]"]] == []


def test_every_variable_that_is_no_setting_is_named() -> None:
    assert [name for name in reading.NOT_SETTINGS - reading.OF_TESTS if name not in page("config.md")] == []


# ---- errors and the rest --------------------------------------------------------------------------------------------


def test_no_error_code_is_missing() -> None:
    text = page("errors.md")
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RacewayError)]
    groups = {errors.RacewayError, errors.PeerError, errors.LocalError}
    assert [
        kind.code for kind in kinds if kind not in groups and f"| `{kind.code}` | `{kind.__name__}` |" not in text
    ] == []


@pytest.mark.parametrize("words", [MB_CODES, SENECA_CODES, ZBUS_STATUSES])
def test_no_word_of_a_wire_is_missing(words: dict[str, object]) -> None:
    lines = page("errors.md").split("## On the wires")[1].splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert [code for code, word in words.items() if str(word) not in rows.get(code, "")] == []


def test_a_changed_word_of_a_wire_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ZBUS_STATUSES, "busy", 429)
    assert "| `busy` | `SERVICE_UNAVAILABLE` | 429 |" in errors_page()


def test_no_address_of_the_console_port_is_missing() -> None:
    text = page("http-api.md")
    addresses = [(method, re.sub(r":\w+}", "}", path)) for method, path in OPERATIONS]
    assert [each for each in addresses if f"| {each[0]} | `{each[1]}` |" not in text] == []


def test_no_metric_of_a_running_bus_is_missing() -> None:
    with running_server() as server:
        names = set(re.findall(r"^(raceway_\w+)", server.http("/metrics")[1], re.MULTILINE))
    assert len(names) > 40
    assert [name for name in sorted(names) if f"| `{name}` |" not in page("metrics.md")] == []


def test_no_verb_of_a_client_is_missing() -> None:
    from raceway import client

    text = page("client.md")
    for kind in (client.MbClient, client.DanubeClient, client.ZbusClient, client.SenecaClient):
        verbs = [name for name in vars(kind) if not name.startswith("_")]
        section = text.split(f"\n## {kind.__name__}\n")[1].split("\n## ")[0]
        assert [verb for verb in verbs if f"- `{verb}" not in section] == []


def test_no_option_of_the_spark_source_is_missing() -> None:
    asked = set(re.findall(r'found(?:, |\.get\()"(\w+)"', inspect.getsource(options.parse)))
    assert len(asked) > 10
    rows = "".join(line.split(" | ")[0] for line in page("spark-source.md").splitlines() if line.startswith("| `"))
    # The two that the pipeline asks for itself are nobody else's.
    assert [name for name in sorted(asked - {"alignTo", "stageto"}) if f"`{name}`" not in rows] == []
