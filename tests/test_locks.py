"""Lock files: what users install is what the tests ran on."""

from __future__ import annotations

import re

import pytest

from tests.rigs.manual import ROOT

PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / name).read_text("utf-8")))


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-otel.lock", "requirements-spark.lock"])
def test_versions_are_those_of_the_tests(name: str) -> None:
    tested = pins("requirements-dev.lock")
    assert pins(name).items() <= tested.items()


def test_setup_installs_what_runs_and_nothing_that_only_tests_need() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    rule = makefile.partition("$(READY): ")[2].partition("$(READY_DEV)")[0]
    assert "-r requirements-spark.lock" in rule
    runs, tests = pins("requirements-spark.lock"), pins("requirements-dev.lock")
    assert {"pyarrow", "pyspark", "duckdb"} <= runs.keys()
    assert not {"pytest", "mypy", "ruff", "sphinx", "grpcio"} & runs.keys()
    assert {"pytest", "mypy", "ruff", "sphinx", "grpcio"} <= tests.keys()


@pytest.mark.parametrize("task", ["demo", "up"])
def test_what_users_run_needs_no_tools_of_developers(task: str) -> None:
    assert f"\n{task}: setup ##" in (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.parametrize(
    "name", ["Makefile", "deploy/docker/Dockerfile", "docs/howto/run-under-systemd.md", "docs/operate/upgrade.md"]
)
def test_installing_from_a_lock_file_resolves_nothing(name: str) -> None:
    # A lock file is complete. With its own resolver, pip may look at a newer release than the one that is pinned
    # (where a package is wanted with an extra), find no hash for it, and fail.
    lines = [line for line in (ROOT / name).read_text("utf-8").splitlines() if "--require-hashes" in line]
    assert lines
    assert all("--no-deps" in line for line in lines)
