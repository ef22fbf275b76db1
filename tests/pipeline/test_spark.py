from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline import spark as session_module
from raceway.pipeline.folders import Folders
from tests.pipeline.conftest import SECRET


def fake_java(folder: Path, version: str) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "16"])
def test_a_java_that_is_too_old_is_named_with_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match="needs Java 17 or newer and found Java") as failure:
        session_module.check_java()
    assert "apt-get install default-jre-headless" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_no_java_at_all_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match="needs Java 17 or newer and found none: on Debian"):
        session_module.check_java()


def test_a_new_java_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "21.0.4")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    session_module.check_java()


def test_without_the_extra_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"pip install 'raceway\[spark\]'"):
        session_module.check_installed()


@pytest.mark.parametrize(
    ("master", "started"),
    [
        ("local", "local[1,3]"),
        ("local[2]", "local[2,3]"),
        ("local[*]", "local[*,3]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_try_a_task_again(master: str, started: str) -> None:
    assert session_module.with_retries(master) == started


def test_cores_are_read_from_the_master() -> None:
    assert session_module.cores("local[3]") == session_module.cores("local[3,5]") == 3
    assert session_module.cores("local[*]") == session_module.cores("spark://host:7077") == os.cpu_count()


def test_children_write_to_the_file_and_we_do_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with session_module.standard_error_to(tmp_path / "log"):
        os.system("echo noise >&2")
    os.system("echo sound >&2")
    assert (tmp_path / "log").read_text() == "noise\n"
    assert capfd.readouterr().err == "sound\n"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Europe/London", "+02:00", ""])
def test_a_session_in_another_time_zone_is_refused_before_spark_starts(tmp_path: Path, zone: str) -> None:
    with pytest.raises(ConfigError, match="must be UTC, not") as failure:
        session_module.session(Folders(tmp_path), extra={"spark.sql.session.timeZone": zone})
    assert failure.value.key == "spark.sql.session.timeZone"
    assert not (tmp_path / "pipeline").exists()


@pytest.mark.parametrize("zone", ["UTC", "utc", "Etc/UTC", "Z", "GMT"])
def test_other_names_of_utc_are_fine(zone: str) -> None:
    session_module.check_time_zone(zone)


def test_keys_of_a_store_are_told_to_hadoop_and_are_on_no_command_line(spark: SparkSession) -> None:
    ((name, value),) = SECRET.items()
    assert spark.sparkContext._jsc.hadoopConfiguration().get(name.removeprefix("spark.hadoop.")) == value
    assert value not in dict(spark.sparkContext.getConf().getAll()).values()
    lines = [shown for each in psutil.Process().children(recursive=True) if (shown := command_line(each))]
    assert any("java" in line for line in lines)
    assert not [line for line in lines if value in line]


def command_line(process: psutil.Process) -> str:
    """What everybody sees of a process; nothing if it has ended meanwhile."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def test_what_is_a_key_goes_by_its_name() -> None:
    assert settings_are_secret("fs.s3a.access.key", "fs.azure.account.key.me.dfs.core.windows.net", "fs.x.password")
    assert not settings_are_secret("fs.s3a.endpoint")
    assert not session_module.is_secret("spark.executor.secret"), "another one than Hadoop's"


def settings_are_secret(*names: str) -> bool:
    return all(session_module.is_secret(f"spark.hadoop.{name}") for name in names)
