"""The image of the bus: built by buildah on a Debian root of our own, and run as it is, with its own ports.

Containers run in a network namespace of the test, so that the ports of the image are free and nobody else's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, ROOT
from tests.rigs.server import wait_until
from tests.rigs.tools import FOLDER, installed, one_at_a_time

pytestmark = [
    pytest.mark.may_skip("needs root, namespaces and chroot, and the mirrors of Debian"),
    pytest.mark.timeout(1500),
]
# Ten times what the slowest step takes on a quiet machine.
STEP_S = 600
DEBIAN = "bookworm"
AUTHORITIES = Path("/usr/local/share/ca-certificates")
# Runs a program in a network of its own, in which only loopback is there.
ALONE = """
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, UP_AND_RUNNING = 0x8914, 0x41
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", UP_AND_RUNNING))
os.execvp(sys.argv[1], sys.argv[1:])
"""
# Ends the bus of the container as a container's engine does. In a chroot, processes have the numbers of the machine.
STOP = """
import json, os, signal
with open("/var/lib/raceway/data/raceway.json") as file:
    os.kill(json.load(file)["pid"], signal.SIGTERM)
"""


def run(*command: str, reason: str = "") -> str:
    """What a command prints. One that fails skips the test if there is a `reason` for that."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_S, check=False, env=env)
    if done.returncode and reason:
        pytest.skip(f"{reason}: {(done.stdout + done.stderr)[-1000:]}")
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def debian_root() -> Path:
    """A small Debian as a tar file, which trusts whom this machine trusts. Made once."""
    mmdebstrap = installed("mmdebstrap", "mmdebstrap")
    root = FOLDER / f"debian-{DEBIAN}.tar"
    with one_at_a_time(root.name):
        if not root.exists():
            trusted = [f"--customize-hook=copy-in {file} {AUTHORITIES}" for file in sorted(AUTHORITIES.glob("*.crt"))]
            places = [f'--customize-hook=mkdir -p "$1{AUTHORITIES}"'] if trusted else []
            left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
            staged = root.with_suffix(".new.tar")
            options = ["--variant=apt", "--mode=root", *left_out, *places, *trusted, DEBIAN, str(staged)]
            run(mmdebstrap, *options, reason="mmdebstrap made no root")
            staged.rename(root)
    return root


class Images:
    """A store of images of its own, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.command = (
            installed("buildah", "buildah"),
            *("--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"),
        )

    def __call__(self, *arguments: str, reason: str = "") -> str:
        return run(*self.command, *arguments, reason=reason).strip()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """The store, with the image `raceway` in it."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a Debian root and changes into it")
    root = debian_root()
    folder = tmp_path_factory.mktemp("images")
    images = Images(folder)
    base = images("from", "scratch", reason="buildah cannot keep images here")
    images("add", "--quiet", base, str(root), "/")
    images("commit", "--quiet", "--rm", base, "localhost/debian")
    images("run", "--isolation", "chroot", images("from", "localhost/debian"), "true", reason="no chroot here")
    file = str(DEPLOY / "docker" / "Dockerfile")
    how = ("--isolation", "chroot", "--format", "docker", "--target", "bus", "--build-arg", "BASE=localhost/debian")
    images("build", *how, "--tag", "localhost/raceway", "--file", file, str(ROOT))
    yield images
    shutil.rmtree(folder, ignore_errors=True)


def config_of(images: Images) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(images("inspect", "--type", "image", "localhost/raceway"))["Docker"]["config"]
    return found


class Container:
    """A bus that runs in a container as its image says, in a network of its own."""

    def __init__(self, images: Images, folder: Path) -> None:
        self._name = images("from", "localhost/raceway")
        self._run = (*images.command, "run", "--isolation", "chroot", self._name, "--")
        self.output = folder / "output"
        alone = ("unshare", "--net", "--", sys.executable, "-c", ALONE)
        with self.output.open("wb") as output:
            command = [*alone, *self._run, *config_of(images)["Cmd"]]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def inside(self, *command: str) -> str:
        """What a program in the container prints."""
        return run("nsenter", f"--net=/proc/{self.process.pid}/ns/net", *self._run, *command)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.output.read_text("utf-8", "replace")
        return "ready" in self.output.read_text("utf-8", "replace").splitlines()


@pytest.fixture
def bus(images: Images, tmp_path: Path) -> Iterator[Container]:
    run("unshare", "--net", "true", reason="no network namespaces here")
    container = Container(images, tmp_path)
    try:
        wait_until(container.is_ready, 120, "the line `ready`")
        yield container
    finally:
        if container.process.poll() is None:
            os.killpg(container.process.pid, signal.SIGKILL)
            container.process.wait(30)


def test_the_image_is_that_of_a_bus_without_root(images: Images) -> None:
    config = config_of(images)
    assert config["User"] == "raceway"
    assert config["Cmd"] == ["raceway", "serve"]
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert list(config["Volumes"]) == ["/var/lib/raceway"]


def test_a_container_takes_messages_and_keeps_them(images: Images, bus: Container) -> None:
    assert bus.inside("id").startswith("uid=10001(raceway) gid=10001(raceway)")
    bus.inside(*config_of(images)["Healthcheck"]["Test"][1:])
    bus.inside("raceway", "pub", "image.test", "hello", "--no-ack")
    stored = ("raceway", "journal", "dump", "--topic", "image.test")
    wait_until(lambda: "image.test" in bus.inside(*stored), 60, "the message in the journal")
    bus.inside("python", "-c", STOP)
    assert bus.process.wait(60) == 0, bus.output.read_text("utf-8", "replace")


def test_the_image_can_export_traces_and_talk_to_kafka(images: Images) -> None:
    name = images("from", "localhost/raceway")
    images("run", "--isolation", "chroot", name, "--", "python", "-c", "import opentelemetry.sdk, confluent_kafka")
