from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import raceway
from raceway.cli.app import app
from raceway.cli.output import ExitCode


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one script of its own."""
    (tmp_path / "bench").mkdir()
    script = "import sys; open('said', 'w').write(' '.join(sys.argv[1:])); sys.exit(7)"
    (tmp_path / "bench" / "start.py").write_text(script)
    monkeypatch.setattr(raceway, "__file__", str(tmp_path / "src" / "raceway" / "__init__.py"))
    return tmp_path


def test_flags_and_status_pass_through(checkout: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "start", "--seconds", "3"])
    assert result.exit_code == 7
    assert (checkout / "said").read_text() == "--seconds 3"


@pytest.mark.usefixtures("checkout")
def test_without_the_script_it_says_where_to_run() -> None:
    result = CliRunner().invoke(app, ["bench", "path"])
    assert result.exit_code == ExitCode.USAGE
    assert "in a checkout" in result.stderr
