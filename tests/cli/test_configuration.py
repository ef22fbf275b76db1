from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from raceway import wires
from raceway.cli.app import app
from raceway.cli.configuration import as_toml
from raceway.config import reading
from raceway.errors import ConfigError
from tests.cli.test_certificates import issue

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["config", *arguments], catch_exceptions=False)


@given(VALUES)
def test_values_are_shown_as_one_would_write_them(value: Any) -> None:
    assert tomllib.loads(f"value = {as_toml(value)}")["value"] == value


def test_each_value_stands_beside_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "bus.toml"
    file.write_text("[broker]\ndrain_s = 9.5\n")
    monkeypatch.setenv("RACEWAY_BROKER__MAX_TOPICS", "12")
    shown = json.loads(run("--config", str(file), "--json").stdout)
    assert shown["broker.drain_s"] == {"value": 9.5, "origin": str(file)}
    assert shown["broker.max_topics"] == {"value": 12, "origin": "environment RACEWAY_BROKER__MAX_TOPICS"}
    assert set(shown) == set(reading.describe(wires.sections()))


def test_the_table_can_be_narrowed_to_a_section() -> None:
    shown = run("journal.retention").stdout
    assert "journal.retention.max_bytes" in shown
    assert "listen" not in shown


def test_a_section_that_does_not_exist_is_wrong_use() -> None:
    result = run("nothing")
    assert result.exit_code == 2
    assert "no setting begins with 'nothing'" in result.stderr


def test_check_looks_at_the_certificate_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = issue(tmp_path, "bus")
    monkeypatch.setenv("RACEWAY_LISTEN__TLS_CERTIFICATE", certificate)
    monkeypatch.setenv("RACEWAY_LISTEN__TLS_KEY", key)
    assert run("--check").exit_code == 0
    monkeypatch.setenv("RACEWAY_LISTEN__TLS_KEY", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="none cannot be read"):
        run("--check")


def test_an_old_name_of_a_setting_is_told_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN", "s3cret")
    done = run("security.admin_token", "--json")
    assert json.loads(done.stdout)["security.admin_token"]["value"] == reading.HIDDEN
    assert done.stderr.startswith("warning: listen.zbus.admin_token is now called security.admin_token (environment ")
