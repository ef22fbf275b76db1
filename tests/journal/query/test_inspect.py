"""What a folder holds, and single rows, seen from outside."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import JournalError, TrimmedError
from raceway.journal.files import Files
from raceway.journal.query.inspect import TopicFacts, document, row_at, row_of_topic, select_rows, survey
from raceway.journal.read.catalogue import segment_path
from raceway.journal.read.reader import Reader
from raceway.journal.state import State
from raceway.journal.write.active import SNAPSHOT
from raceway.journal.write.retention import remove_segment
from raceway.journal.write.seal import hold_rows, seal_segment
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import TOPICS, rows


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "data"
    write_folder(folder, [rows(0, 500), rows(500, 300), rows(800, 100)])
    seal_segment(folder, f"segment-{0:020}", 100)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))


# ---- survey ---------------------------------------------------------------------------------------------------------


def test_a_survey_names_every_segment_by_its_kind(folder: Path) -> None:
    hold_rows(folder, f"segment-{0:020}", [TOPICS[0]], 100)
    found = survey(folder)
    assert [(facts.kind, facts.first, facts.last, facts.has_blocks) for facts in found.segments] == [
        ("held", 0, 499, False),
        ("sealed", 0, 499, True),
        ("blocks", 500, 799, False),
        ("active", 800, 899, False),
    ]
    assert [facts.rows for facts in found.segments[1:]] == [500, 300, 100]
    assert found.segments[1].oldest_us == rows(0, 1)[0]["time_us"]
    assert found.segments[3].newest_us == rows(899, 1)[0]["time_us"]


def test_a_survey_tells_positions_topics_and_size(folder: Path) -> None:
    found = survey(folder, top=2)
    assert (found.first_position, found.committed, found.rows, found.topic_count) == (0, 899, 900, 4)
    assert found.topics == [TopicFacts("Größe", 0, 193), TopicFacts("orders.created", 0, 193)]
    assert found.bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert (found.format, len(found.source)) == (1, 36)


def test_a_survey_tells_good_and_damaged_snapshots(folder: Path) -> None:
    state = State()
    state.put("cursors", "a", {"topic": "x", "offset": 1})
    state.next_offsets["x"] = 5
    (folder / f"{SNAPSHOT}{700:020}").write_bytes(state.encode_snapshot(700, "source"))
    (folder / f"{SNAPSHOT}{400:020}").write_bytes(b"nonsense")
    newest, oldest = survey(folder).snapshots
    assert (newest.sequence, newest.sections) == (700, {"cursors": 1, "topics": 1})
    assert (oldest.sequence, oldest.sections) == (-1, {})


def test_a_survey_tells_damage_that_opening_met(folder: Path) -> None:
    (folder / f"segment-{0:020}.sum").unlink()
    assert ("rebuilt", f"segment-{0:020}.sum") in {(d.kind, d.file) for d in survey(folder).damage}


def test_a_survey_without_identity_says_so(folder: Path) -> None:
    (folder / "identity").unlink()
    assert (survey(folder).format, survey(folder).source) == (0, "")


def test_a_folder_without_a_journal_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal"):
        survey(tmp_path)
    with pytest.raises(JournalError, match="not a data folder"):
        survey(tmp_path / "nowhere")


# ---- rows -----------------------------------------------------------------------------------------------------------


def positions(folder: Path, *arguments: object, **options: object) -> list[int]:
    selected = select_rows(Reader(folder), *arguments, **options)  # type: ignore[arg-type]
    return [position for batch in selected for position in batch.column("sequence").to_pylist()]


def test_rows_are_selected_by_position_topic_and_number(folder: Path) -> None:
    everything = rows(0, 900)
    assert positions(folder, None, None) == list(range(900))
    assert positions(folder, 490, 510) == list(range(490, 510))
    assert positions(folder, 490, None, limit=700) == list(range(490, 900))
    assert positions(folder, None, None, limit=3) == [0, 1, 2]
    assert positions(folder, None, 600, TOPICS[1]) == [
        r["sequence"] for r in everything[:600] if r["topic"] == TOPICS[1]
    ]
    orders = [row["sequence"] for row in everything if row["topic"].startswith("orders.")]
    assert positions(folder, None, None, "orders.+") == orders
    assert positions(folder, None, None, "orders.#", limit=5) == orders[:5]
    assert positions(folder, None, None, "nobody") == []


def test_a_row_is_found_by_its_position_in_any_form_of_segment(folder: Path) -> None:
    for position in (0, 7, 499, 500, 899):
        assert row_at(Reader(folder), position)["message_id"] == f"{position:036d}"


def test_a_row_is_found_by_topic_and_offset(folder: Path) -> None:
    reader = Reader(folder)
    for offset in (0, 100, 150, 192):
        row = row_of_topic(reader, TOPICS[3], offset)
        assert (row["topic"], row["offset"]) == (TOPICS[3], offset)
    assert row_of_topic(reader, TOPICS[3], None)["offset"] == 192


def test_rows_that_are_not_there_are_errors_that_say_why(folder: Path) -> None:
    reader = Reader(folder)
    with pytest.raises(JournalError, match="position 900 does not exist yet; the last committed one is 899"):
        row_at(reader, 900)
    with pytest.raises(JournalError, match="no offset 193 yet; the last one is 192"):
        row_of_topic(reader, TOPICS[0], 193)
    with pytest.raises(JournalError, match="has no rows"):
        row_of_topic(reader, "nobody", None)


def test_rows_that_retention_removed_are_named_as_such(folder: Path) -> None:
    remove_segment(Files(), segment_path(folder, 0))
    reader = Reader(folder)
    with pytest.raises(TrimmedError, match="first one left is 500"):
        row_at(reader, 3)
    with pytest.raises(TrimmedError, match="first one left"):
        row_of_topic(reader, TOPICS[0], 3)


def test_a_damaged_row_is_named_as_such(folder: Path) -> None:
    path = segment_path(folder, 500)
    data = bytearray(path.read_bytes())
    data[300:6000] = bytes(5700)
    path.write_bytes(data)
    with pytest.raises(JournalError, match="position 505 is damaged"):
        row_at(Reader(folder), 505)
    with pytest.raises(JournalError, match="is damaged"):
        row_of_topic(Reader(folder), TOPICS[0], 108)


# ---- documents ------------------------------------------------------------------------------------------------------


def test_a_document_leaves_out_what_a_row_does_not_have() -> None:
    row = {"sequence": 0, "offset": None, "attributes": [("a", "b")], "hops": [], "reply_to": None, "payload": b"x"}
    assert document(row) == {"sequence": 0, "attributes": {"a": "b"}, "payload": "x"}


def test_a_payload_that_is_no_text_is_base64() -> None:
    assert document({"payload": b"\xff\x00"}) == {"payload_base64": "/wA="}
    assert document({"payload": b""}) == {"payload": ""}


@given(st.binary())
def test_every_payload_has_exactly_one_form(payload: bytes) -> None:
    assert len(document({"payload": payload})) == 1
