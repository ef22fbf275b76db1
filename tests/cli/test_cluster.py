"""`raceway cluster`: what it refuses. What it makes and shows is tested with Kafka, in `tests/cluster`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode

NOWHERE = "kafka://127.0.0.1:1/x"


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cluster", *words])
    return result.exit_code, result.stderr + str(result.exception or "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("init", NOWHERE, "--lanes", "16"), "this release supports one lane"),
        (("init", NOWHERE, "--timeout", "1"), "cannot be reached"),
        (("status", NOWHERE, "--timeout", "1"), "cannot be reached"),
        (("status", "kafka://127.0.0.1:1"), "must"),
        (("status", NOWHERE, "--kafka-config", "nosuch"), "nosuch cannot be read"),
    ],
)
def test_bad_days_are_one_sentence(words: tuple[str, ...], said: str) -> None:
    status, text = run(*words)
    assert status != 0
    assert said in text


def test_a_cluster_has_to_be_named() -> None:
    status, text = run("status")
    assert status == ExitCode.USAGE
    assert "name the cluster" in text
