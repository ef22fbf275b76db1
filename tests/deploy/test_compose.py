"""The compose files: held to the schema of compose files, their settings to those of the bus, and the balancer of the
cluster to the nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, DOCKERFILE, OPEN_PORTS, assert_settings_can_be_used, image_environment, read_yaml

COMPOSE = DEPLOY / "docker" / "compose.yaml"
CLUSTER = DEPLOY / "docker" / "compose.cluster.yaml"
BALANCER = DEPLOY / "docker" / "haproxy.cfg"
NODES, BROKERS = ("node1", "node2", "node3"), ("kafka1", "kafka2", "kafka3")


def services(file: Path = COMPOSE) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_yaml(file)["services"]
    return found


@pytest.mark.parametrize("file", [COMPOSE, CLUSTER], ids=lambda file: file.name)
def test_the_file_follows_the_schema_of_compose_files(file: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


BUILT = [(file, name) for file in (COMPOSE, CLUSTER) for name, each in services(file).items() if "build" in each]


@pytest.mark.parametrize(("file", "name"), BUILT, ids=str)
def test_a_service_is_built_from_a_target_that_exists(file: Path, name: str) -> None:
    build = services(file)[name]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    assert f" AS {build['target']}\n" in DOCKERFILE.read_text("utf-8")


def test_the_bus_can_use_its_settings() -> None:
    assert_settings_can_be_used(image_environment() | services()["bus"]["environment"])


@pytest.mark.parametrize("name", NODES)
def test_a_node_can_use_its_settings_and_belongs_to_the_cluster_that_is_made(name: str) -> None:
    found = services(CLUSTER)
    environment = found[name]["environment"]
    assert_settings_can_be_used(image_environment() | environment)
    assert environment["RACEWAY_CLUSTER__ADVERTISE"] == name
    assert name in environment["RACEWAY_LISTEN__HOSTS"].split(",")
    url = environment["RACEWAY_CLUSTER__URL"]
    assert url == f"kafka://{','.join(f'{broker}:9092' for broker in BROKERS)}/raceway"
    assert found["init"]["command"] == ["raceway", "cluster", "init", url, "--if-not-exists"]
    assert found[name]["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    assert "volumes" not in found[name], "a node keeps a cache only"


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_one_of_three_with_a_volume_of_its_own(name: str) -> None:
    service = services(CLUSTER)[name]
    environment = service["environment"]
    voters = ",".join(f"{number}@{broker}:9093" for number, broker in enumerate(BROKERS, 1))
    assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == voters
    assert environment["KAFKA_NODE_ID"] == name.removeprefix("kafka")
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
    assert service["volumes"] == [f"{name}:{environment['KAFKA_LOG_DIRS']}"]
    assert "ports" not in service


def test_the_balancer_leads_every_door_to_every_node() -> None:
    text = BALANCER.read_text("utf-8")
    found = re.findall(r"^listen \w+\n  bind :(\d+)\n((?:  server .*\n?)+)", text, re.MULTILINE)
    assert {int(port) for port, _ in found} == OPEN_PORTS
    for port, servers in found:
        assert re.findall(r"server (\S+) (\S+)", servers) == [(node, f"{node}:{port}") for node in NODES]
    assert services(CLUSTER)["bus"]["volumes"] == ["./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro"]


@pytest.mark.parametrize("file", [COMPOSE, CLUSTER], ids=lambda file: file.name)
def test_every_door_is_published_on_loopback_only(file: Path) -> None:
    published = [entry.rsplit(":", 2) for entry in services(file)["bus"]["ports"]]
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
