"""Faults that meet the whole process: a second one on its folder, a full disk, a stop of its clock, damaged files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.ledger import ASIDE, Ledger, Publisher, Sink, read_rows
from tests.rigs.mb_wire import TcpPeer, connect_socket, new_id
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server, wait_until

# A disk of this size is nearly filled by the ballast; what is left holds some hundred messages.
DISK_BYTES, BALLAST_BYTES = 8 << 20, 5 << 20


def publish_some(ledger: Ledger, server: Server, count: int, topics: list[str], window: int = 200) -> None:
    """At least `count` acknowledged publishes on one connection."""
    with Sink(server.port("tcp"), "fault.#"):
        publisher = Publisher(ledger.new_stream(), server.port("tcp"), topics, seed=count, window=window)
        wait_until(lambda: len(publisher.stream.acknowledged) >= count, 30, f"{count} acknowledgements")
        publisher.finish()


# ---- one owner ------------------------------------------------------------------------------------------------------


def test_a_second_process_on_the_same_folder_refuses_and_leaves_the_first_unharmed(tmp_path: Path) -> None:
    ledger = Ledger()
    with running_server(tmp_path / "data") as first:
        publish_some(ledger, first, 100, ["fault.owner"])
        second = Server(first.data, tmp_path, {})
        second.spawn()
        assert second.process.wait(15) != 0
        assert second.stdout == ""
        complaints = [line for line in second.stderr.splitlines() if line.strip()]
        assert len(complaints) == 1, second.stderr
        assert f"in use by process {first.pid}" in complaints[0]
        publish_some(ledger, first, 100, ["fault.owner"])
        ledger.check(first.data)


def test_the_folder_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as first:
        first.kill()
        assert (first.data / "lock").exists()
        first.start()


# ---- full or failing disk -------------------------------------------------------------------------------------------


class Disk:
    """A disk under the data folder that can be filled and freed."""

    def __init__(self, data: Path, env: dict[str, str], fill: Callable[[], None], free: Callable[[], None]) -> None:
        self.data, self.env, self.fill, self.free = data, env, fill, free


@contextmanager
def injected_disk(folder: Path) -> Iterator[Disk]:
    """The process's own writes fail while a file says so: works everywhere."""
    fault, data = folder / "fault", folder / "data"
    yield Disk(data, fault_env(fault, data), lambda: set_fault(fault, "full"), fault.unlink)


def fault_env(fault: Path, data: Path) -> dict[str, str]:
    """Makes a server meet the trouble that the file `fault` names, see faulty_disk/sitecustomize.py."""
    loaded_at_start = str(Path(__file__).parent / "faulty_disk")
    return {"PYTHONPATH": loaded_at_start, "DISK_FAULT": str(fault), "DISK_FAULT_BELOW": str(data)}


def set_fault(fault: Path, name: str) -> None:
    """At once: a half-written file would name no fault."""
    fault.with_suffix(".new").write_text(name)
    fault.with_suffix(".new").rename(fault)


