"""A disk that fills up: warned of, then publishes are refused before the reserve, and state is still written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from raceway.errors import DiskFullError
from raceway.journal.read.reader import Reader
from tests.recovery.test_process_faults import can_mount
from tests.rigs.http_door import get, post
from tests.rigs.journal import Rig
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.mb_wire import TcpPeer, connect_socket
from tests.rigs.server import running_server, wait_until
from tests.rigs.zbus_wire import dial_server

MIB = 1024 * 1024
DISK = 100 * MIB


class SizedFiles(FaultyFiles):
    """A disk of which so much is said to be free."""

    said = DISK

    def space(self, folder: Path) -> tuple[int, int]:
        return self.said, DISK


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "data", SizedFiles(), watch_s=0.01, reserve_bytes=4 * MIB)
    yield made
    made.close()


def say_free(rig: Rig, size: int, status: str) -> None:
    assert isinstance(rig.files, SizedFiles)
    rig.files.said = size
    rig.pump(lambda: rig.journal.health().free_bytes == size and rig.journal.health().status == status)


def test_a_nearly_full_disk_is_a_warning_and_no_more(rig: Rig) -> None:
    say_free(rig, 11 * MIB, "ok")
    assert rig.journal.health().warnings == ()
    say_free(rig, 10 * MIB, "ok")
    (warning,) = rig.journal.health().warnings
    assert "90% full: 10.0 MiB of 100.0 MiB are free" in warning
    rig.keep("t", b"taken")
    assert rig.answers == [None]


def test_below_the_reserve_rows_are_refused_and_state_is_kept_until_there_is_room(rig: Rig) -> None:
    say_free(rig, 4 * MIB - 1, "low_space")
    with pytest.raises(DiskFullError, match="no space left on the journal's disk beyond the reserve"):
        rig.publish("t", b"refused")
    told: list[object] = []
    rig.journal.set_state("cursors", "c", {"topic": "t", "offset": 7})
    rig.journal.flush()
    rig.journal.after_commit(told.append)
    rig.pump(lambda: told == [None])
    say_free(rig, 4 * MIB, "low_space")  # a little more does not end it: the two states would take turns
    say_free(rig, 5 * MIB, "ok")
    rig.keep("t", b"taken")
    rig.restart(SizedFiles())
    assert rig.journal.state.get("cursors", "c") == {"topic": "t", "offset": 7}


def test_a_disk_of_any_size_has_room_for_something(tmp_path: Path) -> None:
    """The reserve is no more than a twentieth of it."""
    files = SizedFiles()
    files.said = DISK // 20
    rig = Rig(tmp_path / "data", files, watch_s=0.01, reserve_bytes=DISK)
    rig.keep("t", b"x")
    assert rig.answers == [None]
    say_free(rig, DISK // 20 - 1, "low_space")
    rig.close()


def kept_cursor(data: Path) -> int:
    """Where the queue's cursor stands in the journal."""
    reader = Reader(data)
    rows = [row for batch in reader.read(0, columns=["kind", "payload"]) for row in batch.to_pylist()]
    reader.close()
    states = [json.loads(row["payload"]) for row in rows if row["kind"] == "control"]
    return max((value["offset"] for section, _, value in states if section == "cursors"), default=0)


@pytest.mark.skipif(not can_mount(), reason="a small file system needs the right to mount one")
def test_a_bus_on_a_disk_that_fills_up_keeps_cursors_and_recovers_by_itself(tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "raceway-test", str(mount)], check=True)
    ballast = mount / "ballast"
    try:
        with running_server(mount / "data", RACEWAY_JOURNAL__WATCH_S=0.1, RACEWAY_JOURNAL__WARN_USED=0.9) as server:
            with dial_server(server) as client:
                client.create("q")
                for number in range(4):
                    client.produce("q", b"%d" % number)
                ballast.write_bytes(bytes(37 * MIB))
                wait_until(lambda: get(server, "/readyz").json()["warnings"], what="the warning")
                assert get(server, "/readyz").status == 200
                assert post(server, "/topics/t", b"taken").status == 201
                ballast.write_bytes(bytes(38 * MIB + MIB // 2))
                wait_until(lambda: get(server, "/readyz").status == 503, what="the refusal")
                assert get(server, "/readyz").json()["status"] == "low_space"
                refused = post(server, "/topics/t", b"refused")
                assert (refused.status, refused.code) == (503, "disk_full")
                with TcpPeer(connect_socket(server.port("tcp"))) as peer:
                    assert peer.publish("t", b"refused").json()["error"]["code"] == "SERVICE_UNAVAILABLE"
                assert [client.take("q").body for _ in range(3)] == [b"0", b"1", b"2"]
                wait_until(lambda: kept_cursor(server.data) == 3, what="the cursor to be kept")
            assert server.metric("raceway_journal_free_bytes") < 2 * MIB
            assert "disk nearly full" in server.stderr
            server.kill()
            server.start()
            ballast.unlink()
            wait_until(lambda: get(server, "/readyz").status == 200, what="room again")
            assert post(server, "/topics/t", b"taken again").status == 201
            with dial_server(server) as client:
                assert client.take("q").body == b"3"
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
