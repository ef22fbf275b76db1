from __future__ import annotations

from pathlib import Path

from raceway.pipeline.notes import Note, Notes


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
