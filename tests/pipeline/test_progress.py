from __future__ import annotations

import json
import os
from pathlib import Path

from raceway.model.progress import LastBatch, PipelineProgress
from raceway.pipeline.progress import is_running, maybe_read, write


def test_progress_is_read_back_and_says_how_far_behind_it_is(tmp_path: Path) -> None:
    batch = LastBatch(number=3, first=10, last=19, rows=9, seconds=0.5, steps={"bronze.messages": 0.25})
    told = PipelineProgress(pid=os.getpid(), state="running", position=20, committed=119, last_batch=batch)
    write(told, tmp_path / "pipeline" / "progress.json")
    assert maybe_read(tmp_path / "pipeline" / "progress.json") == told
    assert json.loads((tmp_path / "pipeline" / "progress.json").read_text())["lag"] == 100
    assert is_running(told)


def test_a_killed_run_is_not_taken_for_a_running_one(tmp_path: Path) -> None:
    gone = os.spawnlp(os.P_WAIT, "true", "true")
    assert gone == 0
    pid = os.posix_spawnp("true", ["true"], os.environ)
    os.waitpid(pid, 0)
    assert not is_running(PipelineProgress(pid=pid, state="running"))
    assert not is_running(PipelineProgress(pid=os.getpid(), state="stopped"))


def test_a_file_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert maybe_read(tmp_path / "none") is None
    (tmp_path / "cut").write_text('{"pid":')
    assert maybe_read(tmp_path / "cut") is None
