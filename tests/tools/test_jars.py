"""Jars come from the repository that is set, and only those of the lock file are taken."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.rigs.tools import installed
from tools import jars
from tools.jars import REPOSITORY, JarsError, fetch, lock_lines

JAR = b"not really classes"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>
<version>1.0</version>{needs}</project>"""
NEEDS = (
    "<dependencies><dependency><groupId>org.example</groupId><artifactId>below</artifactId><version>1.0</version>"
    "</dependency></dependencies>"
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A repository on loopback with the modules `above`, which needs `below`; what is fetched goes beside it."""
    installed("java", "default-jre-headless")
    for name, needs in (("above", NEEDS), ("below", "")):
        folder = tmp_path / "repository" / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.pom").write_text(POM.format(name=name, needs=needs))
        (folder / f"{name}-1.0.jar").write_bytes(JAR + name.encode())
    monkeypatch.setattr(jars, "FOLDER", tmp_path / "tools")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "repository"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def sha256(name: str) -> str:
    return hashlib.sha256(JAR + name.encode()).hexdigest()


def test_a_locked_jar_is_fetched_once(repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY, repository)
    lock = tmp_path / "some-jars.txt"
    lock.write_text(f"org.example:above:1.0 {sha256('above')}\n")
    (jar,) = fetch(lock)
    assert (jar.name, jar.read_bytes()) == ("above-1.0.jar", JAR + b"above")
    monkeypatch.setenv(REPOSITORY, "http://127.0.0.1:1")
    assert fetch(lock) == [jar]


def test_another_jar_than_the_locked_one_is_refused(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY, repository)
    lock = tmp_path / "some-jars.txt"
    lock.write_text(f"org.example:above:1.0 {sha256('below')}\n")
    with pytest.raises(JarsError, match="another one than that of the lock file"):
        fetch(lock)
    assert list((tmp_path / "tools").rglob("*.jar")) == []


def test_a_lock_has_all_that_a_jar_needs(repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository is the mirror in Maven's own settings here."""
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        "<settings xmlns='http://maven.apache.org/SETTINGS/1.2.0'><mirrors>"
        f"<mirror><id>m</id><mirrorOf>*</mirrorOf><url>{repository}</url></mirror></mirrors></settings>"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(REPOSITORY, raising=False)
    assert lock_lines("org.example:above:1.0") == [
        f"org.example:above:1.0 {sha256('above')}",
        f"org.example:below:1.0 {sha256('below')}",
    ]


def test_a_jar_that_is_not_there_is_named(repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY, repository)
    lock = tmp_path / "some-jars.txt"
    lock.write_text(f"org.example:beside:1.0 {sha256('above')}\n")
    with pytest.raises(JarsError, match=f"org.example#beside.*{REPOSITORY}"):
        fetch(lock)
