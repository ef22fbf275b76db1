"""The compose file: held to the schema of compose files, its settings to those of the bus."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, DOCKERFILE, OPEN_PORTS, assert_settings_can_be_used, image_environment, read_yaml

COMPOSE = DEPLOY / "docker" / "compose.yaml"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_yaml(COMPOSE)["services"]
    return found


def test_the_file_follows_the_schema_of_compose_files() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(services()))
def test_a_service_is_built_from_a_target_that_exists(name: str) -> None:
    build = services()[name]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    assert f" AS {build['target']}\n" in DOCKERFILE.read_text("utf-8")


def test_the_bus_can_use_its_settings() -> None:
    assert_settings_can_be_used(image_environment() | services()["bus"]["environment"])


def test_every_door_is_published_on_loopback_only() -> None:
    published = [entry.rsplit(":", 2) for entry in services()["bus"]["ports"]]
    assert {int(inside) for _, _, inside in published} == OPEN_PORTS
    assert all(host == "127.0.0.1" and outside == inside for host, outside, inside in published)


def test_the_pipeline_is_asked_for_and_reads_the_folder_of_the_bus() -> None:
    bus, pipeline = services()["bus"], services()["pipeline"]
    assert "profiles" not in bus
    assert pipeline["profiles"] == ["pipeline"]
    assert pipeline["volumes"] == bus["volumes"] == ["data:/var/lib/raceway"]
    assert image_environment()["RACEWAY_JOURNAL__FOLDER"].startswith("/var/lib/raceway/")


def test_a_build_without_a_target_makes_the_bus_and_exposes_its_doors() -> None:
    lines = DOCKERFILE.read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("FROM ")][-1] == "FROM bus"
    exposed = next(line for line in lines if line.startswith("EXPOSE "))
    assert {int(port) for port in exposed.split()[1:]} == OPEN_PORTS


def test_what_the_image_copies_is_let_into_the_build() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text("utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copies = [line.split()[1:-1] for line in DOCKERFILE.read_text("utf-8").splitlines() if line.startswith("COPY ")]
    copied = {name for names in copies for name in names if not name.startswith(("--from", "/"))}
    assert copied == let_in
