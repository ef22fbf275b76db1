"""A folder, segment or lock that is removed, renamed or replaced beside a running bus: it notices, and stops."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raceway.errors import LockedError, ReadOnlyError
from raceway.journal.integrity.verify import verify
from raceway.journal.query.inspect import survey
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import danube_wire
from tests.rigs.http_door import get, post
from tests.rigs.journal import Rig
from tests.rigs.mb_wire import TcpPeer, connect_socket
from tests.rigs.seneca_wire import post as seneca_post
from tests.rigs.seneca_wire import seed
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import dial_server


def active(data: Path) -> Path:
    return max(data.glob("segment-*.blocks"))


def replace_lock(data: Path) -> None:
    (data / "other").write_text("")
    (data / "other").rename(data / "lock")


def rename_folder(data: Path) -> None:
    data.rename(data.with_name("moved"))


def replace_folder(data: Path) -> None:
    rename_folder(data)
    shutil.copytree(data.with_name("moved"), data)


CHANGES: dict[str, Callable[[Path], object]] = {
    "folder removed": shutil.rmtree,
    "folder renamed": rename_folder,
    "folder replaced": replace_folder,
    "segment removed": lambda data: active(data).unlink(),
    "segment renamed": lambda data: active(data).rename(data / "aside"),
    "lock removed": lambda data: (data / "lock").unlink(),
    "lock replaced": replace_lock,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_journal_whose_files_are_not_in_their_place_takes_nothing_more(tmp_path: Path, change: str) -> None:
    rig = Rig(tmp_path / "data", watch_s=0.02)
    rig.keep("t", b"before")
    CHANGES[change](rig.folder)
    rig.pump(lambda: rig.journal.health().status == "read_only")
    assert "removed" in rig.journal.health().reason
    with pytest.raises(ReadOnlyError):
        rig.publish("t", b"after")
    with pytest.raises(ReadOnlyError):
        rig.journal.set_state("s", "key", 1)
    rig.close()


def test_a_roll_looks_as_well(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", watch_s=3600, segment_bytes=1000)
    rig.keep("t", b"before")
    (rig.folder / "lock").unlink()
    rig.keep("t", bytes(1000))
    rig.pump(lambda: rig.journal.health().status == "read_only")
    rig.close()


@pytest.mark.parametrize("change", ["folder renamed", "lock removed"])
def test_within_two_seconds_nothing_is_promised_any_more(tmp_path: Path, change: str) -> None:
    """With the settings as they are."""
    with running_server(tmp_path / "data") as server:
        assert post(server, "/topics/t", b"before").status == 201
        with dial_server(server) as client, danube_wire(server) as wire:
            client.create("made")
            producer = wire.producer("/default/t")
        CHANGES[change](server.data)
        began = time.monotonic()
        wait_until(lambda: get(server, "/readyz").status == 503, 10, "/readyz to say so")
        assert time.monotonic() - began < 2.5  # two seconds, and a busy machine
        ready = get(server, "/readyz").json()
        assert ready["status"] == "read_only"
        assert "removed" in ready["reason"]
        assert_every_wire_refuses(server, producer)
        assert server.metric("raceway_journal_writable") == 0
        assert "was removed, renamed or replaced" in server.stderr or "was removed while" in server.stderr


def assert_every_wire_refuses(server: Server, producer: int) -> None:
    refused = post(server, "/topics/t", b"after")
    assert (refused.status, refused.code) == (503, "read_only")
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        assert peer.publish("t", b"after").json()["error"]["code"] == "SERVICE_UNAVAILABLE"
    with dial_server(server) as client:
        assert client.admin("create_mq", '{"mqName": "new", "mqMode": "1"}').status == 503
        assert client.ask("produce", b"after", mq="made").status == 503
    with danube_wire(server) as wire, pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        wire.send(producer, "/default/t")
    told = seneca_post(server, seed({"cmd": "t"}, sync=False))
    assert (told.status, told.json()["code"]) == (500, "overloaded")


@pytest.mark.parametrize("change", ["folder removed", "segment removed"])
def test_not_even_the_next_publish_is_acknowledged_into_a_removed_segment(tmp_path: Path, change: str) -> None:
    """However long the bus takes to look around."""
    with running_server(tmp_path / "data", RACEWAY_JOURNAL__WATCH_S=3600) as server:
        assert post(server, "/topics/t", b"before").status == 201
        CHANGES[change](server.data)
        refused = post(server, "/topics/t", b"after")
        assert (refused.status, refused.code) == (503, "read_only")


def test_without_the_lock_file_a_second_bus_is_refused_all_the_same(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", RACEWAY_JOURNAL__WATCH_S=3600) as first:
        (first.data / "lock").unlink()
        second = Server(first.data, tmp_path, {})
        second.spawn()
        assert second.process.wait(20) == 1
        assert second.stdout == ""
        assert f"in use by process {first.pid}" in second.stderr
        assert post(first, "/topics/t", b"still there").status == 201


def test_readers_and_tools_work_beside_the_locked_folder(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        assert post(server, "/topics/t", b"x").status == 201
        assert verify(server.data).status == "good"
        assert survey(server.data).damage == []
        with pytest.raises(LockedError, match=f"in use by process {server.pid}"):
            verify(server.data, repair=True)
        server.stop()
        assert verify(server.data, repair=True).status == "good"
