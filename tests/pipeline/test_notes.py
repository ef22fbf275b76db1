from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raceway.errors import PipelineError
from raceway.journal.files import Files
from raceway.pipeline.notes import Note, Notes, remove_damaged


def test_notes_are_there_after_a_restart(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    kept = Note(rows=3, source="journal", last_us=17, due_us=5, gaps=[(1, 2)], feeds={"silver.hops": ["a", "b"]})
    notes.put("bronze.messages", "0-9", kept)
    notes.put("bronze.messages", "10-19", Note(rows=1, source="journal", last_us=16, feeds={"silver.hops": []}))
    again = Notes(tmp_path)
    assert again.of("bronze.messages", "0-9") == kept
    assert again.parts("bronze.messages") == ["0-9", "10-19"]
    assert again.horizons("bronze.messages") == {"journal": 17}
    assert list(again.due("bronze.messages")) == [("0-9", 5)]
    again.drop("bronze.messages", "0-9")
    assert Notes(tmp_path).parts("bronze.messages") == ["10-19"]


def test_a_part_without_a_note_has_fed_nothing(tmp_path: Path) -> None:
    assert Notes(tmp_path).of("silver.hops", "x") == Note()
    assert Notes(tmp_path).parts("silver.hops") == []


def test_a_forgotten_table_has_seen_no_part_and_other_tables_have(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.put("bronze.messages", "0-9", Note(rows=1, feeds={"silver.hops": ["a"], "gold.traces": ["b"]}))
    notes.put("silver.hops", "a", Note(rows=1, feeds={"gold.traces": ["b"]}))
    notes.forget("silver.hops")
    again = Notes(tmp_path)
    assert again.of("bronze.messages", "0-9").feeds == {"gold.traces": ["b"]}
    assert again.parts("silver.hops") == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b"[]", b'{"rows": "x"}'])
def test_a_damaged_note_is_named_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    notes = Notes(tmp_path)
    notes.put("bronze.messages", "0-9", Note(rows=1))
    notes.put("silver.hops", "a", Note(rows=1))
    file = tmp_path / "silver.hops" / "a.json"
    file.write_bytes(content)
    with pytest.raises(PipelineError, match="a note of the pipeline is damaged") as failure:
        Notes(tmp_path)
    assert str(file) in str(failure.value)
    assert "`raceway pipeline reset notes`" in str(failure.value)
    assert remove_damaged(tmp_path) == [("silver.hops", "a")]
    assert Notes(tmp_path).parts("bronze.messages") == ["0-9"]


def _noting(done: list[str], name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*given: Any) -> Any:
        done.append(name)
        return real(*given)

    return noting


def test_a_note_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure there is the old note or the new one, never an empty one."""
    done: list[str] = []
    for name in ("sync", "rename", "sync_folder"):
        monkeypatch.setattr(Files, name, _noting(done, name, getattr(Files, name)))
    Notes(tmp_path).put("silver.hops", "a", Note(rows=1))
    assert done == ["sync", "rename", "sync_folder"]
