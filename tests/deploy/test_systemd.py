"""The systemd units, as systemd's own tool judges them, and as the manual shows them."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT
from tests.rigs.manual import blocks
from tests.rigs.tools import installed

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PAGE = ROOT / "docs" / "howto" / "run-under-systemd.md"


def verify(unit: Path, root: Path) -> str:
    """What systemd has to say of a unit, on a machine where the program is installed."""
    analyze = installed("systemd-analyze", "systemd")
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    (root / "etc/systemd/system").mkdir(parents=True)
    shutil.copy(unit, root / "etc/systemd/system")
    program = root / "opt/raceway/bin/raceway"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    command = [analyze, "verify", "--man=no", f"--root={root}", unit.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    return "\n".join(said if done.returncode == 0 else [*said, f"status {done.returncode}", done.stderr])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault(unit: Path, tmp_path: Path) -> None:
    assert verify(unit, tmp_path) == ""


def test_systemd_would_find_one(tmp_path: Path) -> None:
    unit = tmp_path / "wrong.service"
    text = (DEPLOY / "systemd" / "raceway.service").read_text("utf-8")
    unit.write_text(text.replace("TimeoutStopSec=15", "TimeoutStopSec=soon"), "utf-8")
    assert "Failed to parse time value, ignoring: soon" in verify(unit, tmp_path / "root")


def test_the_page_shows_the_files() -> None:
    shown = {block.language: block.code for block in blocks(PAGE)}
    assert shown["ini"] == (DEPLOY / "systemd" / "raceway.service").read_text("utf-8")
    assert shown["toml"] == (DEPLOY / "systemd" / "raceway.toml").read_text("utf-8")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_may_write_where_the_data_is(unit: Path) -> None:
    settings = tomllib.loads((DEPLOY / "systemd" / "raceway.toml").read_text("utf-8"))
    writable = next(
        line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith("ReadWritePaths=")
    )
    assert settings["journal"]["folder"].startswith(f"{writable}/")
