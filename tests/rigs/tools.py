"""Programs that tests drive: from the system's packages, or fetched by the versions and hashes beside the tests.

A machine that has one neither before nor after trying skips its tests; with CI=true that is a failure.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.jars import JarsError, fetch

HERE = Path(__file__).parents[1]
FOLDER = HERE.parent / ".tools"
INSTALL_S = FETCH_S = 400


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Workers of a parallel run install or fetch the same thing one after another; who comes second finds it done."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def installed(program: str, package: str) -> str:
    """A program of the system, installed if it is not there and we may."""
    if (found := shutil.which(program)) is not None:
        return found
    with one_at_a_time("packages"):
        return _install(program, package)


def _install(program: str, package: str) -> str:
    if (found := shutil.which(program)) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-y", "-q", package]):
            subprocess.run(command, check=False, capture_output=True, timeout=INSTALL_S, env=env)
        found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program}, and `apt-get install {package}` did not help")
    return found


def h2spec() -> Path:
    """The conformance tester of HTTP/2, built from its Go module."""
    go = installed("go", "golang-go")
    program = _place(HERE / "h2spec", "go.sum") / "h2spec"
    with one_at_a_time("h2spec"):
        _build_h2spec(go, program)
    return program


def _build_h2spec(go: str, program: Path) -> None:
    if not program.exists():
        command = [
            go,
            "build",
            "-mod=readonly",
            "-buildvcs=false",
            "-o",
            str(program),
            "github.com/summerwind/h2spec/cmd/h2spec",
        ]
        _run(command, HERE / "h2spec")


def grpc_js() -> Path:
    """A folder whose `node_modules` holds the gRPC client of Node."""
    return _packages("grpc_js", "@grpc")


def confluent_js() -> Path:
    """A folder whose `node_modules` holds the schema registry client of Node."""
    return _packages("confluent_js", "@kafkajs")


def asyncapi_schemas() -> Path:
    """The folder with the official JSON schemas of AsyncAPI."""
    return _packages("asyncapi", "@asyncapi") / "node_modules" / "@asyncapi" / "specs" / "schemas"


def type_checker() -> Path:
    """The compiler of TypeScript, which also checks scripts with types in their comments."""
    return _packages("console_js", "typescript") / "node_modules" / "typescript" / "bin" / "tsc"


def axe() -> str:
    """The source of axe-core, which finds what keeps people from using a page."""
    return (_packages("axe", "axe-core") / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def locked_jars(lock: Path) -> list[Path]:
    """The jars that a lock file lists."""
    installed("java", "default-jre-headless")
    try:
        return fetch(lock)
    except JarsError as error:
        pytest.skip(str(error))


def _packages(name: str, wanted: str) -> Path:
    """A folder with the npm packages that the lock file of `tests/<name>` lists."""
    npm = installed("npm", "npm")
    folder = _place(HERE / name, "package-lock.json")
    with one_at_a_time(folder.name):
        if not (folder / "node_modules" / wanted).exists():
            for file in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name / file, folder)
            _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    return folder


def _place(source: Path, lock: str) -> Path:
    """A folder for what a lock file names; another lock, another folder."""
    folder = FOLDER / f"{source.name}-{hashlib.sha256((source / lock).read_bytes()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
