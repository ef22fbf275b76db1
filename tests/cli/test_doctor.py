from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from raceway.cli import bus, doctor
from raceway.cli.app import app
from raceway.cli.doctor import Finding
from raceway.cli.saved_buses import SavedBus, SavedBuses, write_buses
from raceway.client import sync
from raceway.journal.files import Files
from raceway.journal.lock import FolderLock
from raceway.server.running import RUNNING_FILE, Running, maybe_running
from tests.cli.test_certificates import issue
from tests.rigs.archives import archive_all, fill
from tests.rigs.journal import Rig
from tests.rigs.ports import free_port_base
from tests.rigs.server import running_server


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with private rights, and ports that nobody holds."""
    monkeypatch.setenv("RACEWAY_LISTEN__PORT_BASE", str(free_port_base()))
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder


def find(folder: Path, subject: str) -> list[Finding]:
    return [finding for finding in doctor.examine(folder, None) if finding.subject == subject]


def test_a_machine_where_all_is_well_ends_with_status_0(data: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--data", str(data), "--json"])
    assert result.exit_code == 0
    findings = json.loads(result.stdout)
    assert {finding["verdict"] for finding in findings} <= {"ok", "warning"}
    assert {"python", "uvloop", "settings", "disk space", "bus", "journal"} <= {f["subject"] for f in findings}


def test_a_port_in_use_is_bad_and_names_its_holder(data: Path) -> None:
    port = int(os.environ["RACEWAY_LISTEN__PORT_BASE"])
    with socket.create_server(("127.0.0.1", port)):
        (finding,) = find(data, f"port {port}")
        assert finding.verdict == "bad"
        assert f"process {os.getpid()} " in finding.text
        assert CliRunner().invoke(app, ["doctor", "--data", str(data)]).exit_code == 1
    assert find(data, f"port {port}")[0].verdict == "ok"


def test_a_bad_setting_is_told_and_ends_the_look(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEWAY_JOURNAL__BLOCK_ROWS", "no")
    findings = list(doctor.examine(data, None))
    assert findings[-1].verdict == "bad"
    assert "journal.block_rows" in findings[-1].text


def test_a_folder_that_others_may_read_is_a_warning(data: Path) -> None:
    data.chmod(0o755)
    (finding,) = find(data, "data folder")
    assert finding.verdict == "warning"
    assert "chmod 700" in finding.text


def test_an_old_name_of_a_setting_is_a_warning(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN", "s3cret")
    (finding,) = [finding for finding in find(data, "settings") if finding.verdict == "warning"]
    assert "is now called security.admin_token" in finding.text


def test_too_little_space_is_bad(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "space", lambda *_: (1024, 2**40))
    assert find(data, "disk space")[0].verdict == "bad"


def test_a_nearly_full_disk_is_a_warning(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "space", lambda *_: (2**36, 2**40))
    (finding,) = find(data, "disk space")
    assert (finding.verdict, "nearly full" in finding.text) == ("warning", True)


def test_who_holds_the_lock_is_told_without_touching_it(data: Path) -> None:
    lock = FolderLock(data)
    (finding,) = find(data, "bus")
    lock.release()
    assert finding.verdict == "warning"
    assert f"process {os.getpid()} holds" in finding.text
    assert find(data, "bus")[0].verdict == "ok"


def test_a_certificate_that_ends_soon_or_is_broken_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = issue(data, "bus")
    monkeypatch.setenv("RACEWAY_LISTEN__TLS_CERTIFICATE", certificate)
    monkeypatch.setenv("RACEWAY_LISTEN__TLS_KEY", key)
    assert find(data, "certificate")[0].verdict == "ok"
    Path(key).write_text("nothing")
    assert find(data, "certificate")[0].verdict == "bad"


def test_a_running_bus_is_seen_with_its_doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(tmp_path / "data") as server:
        monkeypatch.setenv("RACEWAY_LISTEN__PORT_BASE", str(server.port_base))
        findings = list(doctor.examine(server.data, None))
    told = {finding.subject: finding for finding in findings}
    assert f"process {server.pid} runs on" in told["bus"].text
    assert told["readiness"] == Finding("ok", "readiness", "ok")
    assert "held by the bus" in told[f"port {server.port_base}"].text
    assert all(finding.verdict != "bad" for finding in findings)


def test_the_ports_of_a_running_bus_are_checked_not_those_of_the_settings(data: Path) -> None:
    """The settings' ports are held by somebody else, which does not concern a bus that runs on others."""
    address = ("127.0.0.1", int(os.environ["RACEWAY_LISTEN__PORT_BASE"]))
    with socket.create_server(address), running_server(data) as server:
        findings = list(doctor.examine(data, None))
    ports = {finding.subject: finding for finding in findings if finding.subject.startswith("port ")}
    assert f"port {server.port('console')}" in ports
    assert f"port {address[1]}" not in ports
    assert {finding.verdict for finding in ports.values()} == {"ok"}


def test_a_port_that_the_running_bus_does_not_hold_is_bad(data: Path) -> None:
    with running_server(data) as server:
        file = data / RUNNING_FILE
        file.write_text(file.read_text().replace(f":{server.port('zbus')}", ":9"))
        (finding,) = find(data, "port 9")
    assert finding == Finding("bad", "port 9", "zbus of the bus, but held by no process")


