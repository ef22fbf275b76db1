"""A child process that is kept running: real processes, short pauses."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from raceway.journal.lock import is_alive
from raceway.server import supervising as module
from raceway.server.supervising import supervising
from tests.rigs.server import wait_until

PAUSE_S = 0.05


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def noted(file: Path, then: str) -> list[str]:
    """A child that writes down its process id, then does this."""
    return python(f"import os, sys, time\nopen({str(file)!r}, 'a').write(f'{{os.getpid()}}\\n')\n{then}")


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(wait_until, condition)


def supervised(command: list[str], during: Callable[[], Any], restart_s: float = PAUSE_S) -> list[dict[str, Any]]:
    """Run it until this is so; what was logged."""
    return supervised_until(command, lambda _: during(), restart_s)


def supervised_until(
    command: list[str],
    during: Callable[[list[dict[str, Any]]], Any],
    restart_s: float = PAUSE_S,
    max_failures: int = 0,
) -> list[dict[str, Any]]:
    structlog.reset_defaults()
    with capture_logs() as captured:
        records: list[dict[str, Any]] = captured  # type: ignore[assignment]

        async def main() -> None:
            async with supervising(command, "child", restart_s, max_failures):
                await until(lambda: during(records))

        asyncio.run(main())
    return records


def test_a_child_that_ends_is_started_again_and_its_last_words_are_told(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    records = supervised(noted(file, "sys.exit('raceway: no disk')"), lambda: len(pids(file)) >= 3)
    ended = [record for record in records if record["log_level"] == "error"]
    assert ended[0]["event"] == "child ended; restarting"
    assert (ended[0]["status"], ended[0]["said"]) == (1, "raceway: no disk")
    assert [record["in_s"] for record in ended[:2]] == [PAUSE_S, 2 * PAUSE_S]
    assert not any(is_alive(pid) for pid in pids(file))


def test_a_child_that_was_well_for_long_is_not_made_to_wait_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEADY_S", 0.0)
    file = tmp_path / "pids"
    records = supervised(noted(file, "sys.exit(3)"), lambda: len(pids(file)) >= 3)
    assert {record["in_s"] for record in records if record["log_level"] == "error"} == {PAUSE_S}


def is_left_alone(records: list[dict[str, Any]]) -> bool:
    return any(record["event"] == "child failed too often; not restarted" for record in records)


@pytest.mark.parametrize("steady_s", [60.0, 0.0])
def test_a_child_that_fails_again_and_again_is_left_alone_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady_s: float
) -> None:
    """Also one that works for long before it comes to what it does not get past."""
    monkeypatch.setattr(module, "STEADY_S", steady_s)
    file = tmp_path / "pids"
    records = supervised_until(noted(file, "sys.exit('raceway: too much')"), is_left_alone, max_failures=4)
    assert len(pids(file)) == 4
    assert (records[-1]["said"], records[-1]["failures"], records[-1]["status"]) == ("raceway: too much", 4, 1)


def test_failures_with_other_words_after_a_steady_run_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEADY_S", 0.0)
    file = tmp_path / "pids"
    command = noted(file, "sys.exit(f'raceway: {os.getpid()}')")
    records = supervised_until(command, lambda _: len(pids(file)) >= 6, max_failures=3)
    assert not is_left_alone(records)


def test_what_the_child_says_becomes_records_however_long_a_line_is(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    said = "sys.stderr.write('x' * 300_000 + '\\nbatch 1\\n')\nsys.stderr.flush()\n"
    command = noted(file, f"{said}time.sleep(60)")
    records = supervised_until(command, lambda told: told[-1:] and told[-1].get("said") == "batch 1")
    assert [record["event"] for record in records] == ["child started", "child output", "child output"]
    assert set(records[1]["said"]) == {"x"}


def test_a_stop_asks_first_and_waits_for_what_the_child_has_to_finish(tmp_path: Path) -> None:
    file, done = tmp_path / "pids", tmp_path / "done"
    finish = f"lambda *_: (time.sleep(0.2), open({str(done)!r}, 'w').close(), sys.exit(0))"
    waiting = f"import signal\nsignal.signal(signal.SIGTERM, {finish})\nprint('set', file=sys.stderr, flush=True)\n"
    mark = tmp_path / "set"
    command = noted(file, f"{waiting}open({str(mark)!r}, 'w').close()\ntime.sleep(60)")
    supervised(command, mark.exists)
    assert done.exists()


def test_a_child_that_does_not_stop_is_killed_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.2)
    file = tmp_path / "pids"
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\n"
    deaf += f"open({str(file)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(60)"
    records = supervised(noted(file, deaf), lambda: len(pids(file)) >= 3)
    assert records[-1]["event"] == "child did not stop; killed"
    wait_until(lambda: not any(_runs(pid) for pid in pids(file)), what="both are gone")


def _runs(pid: int) -> bool:
    """A process that ended and whom nobody has asked for its status does not count."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_child_goes_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    child = noted(file, "from raceway.server.tethered import stop_at_eof\nstop_at_eof()\ntime.sleep(60)")
    parent = (
        "import asyncio\nfrom raceway.server.supervising import supervising\n"
        f"async def main():\n    async with supervising({child!r}, 'x', 1):\n        await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen(python(parent), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: pids(file), 20, "the child")
        finally:
            process.send_signal(signal.SIGKILL)
    wait_until(lambda: not _runs(pids(file)[0]), 20, "the child goes too")


def test_ctrl_c_in_the_terminal_does_not_reach_the_child(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    groups: list[int] = []

    def is_noted() -> bool:
        if pids(file):
            groups.append(os.getpgid(pids(file)[0]))
        return bool(groups)

    supervised(noted(file, "time.sleep(60)"), is_noted)
    assert groups[0] != os.getpgid(0)


def test_a_stop_while_the_child_is_being_started_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), supervising(noted(tmp_path / "pids", "time.sleep(60)"), "the child", PAUSE_S):
            await asyncio.sleep(0)  # it begins to start

    asyncio.run(main())
    assert not any(_runs(pid) for pid in pids(tmp_path / "pids"))


def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "program"
    records = supervised_until([str(program)], lambda told: len([r for r in told if r["log_level"] == "error"]) == 2)
    assert [str(record["said"]).endswith(f"{str(program)!r}") for record in records[:2]] == [True, True]