@contextmanager
def mounted_disk(folder: Path) -> Iterator[Disk]:
    """A small file system of its own: the kernel says no. Needs the right to mount."""
    mount = folder / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "raceway-test", str(mount)], check=True)
    ballast = mount / "ballast"
    try:
        yield Disk(mount / "data", {}, lambda: _fill(ballast), ballast.unlink)
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def _fill(ballast: Path) -> None:
    """Take every free byte, as another program would."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "raceway-test", "/tmp"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


DISKS = [injected_disk, *([mounted_disk] if can_mount() else [])]


def is_ready(server: Server) -> bool:
    return server.http("/readyz")[0] == 200


@pytest.mark.parametrize("make_disk", DISKS, ids=lambda disk: str(disk.__name__))
def test_a_full_disk_refuses_publishes_until_space_is_back(make_disk: Any, tmp_path: Path) -> None:
    ledger = Ledger()
    with make_disk(tmp_path) as disk, running_server(disk.data, **disk.env, RACEWAY_JOURNAL__RETRY_S=0.1) as server:
        publish_some(ledger, server, 200, ["fault.disk"])
        with Sink(server.port("tcp"), "fault.#"):
            stream = ledger.new_stream()
            publisher = Publisher(stream, server.port("tcp"), ["fault.disk"], seed=1, window=200)
            wait_until(lambda: stream.acknowledged, what="an acknowledgement before the disk is full")
            disk.fill()
            wait_until(lambda: len(stream.refused) > 100, 20, "refusals")
            assert set(stream.refused.values()) == {"SERVICE_UNAVAILABLE"}
            assert_reads_go_on(server, ledger)
            disk.free()
            refused = len(stream.refused)
            before = len(stream.acknowledged)
            wait_until(lambda: len(stream.acknowledged) > before + 100, 20, "acknowledgements when space is back")
            wait_until(lambda: is_ready(server), what="/readyz to be well again")
            publisher.finish()
            assert len(stream.refused) >= refused
        ledger.check(server.data)
        server.restart()
        ledger.check(server.data)


@pytest.mark.parametrize("make_disk", DISKS, ids=lambda disk: str(disk.__name__))
def test_a_start_on_a_full_disk_serves_readers_and_waits_for_space(make_disk: Any, tmp_path: Path) -> None:
    ledger = Ledger()
    with make_disk(tmp_path) as disk, running_server(disk.data, **disk.env, RACEWAY_JOURNAL__RETRY_S=0.1) as server:
        publish_some(ledger, server, 200, ["fault.disk"])
        server.kill()
        disk.fill()
        server.start()
        assert_reads_go_on(server, ledger)
        disk.free()
        wait_until(lambda: is_ready(server), what="/readyz to be well again")
        publish_some(ledger, server, 50, ["fault.disk"])
        ledger.check(server.data)


def assert_reads_go_on(server: Server, ledger: Ledger) -> None:
    """The journal can be read, calls that store nothing are answered, and a publish without an id is refused too."""
    assert len(read_rows(server.data)) >= len(ledger.streams[0].acknowledged)
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        assert peer.ask("system.service.list").json()["services"]
        peer.subscribe(ASIDE)
        # A little may still fit: the rest of the page that the last block begins.
        answers = (peer.publish(ASIDE, b"x" * 1000).json() for _ in range(20))
        refusal = next(answer["error"] for answer in answers if "error" in answer)
        assert refusal["code"] == "SERVICE_UNAVAILABLE"
        # Copies leave before the commit: if the disk was not known to be full, there was one. Now there is none.
        peer.settled()
        peer.send(f"publish:{ASIDE}:1.0.0")
        (answer,) = peer.settled()
        assert answer.header.startswith(f"response:{ASIDE}:1.0.0:")
        assert answer.json()["error"]["code"] == "SERVICE_UNAVAILABLE"
    status, reason = server.http("/readyz")
    assert status == 503
    assert "no space" in reason.lower()
    assert "raceway_journal_writable 0.0" in server.http("/metrics")[1]


def test_a_failed_sync_ends_acknowledgements_until_a_restart(tmp_path: Path) -> None:
    ledger, fault, data = Ledger(), tmp_path / "fault", tmp_path / "data"
    with running_server(data, **fault_env(fault, data), RACEWAY_JOURNAL__RETRY_S=0.1) as server:
        publish_some(ledger, server, 200, ["fault.sync"])
        with Sink(server.port("tcp"), "fault.#"):
            stream = ledger.new_stream()
            publisher = Publisher(stream, server.port("tcp"), ["fault.sync"], seed=2, window=200)
            wait_until(lambda: stream.acknowledged, what="an acknowledgement before the fault")
            set_fault(fault, "sync")
            wait_until(lambda: stream.refused, what="a refusal")
            acknowledged = len(stream.acknowledged)
            # The kernel may have dropped the pages: a disk that seems well again proves nothing.
            fault.unlink()
            refused = len(stream.refused)
            wait_until(lambda: len(stream.refused) > refused + 200, what="further refusals")
            publisher.finish()
        assert len(stream.acknowledged) == acknowledged
        assert set(stream.refused.values()) == {"SERVICE_UNAVAILABLE"}
        assert server.http("/readyz")[0] == 503
        assert server.http("/healthz")[0] == 200
        assert read_rows(data)
        server.kill()
        server.start()
        publish_some(ledger, server, 50, ["fault.sync"])
        ledger.check(data)


# ---- stopped and continued ------------------------------------------------------------------------------------------


def test_a_process_that_was_stopped_for_a_while_goes_on_without_loss_or_repetition(tmp_path: Path) -> None:
    chosen, ledger = seeded("stopped"), Ledger()
    with running_server(tmp_path / "data") as server, Sink(server.port("tcp"), "fault.#"):
        publishers = [
            Publisher(ledger.new_stream(), server.port("tcp"), [f"fault.own{n}", "fault.shared"], n) for n in range(4)
        ]
        with (
            TcpPeer(connect_socket(server.port("tcp"))) as service,
            TcpPeer(connect_socket(server.port("tcp"))) as user,
        ):
            service.subscribe("fault.service", "request")
            for _ in range(rounds(2)):
                acknowledged = ledger.acknowledged + chosen.randrange(100, 1000)
                wait_until(lambda wanted=acknowledged: ledger.acknowledged >= wanted, 30, "load")  # type: ignore[misc]
                message_id = new_id()
                user.send(f"request:fault.service:1.0.0:{message_id}::300")
                service.next_request()
                os.kill(server.pid, signal.SIGSTOP)
                # The deadline passes while nobody is there to see it.
                with pytest.raises(TimeoutError):
                    user.receive(0.6)
                os.kill(server.pid, signal.SIGCONT)
                assert user.reply(message_id).json()["error"]["code"] == "TIMEOUT"
        for publisher in publishers:
            publisher.finish()
        ledger.check(server.data)


# ---- damaged files between two runs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def used_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ledger]:
    """A folder with sealed segments, closed ones and an active one, cleanly stopped; and what was acknowledged."""
    data, ledger = tmp_path_factory.mktemp("used") / "data", Ledger()
    small = {"RACEWAY_JOURNAL__SEGMENT_BYTES": 100_000, "RACEWAY_JOURNAL__UPKEEP_S": 0.05}
    with running_server(data, **small, RACEWAY_JOURNAL__SEAL_KEEP_S=0) as server:
        for _ in range(3):
            publish_some(ledger, server, 400, ["fault.a", "fault.b"])
        wait_until(lambda: len(list(data.glob("*.parquet"))) >= 2, 20, "two sealed segments")
        server.stop()
    with running_server(data, RACEWAY_JOURNAL__SEAL="false") as server:
        publish_some(ledger, server, 400, ["fault.a", "fault.b"])
        server.stop()
    ledger.check(data)
    return data, ledger


def newest(data: Path, pattern: str) -> Path:
    return max(data.glob(pattern))


def flip_bits(data: Path) -> None:
    """One bit in the middle of the active segment and of each sealed one."""
    for path in [newest(data, "segment-*.blocks"), *data.glob("segment-*.parquet")]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)


def remove_what_can_be_made_again(data: Path) -> None:
    for path in [*data.glob("*.idx"), *data.glob("state-*")]:
        path.unlink()


def damage_snapshots(data: Path) -> None:
    for path in data.glob("state-*"):
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")


def lose_the_commit_mark(data: Path) -> None:
    (data / "committed").unlink()


@pytest.mark.parametrize("damage", [flip_bits, remove_what_can_be_made_again, damage_snapshots, lose_the_commit_mark])
def test_damage_between_two_runs_costs_nothing_that_was_acknowledged(
    damage: Callable[[Path], None], used_folder: tuple[Path, Ledger], tmp_path: Path
) -> None:
    original, earlier = used_folder
    data, ledger = tmp_path / "data", Ledger()
    shutil.copytree(original, data)
    damage(data)
    ledger.streams = list(earlier.streams)
    with running_server(data) as server:
        assert is_ready(server)
        ledger.check(data)
        publish_some(ledger, server, 50, ["fault.a", "fault.new"])
        ledger.check(data)


def test_a_cut_tail_costs_only_the_block_that_was_cut(used_folder: tuple[Path, Ledger], tmp_path: Path) -> None:
    original, earlier = used_folder
    data = tmp_path / "data"
    shutil.copytree(original, data)
    before = read_rows(data)
    active = newest(data, "segment-*.blocks")
    os.truncate(active, active.stat().st_size - 40)
    with running_server(data) as server:
        after = read_rows(data)
        assert after == before[: len(after)]
        assert 0 < len(before) - len(after) <= 200, "more than the last block is gone"
        assert "raceway_journal_bytes_cut 0.0" not in server.http("/metrics")[1]
        late = Ledger()
        late.streams = [*earlier.streams]
        publish_some(late, server, 50, ["fault.a"])
        offsets = [row.offset for row in read_rows(data) if row.topic == "fault.a"]
        # An offset that was acknowledged once is never given again: a cut leaves a hole, not a second owner.
        assert len(set(offsets)) == len(offsets)
        assert offsets == sorted(offsets)
