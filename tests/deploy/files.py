"""The files under `deploy/`, as tests read them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "raceway.rules.yml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
# Doors that are open by default, without a certificate.
OPEN_PORTS = {3000, 3001, 6650, 8600, 10101, 10201, 15555}
METRIC = re.compile(r"\braceway_[a-z_]+\b")


def read_yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text("utf-8"))


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert of the rules, by its name."""
    return {rule["alert"]: rule for group in read_yaml(RULES)["groups"] for rule in group["rules"]}


def metrics_of_the_reference() -> set[str]:
    """Every metric that the bus has."""
    return set(METRIC.findall((ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")))


def metrics_to_watch() -> set[str]:
    """The metrics of the table "what to watch"."""
    page = (ROOT / "docs" / "operate" / "metrics.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `raceway_")]
    return {name for row in rows for name in METRIC.findall(row)}


def image_environment() -> dict[str, str]:
    """The settings that the image of the bus brings."""
    return dict(re.findall(r"\b(RACEWAY_[A-Z_]+)=(\S+)", DOCKERFILE.read_text("utf-8")))


def assert_settings_can_be_used(environment: Mapping[str, str]) -> None:
    """`raceway config --check`, with these variables alone."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
    command = [sys.executable, "-m", "raceway", "config", "--check"]
    done = subprocess.run(command, env=env | dict(environment), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
