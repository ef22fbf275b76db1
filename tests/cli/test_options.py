from __future__ import annotations

import json
from typing import Annotated, Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from raceway.cli import options
from raceway.cli.app import app

ROWS = [{"name": "b4", "size": 1200}, {"name": "a1", "size": 7}]
COLUMNS = {"gate": "name", ">bags": "size", "first": lambda row: row["name"][0]}


class Shared(options.Printing):
    loud: Annotated[bool, "--loud, -l", "In capitals."] = False


def commands() -> options.Commands:
    group = options.Commands("test", "Commands of this test.")

    @group.command()
    def greet(
        cli: Shared,
        name: Annotated[str, "Whom to greet.", {"metavar": "WHO"}],
        times: Annotated[int, "--times N", "How often.", {"min": 1}] = 1,
    ) -> None:
        """Greet."""
        text = f"hello {name}" * times
        cli.tell({"text": text}, text.upper() if cli.loud else text)

    @group.command()
    def other() -> None:
        """Do nothing."""

    return group


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands(), arguments, catch_exceptions=False)


def leaves(command: Any, path: str = "") -> dict[str, Any]:
    below = getattr(command, "commands", None)
    if below is None:
        return {path: command}
    return {name: leaf for key, child in below.items() for name, leaf in leaves(child, f"{path} {key}".strip()).items()}


def test_fields_of_a_record_are_options_after_the_command_s_own() -> None:
    found = leaves(get_command(commands()))["greet"]
    assert [parameter.name for parameter in found.params] == ["name", "times", "loud", "as_json"]


def test_options_and_arguments_are_declared_as_help_shows_them() -> None:
    name, times, loud, _ = leaves(get_command(commands()))["greet"].params
    assert (name.param_type_name, name.metavar, name.help) == ("argument", "WHO", "Whom to greet.")
    assert (times.opts, times.metavar, times.help, times.type.min) == (["--times"], "N", "How often.", 1)
    assert (loud.opts, loud.metavar, loud.is_flag) == (["--loud", "-l"], None, True)


def test_the_command_is_given_the_record() -> None:
    assert run("greet", "Ada", "--times", "2", "--loud").stderr == "HELLO ADAHELLO ADA\n"
    assert json.loads(run("greet", "Ada", "--json").stdout) == {"text": "hello Ada"}
    assert run("greet", "Ada", "--json").stderr == ""


def test_rows_are_a_table_one_document_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    options.Printing().show(ROWS, COLUMNS, "Bags")
    title, heading, _, first, _ = filter(str.strip, capsys.readouterr().out.split("\n"))
    assert (title, heading.split(), first.split()) == ("Bags", ["gate", "bags", "first"], ["b4", "1,200", "b"])
    options.Printing(as_json=True).show(ROWS, COLUMNS, "Bags")
    assert json.loads(capsys.readouterr().out) == ROWS
    options.Printing(as_json=True).show(ROWS, COLUMNS, lines=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
    options.Printing(as_json=True).show(ROWS, COLUMNS, document={"gates": ROWS})
    assert json.loads(capsys.readouterr().out) == {"gates": ROWS}


def test_without_rows_there_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    options.Printing().show([], COLUMNS, "Bags")
    assert tuple(capsys.readouterr()) == ("", "Bags: none\n")


def test_an_option_that_commands_share_is_the_same_everywhere() -> None:
    helps: dict[str, set[str]] = {}
    for name, command in leaves(get_command(app)).items():
        if name != "demo":  # its folder is made for it
            for parameter in command.params:
                for option in parameter.opts:
                    helps.setdefault(option, set()).add(getattr(parameter, "help", None) or "")
    for option in (
        "--context", "--token", "--data", "--config", "--json", "--yes", "--start", "--ca-file", "--cert-file",
    ):  # fmt: skip
        assert len(helps[option]) == 1, option
    # A command that needs the console port does not offer the URL of a wire.
    assert helps["--url"] == {get_args(options.Url)[2], get_args(options.ConsoleUrl)[2]}


def test_only_the_command_of_a_run_is_made() -> None:
    group = options.Commands("group", "A group.")
    inner = options.Commands("inner", "Another.")
    group.add_typer(inner)
    for commands, names in ((group, "one two"), (inner, "three four")):
        for name in names.split():
            commands.command(name)(lambda: None)
    narrow = group.narrowed(["inner", "four", "one"])
    assert narrow.registered_commands == []
    (only,) = narrow.registered_groups
    assert only.typer_instance is not None
    assert [str(each.name) for each in only.typer_instance.registered_commands] == ["four"]
    # The next run in this process may be of another command.
    assert [str(each.name) for each in group.registered_commands] == ["one", "two"]
    assert [str(each.name) for each in inner.registered_commands] == ["three", "four"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["nosuch"], ["--url", "one"]])
def test_what_is_no_name_of_a_command_needs_all_of_them(arguments: list[str]) -> None:
    group = options.Commands("group", "A group.")
    for name in ("one", "two"):
        group.command(name)(lambda: None)
    assert [str(each.name) for each in group.narrowed(arguments).registered_commands] == ["one", "two"]