def test_a_bus_is_checked_by_its_address(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        url = f"http://127.0.0.1:{server.port('console')}"
        result = CliRunner().invoke(app, ["doctor", "--url", url, "--json"])
        findings = [Finding(**row) for row in json.loads(result.stdout)]
    assert result.exit_code == 0
    told = {finding.subject: finding for finding in findings}
    assert told["readiness"].verdict == "ok"
    assert f"127.0.0.1:{server.port('zbus')} accepts connections" in told[f"port {server.port('zbus')}"].text
    assert "data folder" not in told
    (readiness,) = [each for each in doctor.examine_remote(url) if each.subject == "readiness"]
    assert readiness.verdict == "bad"


@pytest.mark.parametrize("how", ["after", "before", "variable", "context", "in use"])
def test_a_bus_is_checked_however_it_is_named(data: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    with socket.create_server(("127.0.0.1", free_port_base())) as silent:
        url = f"raceway://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("XDG_CONFIG_HOME", str(data))
        write_buses(SavedBuses("silent" if how == "in use" else "", {"silent": SavedBus(url)}))
        if how == "variable":
            monkeypatch.setenv("RACEWAY_URL", url)
        before = ["--url", url] if how == "before" else ["--context", "silent"] if how == "context" else []
        after = ["--url", url] if how == "after" else []
        result = CliRunner().invoke(app, [*before, "doctor", *after, "--timeout", "0.2", "--json"])
    assert result.exit_code == 1
    (readiness,) = [Finding(**row) for row in json.loads(result.stdout) if row["subject"] == "readiness"]
    assert "0.2 s have passed" in readiness.text


def test_the_url_of_a_wire_in_a_variable_does_not_hide_the_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEWAY_URL", "mb://127.0.0.1:9")
    result = CliRunner().invoke(app, ["doctor", "--data", str(data), "--json"])
    assert result.exit_code == 0
    assert "disk space" in {row["subject"] for row in json.loads(result.stdout)}
    refused = CliRunner().invoke(app, ["doctor", "--url", "mb://127.0.0.1:9"])
    assert (refused.exit_code, "names one wire" in refused.stderr) == (2, True)


def test_a_process_with_the_id_of_a_killed_bus_is_not_taken_for_it(data: Path) -> None:
    (data / RUNNING_FILE).write_bytes(msgspec.json.encode(Running(1, {"console": "http://127.0.0.1:9"}, began=0)))
    (finding,) = find(data, "bus")
    assert finding == Finding("ok", "bus", f"none runs on {data}")


def test_a_bus_that_asks_for_a_token_is_checked_with_it(tmp_path: Path) -> None:
    token = "t" * 32
    settings: dict[str, Any] = {"RACEWAY_SECURITY__ENABLED": "true", "RACEWAY_SECURITY__TOKEN_SECRET": "s" * 32}
    with running_server(tmp_path / "data", **settings, RACEWAY_SECURITY__ADMIN_TOKEN=token) as server:
        url = f"http://127.0.0.1:{server.port('console')}"
        without, given = (list(doctor.examine_remote(url, each)) for each in ("", token))
    assert [each.subject for each in without if "name a token with --token" in each.text] == ["subscription", "ports"]
    assert {each.verdict for each in given if each.subject.startswith("port ")} == {"ok"}


def test_rows_that_are_gone_are_bad(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}") as client:
            bags = client.subscribe("bags")
            client.publish_many("bags", ["x" * 200] * 2000)
            bags.close()
        server.stop()
    assert [finding.verdict for finding in find(server.data, "journal")] == ["ok"]
    (segment,) = server.data.glob("segment-*.blocks")
    with segment.open("r+b") as file:
        file.write(bytes(400))  # the head of the first block: what it held cannot even be counted
    for index in server.data.glob("*.idx"):
        index.unlink()
    assert any(finding.verdict == "bad" for finding in find(server.data, "journal"))


def test_figures_that_somebody_should_know_are_told() -> None:
    figures = dict.fromkeys(doctor.TELLING, 0.0)
    assert list(doctor._figures(figures)) == []
    (finding,) = doctor._figures(figures | {"raceway_journal_missing_rows": 1200.0})
    assert finding == Finding("bad", "since start", "1,200 rows are lost")


def test_every_telling_figure_is_a_figure_of_the_bus(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        running = maybe_running(server.data)
        assert running is not None
        assert set(doctor.TELLING) <= set(bus.read_metrics(running.urls["console"]))


def test_the_archive_is_told_of_and_whether_it_can_be_reached(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(data, "archive") == []
    place = tmp_path / "archive"
    rig = Rig(data, segment_bytes=4000, archive=str(place), seal_keep_s=0.0)
    fill(rig, 30)
    segments = archive_all(rig)
    fill(rig, 30)
    rig.close()
    (warned, found) = find(data, "archive")
    assert (warned.verdict, found.verdict) == ("warning", "ok")
    assert f"rows are in {place}, but journal.archive is not set" in warned.text
    monkeypatch.setenv("RACEWAY_JOURNAL__ARCHIVE", str(place))
    (found,) = find(data, "archive")
    assert found.text.startswith(f"{place}: {segments} segments, ")
    monkeypatch.setenv("RACEWAY_JOURNAL__ARCHIVE", "s3://nowhere/x")
    monkeypatch.setenv("RACEWAY_STORAGE__ENDPOINT", "http://127.0.0.1:9")
    (found,) = find(data, "archive")
    assert found.verdict == "bad"
    assert "s3://nowhere/x" in found.text
