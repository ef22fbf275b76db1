"""Captures through Spark: all of a file or nothing, once, from folders and patterns, into every table."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from raceway import config
from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports import importing, pieces
from raceway.pipeline.imports.importing import Imported, import_files
from raceway.pipeline.lake import Lake
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.wires.captures.capture import Capture, capture_files, capture_of
from raceway.wires.captures.form import PIECE_MESSAGES
from raceway.wires.mb.capture import reader as mb
from tests.pipeline.captures import import_file
from tests.pipeline.drivers import Commands
from tests.pipeline.java import needs_java
from tests.pipeline.journals import journal
from tests.pipeline.quick_spark import QUICKLY
from tests.pipeline.rows import Row, bronze, message
from tests.rigs.rounds import SOAKING
from tests.rigs.vectors.mb import frame

GOOD = b"publish:a.b:1.0.0\n%d"


def frames(count: int, bad: int = 0) -> bytes:
    good = [frame(GOOD % number) for number in range(count)]
    return b"".join([*good, *([frame(b"nonsense")] * bad)])


def test_a_capture_becomes_rows_of_both_tables_once_whatever_its_name(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mb, "PIECE_MESSAGES", 20)  # more pieces than tasks
    (tmp_path / "one.mb").write_bytes(frames(1000, bad=30))
    (tmp_path / "again.mb").write_bytes(frames(1000, bad=30))
    first = import_file(lake, "mb", tmp_path / "one.mb")
    again = import_file(lake, "mb", tmp_path / "again.mb")
    assert first == Imported(str(tmp_path / "one.mb"), 1000, 30, "imported", "mb")
    assert again == Imported(str(tmp_path / "again.mb"), 1000, 30, "imported before", "mb")
    rows = lake.frame(MESSAGES).orderBy("sequence").select("sequence", "payload", "source", "time_us").collect()
    assert [(row[0], bytes(row[1])) for row in rows] == [(number, b"%d" % number) for number in range(1000)]
    source, time_us = f"import:{capture_of('mb', tmp_path / 'one.mb').sha256}", _written_us(tmp_path / "one.mb")
    assert {(row[2], row[3]) for row in rows} == {(source, time_us)}
    rejected = lake.frame(REJECTED_MESSAGES).select("sequence", "code", "payload").collect()
    assert sorted(row[0] for row in rejected) == list(range(1000, 1030))
    assert {(row[1], bytes(row[2])) for row in rejected} == {("MALFORMED_MESSAGE", b"nonsense")}


def _written_us(path: Path) -> int:
    return path.stat().st_mtime_ns // 1000


def test_several_files_and_an_empty_one_are_sources_of_their_own(lake: Lake, tmp_path: Path) -> None:
    contents = {"a": frames(3), "b": frames(4, bad=1), "none": b"", "bad": frame(b"")}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    done = [import_file(lake, "mb", tmp_path / name) for name in contents]
    assert [each[1:4] for each in done] == [
        (3, 0, "imported"), (4, 1, "imported"), (0, 0, "imported"), (0, 1, "imported"),
    ]  # fmt: skip
    counts = {row[0]: row[1] for row in lake.frame(MESSAGES).groupBy("source").count().collect()}
    assert sorted(counts.values()) == [3, 4]
    again = [import_file(lake, "mb", tmp_path / name) for name in contents]
    assert [each.state for each in again] == ["imported before"] * 4


def test_files_are_imported_in_order_while_the_next_are_made_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are cores; the copy of a packed one is there until it is imported, and never longer."""
    count, cores = 9, 3
    for number in range(count):
        (tmp_path / f"{number}.mb.gz").write_bytes(gzip.compress(frames(number + 1)))
    lake, copies, ready = Lake(None, Folders(tmp_path / "data")), list[int](), threading.Semaphore(0)

    def imported(_: Lake, told: importing._Ready, __: config.Config) -> Imported:
        coming = int(len(copies) + cores <= count) if copies else cores
        for _each in range(coming):
            assert ready.acquire(timeout=60), "the next ones are made ready meanwhile"
        copies.append(len(list(lake.folders.staging.glob("*/*"))))
        assert told.capture.file.read_bytes() == frames(len(copies))
        if len(copies) == count:
            raise PipelineError("the last one fails")
        return Imported(str(told.capture.path), sum(1 for _ in told.pieces), 0, "imported", "mb")

    def prepared(*args: Any) -> importing._Ready:
        try:
            return prepare(*args)
        finally:
            ready.release()

    prepare = importing._prepare
    monkeypatch.setattr(importing, "_import_new", imported)
    monkeypatch.setattr(importing, "_prepare", prepared)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    with pytest.raises(PipelineError, match="the last one fails"):
        list(import_files(lake, "mb", [str(tmp_path / f"{number}.mb.gz") for number in range(count)]))
    assert copies == [3, 3, 3, 3, 3, 3, 3, 2, 1]
    assert list(lake.folders.staging.iterdir()) == []


