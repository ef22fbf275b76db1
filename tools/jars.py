"""Jars by their coordinates, fetched once with Ivy, which comes with Spark, and held to the hashes of a lock file.

A lock file has one `group:artifact:version sha256` a line. They come from Maven Central, as Ivy knows it; from the
mirror of it in `~/.m2/settings.xml`, if there is one; or from the repository that DEFAULT_ARTIFACT_REPOSITORY names,
the variable that Spark's own resolver reads.

    python -m tools.jars org.apache.kafka:kafka_2.13:4.3.1 org.apache.logging.log4j:log4j-slf4j-impl:2.25.4 \\
        > tools/kafka-jars.txt                                       lock jars and all that they need
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

FOLDER = Path(__file__).parent.parent / ".tools"
REPOSITORY = "DEFAULT_ARTIFACT_REPOSITORY"
FETCH_S = 400
# Ids by which `mirrorOf` names Maven Central, alone or among others.
MIRRORS = {"*", "central", "external:*", "external:http:*"}
# Ivy's names of parts of a module: the jar itself, or with what it needs to run.
ALONE, WITH_ALL = "master", "default"


class JarsError(Exception):
    """Jars that could not be fetched, or are not those of the lock file; the text says what to do."""


def fetch(lock: Path) -> list[Path]:
    """Return the jars that a lock file lists, fetched if they are not here yet. Raises JarsError."""
    text = lock.read_text("utf-8")
    folder = FOLDER / f"{lock.stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    wanted = dict(line.split() for line in text.splitlines())
    jars = {coordinates: folder / _file_name(coordinates) for coordinates in wanted}
    with _alone(folder):
        missing = [coordinates for coordinates, jar in jars.items() if not jar.exists()]
        if missing:
            with _resolved(missing, ALONE) as found:
                for coordinates in missing:
                    _take(coordinates, wanted[coordinates], found.get(coordinates), jars[coordinates])
    return list(jars.values())


def lock_lines(*coordinates: str) -> list[str]:
    """Return the lines of a lock file for jars and all that they need. Raises JarsError."""
    with _resolved(coordinates, WITH_ALL) as found:
        return sorted(f"{name} {_sha256(jar)}" for name, jar in found.items())


def java() -> str:
    """Return the command of Java: that of JAVA_HOME, or the first one on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _take(coordinates: str, sha256: str, found: Path | None, target: Path) -> None:
    """Move a jar that was fetched to its place."""
    if found is None:
        raise JarsError(f"{coordinates} is not in the repository; {REPOSITORY} names another one")
    if (actual := _sha256(found)) != sha256:
        raise JarsError(f"{coordinates} is another one than that of the lock file: its sha256 is {actual}")
    # Into the same file system first, so that nobody sees half of it.
    shutil.copy(found, partial := target.with_suffix(".part"))
    partial.replace(target)


@contextmanager
def _resolved(wanted: Iterable[str], part: str) -> Iterator[dict[str, Path]]:
    """Fetch modules into a temporary folder; yield coordinates to jars."""
    with tempfile.TemporaryDirectory(prefix="jars-") as name:
        folder = Path(name)
        _run_ivy(folder, wanted, part)
        jars = sorted((folder / "jars").rglob("*.jar"))
        yield {":".join(jar.relative_to(folder / "jars").parts[:3]): jar for jar in jars}


def _run_ivy(folder: Path, wanted: Iterable[str], part: str) -> None:
    (folder / "ivy.xml").write_text(_module(wanted, part), "utf-8")
    command = [
        java(), "-jar", str(_ivy()), "-warn", "-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "cache"),
        "-retrieve", str(folder / "jars" / "[organisation]" / "[artifact]" / "[revision]" / "[artifact].[ext]"),
    ]  # fmt: skip
    if repository := _maybe_repository():
        (folder / "settings.xml").write_text(_settings(repository), "utf-8")
        command += ["-settings", str(folder / "settings.xml")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except FileNotFoundError as error:
        raise JarsError(f"there is no Java ({command[0]}): install Java 17 or newer, or set JAVA_HOME") from error
    except subprocess.TimeoutExpired as error:
        raise JarsError(f"the repository sent no jars within {FETCH_S} s; {REPOSITORY} names another one") from error
    if done.returncode:
        said = "; ".join(line.strip(" \t:") for line in (done.stdout + done.stderr).splitlines() if "not found" in line)
        raise JarsError(f"jars could not be fetched ({said or done.stderr[-500:]}); {REPOSITORY} names a repository")


def _module(wanted: Iterable[str], part: str) -> str:
    """Return a module of Ivy that needs the wanted jars."""
    lines = []
    for coordinates in wanted:
        group, artifact, version = map(quoteattr, coordinates.split(":"))
        lines.append(f"<dependency org={group} name={artifact} rev={version} conf='default->{part}'/>")
    return (
        "<ivy-module version='2.0'><info organisation='raceway' module='jars'/>"
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _settings(repository: str) -> str:
    return (
        "<ivysettings><settings defaultResolver='chosen'/><resolvers>"
        f"<ibiblio name='chosen' m2compatible='true' root={quoteattr(repository)}/></resolvers></ivysettings>"
    )


def _maybe_repository() -> str | None:
    """Return the repository that the environment or Maven's own settings name; None: Maven Central."""
    if named := os.environ.get(REPOSITORY):
        return named
    settings = Path.home() / ".m2" / "settings.xml"
    if not settings.exists():
        return None
    for mirror in ElementTree.fromstring(settings.read_bytes()).iterfind(".//{*}mirror"):
        of, url = mirror.findtext("{*}mirrorOf") or "", mirror.findtext("{*}url")
        if url and mirror.findtext("{*}blocked") != "true" and MIRRORS & {each.strip() for each in of.split(",")}:
            return url.strip()
    return None


def _ivy() -> Path:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise JarsError("jars are fetched by the resolver of Spark: pip install 'raceway[spark]'")
    return next((Path(spark.origin).parent / "jars").glob("ivy-*.jar"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder; who comes second waits, and finds everything done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _file_name(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    print("\n".join(lock_lines(*sys.argv[1:])))
