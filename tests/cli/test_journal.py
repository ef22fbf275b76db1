"""`raceway journal …` as a person or a script calls it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from raceway.cli import journal as cli
from raceway.cli.app import app
from raceway.errors import LockedError, TrimmedError
from raceway.journal.files import Files
from raceway.journal.format import SCHEMA
from raceway.journal.integrity.verify import verify
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import segment_path
from raceway.journal.write.retention import remove_segment
from raceway.journal.write.seal import seal_segment
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import TOPICS, rows

HOSTILE = b'{"a":"\xc2\x9b31m"}'  # a control sequence introducer in one character
SEALED = f"segment-{0:020}"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "data"
    first = rows(0, 100)
    first[7]["payload"] = HOSTILE
    first[8]["payload"] = b"\xff\x00\x1b[2J" * 4
    first[9]["payload"] = b"two\nlines \x1b[31m"
    first[13]["topic"] = "evil\x1b[2J"  # an answer: it has no offset
    write_folder(folder, [first, rows(100, 100), rows(200, 50)])
    seal_segment(folder, SEALED, 40)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))


def run(folder: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["journal", *map(str, arguments), "--data", str(folder)])


def is_safe(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


# ---- info -----------------------------------------------------------------------------------------------------------


def test_info_shows_positions_segments_and_topics(folder: Path) -> None:
    result = run(folder, "info")
    assert result.exit_code == 0
    assert "0 to 249" in result.stdout
    assert "none runs on it" in result.stdout
    assert f"{SEALED}.parquet" in result.stdout
    assert "sealed, blocks kept" in result.stdout
    assert "orders.created" in result.stdout
    assert is_safe(result.stdout)


def test_info_as_json_has_everything(folder: Path) -> None:
    found = json.loads(run(folder, "info", "--json", "--top", 1).stdout)
    assert (found["committed"], found["rows"], found["topic_count"], len(found["topics"])) == (249, 250, 4, 1)
    assert [segment["kind"] for segment in found["segments"]] == ["sealed", "blocks", "active"]
    assert found["pid"] is None


def test_info_shows_damage_that_opening_met(folder: Path) -> None:
    (folder / f"{SEALED}.idx").unlink()
    assert f"{SEALED}.idx" in run(folder, "info").stdout


@pytest.mark.parametrize("command", ["info", "verify", "dump", "read"])
def test_a_folder_without_a_journal_ends_with_what_to_do(tmp_path: Path, command: str) -> None:
    result = run(tmp_path, command, *(["1"] if command == "read" else []))
    assert result.exit_code == 1
    assert "--data DIR" in result.stderr
    assert list(tmp_path.iterdir()) == []


# ---- verify ---------------------------------------------------------------------------------------------------------


def settle(folder: Path) -> None:
    """Save the index of the closed segment, as the bus does at a roll."""
    verify(folder, repair=True)


def test_verify_ends_with_0_when_all_is_good(folder: Path) -> None:
    settle(folder)
    result = run(folder, "verify")
    assert result.exit_code == 0
    assert "250 rows in 4 topics" in result.stdout
    assert "all good" in result.stdout


def test_verify_ends_with_1_when_something_can_be_mended_and_repair_mends_it(folder: Path) -> None:
    settle(folder)
    path = folder / f"{SEALED}.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    looked = run(folder, "verify")
    assert looked.exit_code == 1
    assert "nothing is lost" in looked.stdout
    assert "--repair" in looked.stdout
    assert run(folder, "verify", "--repair").exit_code == 1
    assert path.read_bytes() == whole
    assert run(folder, "verify").exit_code == 0


def test_verify_ends_with_2_when_rows_are_lost_and_names_them(folder: Path) -> None:
    settle(folder)
    path = segment_path(folder, 100)
    data = bytearray(path.read_bytes())
    data[300:6000] = bytes(5700)
    path.write_bytes(data)
    result = run(folder, "verify")
    assert result.exit_code == 2
    assert "lost: positions 100 to 149" in result.stdout
    assert "50 rows are lost" in result.stdout
    found = json.loads(run(folder, "verify", "--json").stdout)
    assert (found["status"], found["lost_rows"], found["rows"]) == ("lost", 50, 200)


def test_repair_is_refused_while_a_bus_runs(folder: Path) -> None:
    lock = FolderLock(folder)
    try:
        assert isinstance(run(folder, "verify", "--repair").exception, LockedError)
        assert run(folder, "verify").exit_code in (0, 1)
    finally:
        lock.release()


def test_verify_lowers_its_priority(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[int] = []
    monkeypatch.setattr("os.nice", lowered.append)
    run(folder, "verify")
    assert lowered == [19]


# ---- dump -----------------------------------------------------------------------------------------------------------


def dumped(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_dump_prints_every_row_as_a_line_of_json(folder: Path) -> None:
    result = run(folder, "dump")
    assert [row["sequence"] for row in dumped(result)] == list(range(250))
    assert is_safe(result.stdout)


def test_dump_takes_a_range_a_topic_and_a_limit(folder: Path) -> None:
    assert [row["sequence"] for row in dumped(run(folder, "dump", "--from", 95, "--to", 105))] == list(range(95, 105))
    found = dumped(run(folder, "dump", "--topic", "orders.+", "--limit", 5))
    assert len(found) == 5
    assert {str(row["topic"]).split(".")[0] for row in found} == {"orders"}


def test_dump_shows_a_table_that_no_payload_can_disturb(folder: Path) -> None:
    result = run(folder, "dump", "--format", "table", "--limit", 14)
    assert is_safe(result.stdout)
    assert "two\\nlines \\x1b[31m" in result.stdout
    assert "evil\\x1b[2J" in result.stdout
    assert "--limit shows more" in result.stderr


def test_a_table_ends_after_a_screenful_unless_told(folder: Path) -> None:
    shown = [line for line in run(folder, "dump", "--format", "table").stdout.splitlines() if "2023-11-14" in line]
    assert len(shown) == cli.TABLE_ROWS


def test_dump_writes_parquet_that_other_tools_read(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    result = run(folder, "dump", "--format", "parquet", "-o", target, "--from", 50)
    assert result.exit_code == 0
    assert "200 rows written" in result.stderr
    found = pq.read_table(target)
    assert found.schema.equals(SCHEMA)
    assert found["sequence"].to_pylist() == list(range(50, 250))


def test_dump_writes_json_lines_to_a_file(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    assert run(folder, "dump", "-o", target, "--topic", TOPICS[0]).exit_code == 0
    assert {json.loads(line)["topic"] for line in target.read_text().splitlines()} == {TOPICS[0]}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--format", "parquet"], "needs --output FILE"),
        (["-o", "EXISTING"], "exists already"),
        (["--format", "table", "-o", "NEW"], "a table goes to the screen"),
    ],
)
def test_dump_refuses_what_makes_no_sense(folder: Path, tmp_path: Path, arguments: list[str], advice: str) -> None:
    existing = tmp_path / "existing"
    existing.write_text("keep me")
    names = {"EXISTING": str(existing), "NEW": str(tmp_path / "new")}
    result = run(folder, "dump", *(names.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert advice in result.stderr
    assert existing.read_text() == "keep me"
    assert not (tmp_path / "new").exists()


def test_dump_begins_at_the_first_position_left_and_names_it_when_asked_for_less(folder: Path) -> None:
    remove_segment(Files(), segment_path(folder, 0))
    assert dumped(run(folder, "dump", "--limit", 1))[0]["sequence"] == 100
    error = run(folder, "dump", "--from", 5).exception
    assert isinstance(error, TrimmedError)
    assert error.first == 100


def test_dump_says_what_it_could_not_read(folder: Path) -> None:
    path = segment_path(folder, 100)
    data = bytearray(path.read_bytes())
    data[300:6000] = bytes(5700)
    path.write_bytes(data)
    result = run(folder, "dump")
    assert len(dumped(result)) == 200
    assert "a block is damaged" in result.stderr


# ---- read -----------------------------------------------------------------------------------------------------------


def test_read_shows_one_row_with_its_payload_indented(folder: Path) -> None:
    result = run(folder, "read", 5)
    assert result.exit_code == 0
    assert "40 bytes, JSON" in result.stdout
    assert "time_us" not in result.stdout, "the time is there, to be read"
    assert '    "n": 5' in result.stdout


def test_read_shows_binary_as_hex_and_text_line_by_line(folder: Path) -> None:
    assert "00000000  ff 00 1b 5b 32 4a" in run(folder, "read", 8).stdout
    text = run(folder, "read", 9).stdout
    assert "  two\n  lines \\x1b[31m\n" in text
    assert is_safe(text)


def test_no_payload_and_no_topic_can_steer_the_terminal(folder: Path) -> None:
    for position in (7, 8, 9, 13):
        assert is_safe(run(folder, "read", position).stdout)
        assert is_safe(run(folder, "read", position, "--json").stdout)


def test_read_finds_a_row_by_topic_and_offset_or_the_newest_of_a_topic(folder: Path) -> None:
    found = json.loads(run(folder, "read", "--topic", TOPICS[1], "--offset", 3, "--json").stdout)
    assert (found["topic"], found["offset"]) == (TOPICS[1], 3)
    newest = json.loads(run(folder, "read", "--topic", TOPICS[1], "--json").stdout)
    assert newest["offset"] == max(row["offset"] or 0 for row in rows(0, 250) if row["topic"] == TOPICS[1])


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [([], "name a row"), (["5", "--topic", "a"], "name a row"), (["5", "--offset", "1"], "add --topic NAME")],
)
def test_read_says_how_to_name_a_row(folder: Path, arguments: list[str], advice: str) -> None:
    result = run(folder, "read", *arguments)
    assert result.exit_code == 2
    assert advice in result.stderr


def test_a_long_payload_is_cut_and_full_shows_all(tmp_path: Path) -> None:
    long = [row | {"payload": b"line\n" * 500} for row in rows(0, 2)]
    folder = write_folder(tmp_path / "data", [long])
    cut, full = run(folder, "read", 0), run(folder, "read", 0, "--full")
    assert cut.stdout.count("  line\n") == cli.PAYLOAD_LINES
    assert "--full shows them" in cut.stderr
    assert full.stdout.count("  line\n") == 500


@given(st.binary())
def test_every_payload_can_be_shown(payload: bytes) -> None:
    kind, lines = cli.payload_lines(payload)
    assert kind in ("empty", "binary", "text", "JSON")
    assert all(line.isprintable() for line in lines)


def test_deeply_nested_json_is_shown_as_text() -> None:
    kind, lines = cli.payload_lines(b"[" * 100_000 + b"]" * 100_000)
    assert (kind, len(lines)) == ("text", 1)