def test_a_crash_before_the_last_step_changes_nothing_and_the_next_try_does_all(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.mb").write_bytes(frames(5, bad=2))

    def killed(self: Lake, table: str, *args: Any, **options: Any) -> None:
        if table == MESSAGES:
            raise KeyboardInterrupt
        commit(self, table, *args, **options)

    commit = Lake.commit
    monkeypatch.setattr(Lake, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        import_file(lake, "mb", tmp_path / "one.mb")
    monkeypatch.undo()
    assert lake.frame(MESSAGES).count() == 0
    lake.folders.sweep()
    assert import_file(lake, "mb", tmp_path / "one.mb") == Imported(str(tmp_path / "one.mb"), 5, 2, "imported", "mb")
    assert (lake.frame(MESSAGES).count(), lake.frame(REJECTED_MESSAGES).count()) == (5, 2)


def test_a_file_that_is_written_to_meanwhile_is_not_imported(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named_and_written_to(wire: str, path: Path, source: str | None) -> Capture:
        found = capture_of(wire, path, source)
        with path.open("ab") as file:
            file.write(frames(1))
        return found

    (tmp_path / "one.mb").write_bytes(frames(5))
    monkeypatch.setattr(importing, "capture_of", named_and_written_to)
    with pytest.raises(PipelineError, match="was changed during the import"):
        import_file(lake, "mb", tmp_path / "one.mb")
    assert lake.paths(MESSAGES) == []


def test_behind_broken_framing_rows_of_later_pieces_are_left_out(lake: Lake, tmp_path: Path) -> None:
    good = b"POST /q?cmd=produce HTTP/1.1\r\n\r\n"
    content = good * 10 + b"POST / HTTP/1.1\r\nx y: z\r\n\r\n" + good * (PIECE_MESSAGES + 10)
    (tmp_path / "one.zbus").write_bytes(content)
    done = import_file(lake, "zbus", tmp_path / "one.zbus")
    assert (done.messages, done.rejected) == (10, 1)
    (row,) = lake.frame(REJECTED_MESSAGES).select("sequence", "reason", "attributes").collect()
    assert (row[0], row[1]) == (10, "Bad format: header name")
    assert row[2] == {"raw_bytes": str(len(content) - 10 * len(good))}


def test_folders_and_patterns_name_each_file_once(tmp_path: Path) -> None:
    for name in ("b/2.mb", "b/1.mb", "a.mb", ".hidden", "b/.git/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    named = [tmp_path / "b", tmp_path / "*.mb", tmp_path / "**" / "1.mb", tmp_path / ".hidden"]
    found = [str(path.relative_to(tmp_path)) for path in capture_files(named)]
    assert found == ["b/1.mb", "b/2.mb", "a.mb", ".hidden"]
    for missing in ("nothing", "*.zbus"):
        with pytest.raises(ConfigError, match="there is no such file or folder"):
            capture_files([tmp_path / missing])


def test_times_go_on_from_piece_to_piece(tmp_path: Path) -> None:
    spans = [(10, 30), (5, 20), (25, 40)]
    told = []
    for number, span in enumerate(spans):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(bronze(message(row, time_us=time) for row, time in enumerate(span)), file)
        told.append(pieces.PieceReport(number, str(file), "", *span, False, False))
    importing.raise_times(told)
    times = [pq.read_table(each.messages_file).column("time_us").to_pylist() for each in told]
    assert times == [[10, 30], [30, 30], [30, 40]]


# ---- requests and answers -------------------------------------------------------------------------------------------


def imported(lake: Lake, wire: str, path: Path, content: bytes) -> list[Row]:
    """Rows of `bronze.messages` after the import, in order."""
    path.write_bytes(content)
    import_file(lake, wire, path)
    return [row.asDict() for row in lake.frame(MESSAGES).orderBy("sequence").collect()]


def identity(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def test_answers_of_mb_find_their_requests_and_chains_their_first_message(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c, d, e, twice = map(identity, range(6))
    spoken = [
        f"request:a:1.0.0:{a}",
        f"request:b:1.0.0:{b}:{a}",
        f"publish:c:1.0.0:{c}:{b.upper()}",
        f"request:d:1.0.0:{d}:{c}",
        f"response:d:1.0.0:{d.upper()}",
        f"response:b:1.0.0:{e}:{b}",
        f"response:a:1.0.0:{a}:{a}",
        f"response:early:1.0.0:{e}",
        f"request:e:1.0.0:{e}",
        f"request:t:1.0.0:{twice}",
        f"request:t:1.0.0:{twice}",
        f"response:t:1.0.0:{twice}",
    ]
    monkeypatch.setattr(mb, "PIECE_MESSAGES", 5)
    rows = imported(lake, "mb", tmp_path / "one", b"".join(frame(line.encode() + b"\n") for line in spoken))
    assert [row["answers"] for row in rows] == [None, None, None, None, 3, 1, 0, None, None, None, None, None]
    assert [row["correlation_id"].lower() for row in rows] == [a] * 7 + [e, e, twice, twice, twice]
    assert [row["sequence"] for row in rows] == list(range(12))


def test_answers_of_seneca_get_the_topic_of_their_request(lake: Lake, tmp_path: Path) -> None:
    spoken: list[Any] = [
        {"role": "math", "cmd": "sum", "meta$": {"mid": "m1", "cid": "c1", "snc": True}},
        {"sum": 3, "meta$": {"mid": "m1", "cid": "c1", "res": True}},
        {"sum": 3, "meta$": {"mid": "m1", "cid": "other", "res": True}},
    ]
    rows = imported(lake, "seneca", tmp_path / "one", "\n".join(map(json.dumps, spoken)).encode())
    assert [(row["answers"], row["topic"]) for row in rows] == [(None, "math.sum"), (0, "math.sum"), (None, "")]


def test_what_is_produced_to_a_reply_queue_under_the_requests_id_is_the_answer(lake: Lake, tmp_path: Path) -> None:
    spoken = [
        b"cmd: request\r\nmq: adder\r\nmsgid: r1\r\nmq-reply: box",
        b"cmd: produce\r\nmq: box\r\nmsgid: r1\r\nreply-code: 500",
        b"cmd: produce\r\nmq: box\r\nmsgid: r2",
    ]
    content = b"".join(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % headers for headers in spoken)
    rows = imported(lake, "zbus", tmp_path / "one", content)
    found = [(row["kind"], row["answers"], row["error"]) for row in rows]
    assert found == [("request", None, None), ("response", 0, "500"), ("publish", None, None)]


# ---- the command ----------------------------------------------------------------------------------------------------


@needs_java
@pytest.mark.timeout(300)  # a session of its own, and the first query of each kind
def test_the_commands_import_folders_tell_of_each_file_and_take_one_out_again(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    asked = f"request:orders.price:1.0.0:{identity(1)}\n{{}}".encode()
    (captures / "a.mb").write_bytes(frame(asked) + frame(asked.replace(b"request", b"response")) + frame(b"bad"))
    (captures / "b.mb").write_bytes(rb"publish:orders.created:1.0.0\n{}")
    with journal(tmp_path / "data", 100) as rig, Commands() as commands:
        told = commands.in_turn(
            rig.folder,
            ("import", "--wire", "mb", str(captures), "--json", *QUICKLY),
            ("query", "SELECT status FROM silver.exchanges", "--json"),
            ("import", "--wire", "zbus", str(captures / "b.mb"), "--json", *QUICKLY),
            ("captures", "--json"),
            ("unimport", str(captures / "a.mb"), "--json", *QUICKLY),
            ("captures",),
            ("query", "SELECT topic FROM silver.messages", "--json"),
            ("verify", "--json", *(("--full", *QUICKLY) if SOAKING else ())),
        )
        refused = commands.finished(rig.folder, "import", "--wire", "mb", str(tmp_path / "nowhere"), status=2)
        assert "there is no such file or folder" in refused.stderr
    documents = [[json.loads(line) for line in each.splitlines()] for each in told if each.startswith("{")]
    first, statuses, again, known, removed, left, verdict = documents
    assert [(Path(each["path"]).name, each["messages"], each["rejected"], each["state"]) for each in first] == [
        ("a.mb", 2, 1, "imported"), ("b.mb", 1, 0, "imported"),
    ]  # fmt: skip
    assert statuses == [{"status": "answered"}]
    assert [(each["state"], each["wire"]) for each in again] == [("imported before", "mb")]
    assert {Path(each["path"]).name for each in known} == {"a.mb", "b.mb"}
    assert [Path(each["path"]).name for each in removed] == ["a.mb"]
    assert "b.mb" in told[5]
    assert "a.mb" not in told[5]
    assert left == [{"topic": "orders.created"}]
    assert verdict[0]["good"], verdict
