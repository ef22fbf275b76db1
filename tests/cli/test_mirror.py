"""Options of `raceway mirror` that do not go together. What it does is tested in `tests/mirror`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.errors import ConfigError
from tests.rigs.server import running_server

KAFKA = "kafka://127.0.0.1:1"


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["mirror", *map(str, words)])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topics", "a"], "give --to URL or --from URL"),
        (["--topics", "a", "--to", KAFKA, "--from", KAFKA], "give --to URL or --from URL"),
        (["--topics", "a", "--to", KAFKA, "--skip-refused"], "--skip-refused does not go with --to"),
        (["--topics", "a", "--to", KAFKA, "--url", "raceway://x"], "--url does not go with --to"),
        (["--topics", "a", "--from", KAFKA, "--create"], "--create does not go with --from"),
        (["--topics", "a", "--from", KAFKA], "--from needs --name"),
        (["--to", KAFKA], "--topics"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], said: str) -> None:
    status, stderr = run(*words)
    assert status == ExitCode.USAGE
    assert said in stderr


def test_a_url_that_is_not_of_kafka(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["mirror", "--topics", "a", "--to", "http://x", "--data", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert "must begin with one of kafka://" in str(result.exception)


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    status, stderr = run("--topics", "a", "--to", KAFKA, "--data", tmp_path)
    assert status == ExitCode.FAILED
    assert "contains no journal" in stderr


def test_a_journal_without_its_identity(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        server.stop()
        (server.data / "identity").unlink()
        result = CliRunner().invoke(app, ["mirror", "--topics", "a", "--to", KAFKA, "--data", str(server.data)])
    assert "start the bus, which mends it" in str(result.exception)
