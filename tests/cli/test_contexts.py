from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.cli.saved_buses import contexts_file
from raceway.errors import ConfigError


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def context(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["context", *arguments], catch_exceptions=False)


def listed() -> Any:
    return json.loads(context("list", "--json").stdout)


def test_a_context_is_added_used_listed_and_removed() -> None:
    assert listed() == []
    assert "raceway context add NAME" in context("list").stderr
    assert context("add", "prod", "raceway://bus.example").stderr == "context prod is raceway://bus.example\n"
    assert context("add", "dev", "http://127.0.0.1:28406", "--use").exit_code == 0
    assert [(row["name"], row["used"]) for row in listed()] == [("dev", True), ("prod", False)]
    context("use", "prod")
    assert [row["name"] for row in listed() if row["used"]] == ["prod"]
    assert context("remove", "prod").exit_code == 0
    assert [(row["name"], row["used"]) for row in listed()] == [("dev", False)]


def test_none_can_be_in_use() -> None:
    context("add", "prod", "raceway://bus.example", "--use")
    assert context("use").stderr == "no context is in use\n"
    assert not any(row["used"] for row in listed())


def test_a_token_is_kept_and_not_shown() -> None:
    context("add", "prod", "raceway://bus.example", "--token", "sesame")
    assert "sesame" in contexts_file().read_text()
    shown = context("list").stdout + context("list", "--json").stdout
    assert "sesame" not in shown
    assert listed()[0]["token"] is True


def test_only_the_owner_can_read_the_file() -> None:
    context("add", "prod", "raceway://bus.example")
    contexts_file().chmod(0o644)
    context("add", "prod", "raceway://bus.example", "--token", "sesame")
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    assert contexts_file().parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("url", ["bus.example", "ftp://bus.example", "raceway://", "raceway://x:port"])
def test_what_is_no_url_of_a_bus_is_not_saved(url: str) -> None:
    with pytest.raises(ConfigError):
        context("add", "prod", url)
    assert listed() == []


def test_an_unknown_name_is_refused() -> None:
    for command in ("use", "remove"):
        with pytest.raises(ConfigError, match="'prod' is not saved; there are: none"):
            context(command, "prod")


def test_wrong_use_ends_with_status_2() -> None:
    assert context("add", "prod").exit_code == ExitCode.USAGE
