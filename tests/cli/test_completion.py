"""Completion as shells ask for it: bash runs its script, zsh and fish are answered what their scripts ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raceway.cli.completion import VARIABLE
from tests.cli.test_app import raceway

# Completes the words that follow it as bash does on Tab, and prints what is offered.
TAB = """
source <(raceway completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_raceway_completion raceway
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where `raceway` is found, as after an installation."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "raceway"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m raceway "$@"\n')
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["top"], {"topic", "topics"}),
        (["topic", "de"], {"describe", "delete"}),
        (["subscription", "create", "t", "s", "--ty"], {"--type"}),
        (["subscription", "create", "t", "s", "--type", "sha"], {"shared"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_commands_options_and_choices(path: str, words: list[str], offered: set[str]) -> None:
    command = ["bash", "--norc", "-c", TAB, "bash", "raceway", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": path}, timeout=60, check=True)
    assert (set(done.stdout.split()), done.stderr) == (offered, "")


@pytest.mark.parametrize(
    ("shell", "asked"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "raceway topic de"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "raceway topic de", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_other_shells_are_answered(shell: str, asked: dict[str, str]) -> None:
    script = raceway("completion", shell).stdout
    assert all(name in script for name in (VARIABLE, f"complete_{shell}", *asked))
    answer = raceway(**{VARIABLE: f"complete_{shell}"}, **asked)
    assert "describe" in answer.stdout
    assert "delete" in answer.stdout
    assert "list" not in answer.stdout.replace("subscription", "")
    assert answer.stderr == ""


def test_an_unknown_shell_is_refused() -> None:
    assert raceway("completion", "tcsh").returncode == 2


def test_the_package_has_no_other_completion(path: str, tmp_path: Path) -> None:
    """Nothing is written into the home of the user."""
    env = {"PATH": path, "HOME": str(tmp_path)}
    subprocess.run(["raceway", "completion", "bash"], capture_output=True, env=env, timeout=60, check=True)
    assert os.listdir(tmp_path) == []
