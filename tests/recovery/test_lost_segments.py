"""Segments that are gone or cut short: told at start and to every reader, and no offset is given out twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raceway.journal.integrity.recovery import SKIPPED
from raceway.journal.read.reader import Reader
from tests.rigs.http_door import event_stream, get, post
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import dial_server

# Each segment is sealed by a process of its own, which a busy machine starts slowly.
SEAL_S = 90.0
SMALL = {"RACEWAY_JOURNAL__SEGMENT_BYTES": 6000, "RACEWAY_JOURNAL__SEAL": "false", "RACEWAY_JOURNAL__UPKEEP_S": 0.1}
SEALED = SMALL | {"RACEWAY_JOURNAL__SEAL": "true", "RACEWAY_JOURNAL__SEAL_KEEP_S": 0}


def publish(server: Server, topic: str, count: int) -> list[int]:
    """The offsets that were acknowledged."""
    answers = [post(server, f"/topics/{topic}", b"%d" % number + bytes(300)) for number in range(count)]
    assert {answer.status for answer in answers} == {201}
    return [answer.json()["offset"] for answer in answers]


def segments(data: Path, suffix: str = ".blocks") -> list[Path]:
    return sorted(data.glob(f"segment-*{suffix}"))


def damage(path: Path, how: str) -> None:
    match how:
        case "deleted":
            path.unlink()
        case "emptied":
            os.truncate(path, 0)
        case "zeros":
            path.write_bytes(bytes(path.stat().st_size))
        case "cut":
            os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("how", ["deleted", "zeros"])
def test_no_offset_is_given_twice_when_the_newest_segment_is_lost(tmp_path: Path, how: str) -> None:
    with running_server(tmp_path / "data", **SMALL) as server:
        known = {"d.old": publish(server, "d.old", 30)}
        while segments(server.data)[-1].stat().st_size:  # what follows is in the newest segment alone
            known["d.old"] += publish(server, "d.old", 1)
        known["d.old"] += publish(server, "d.old", 3)
        known["d.born"] = publish(server, "d.born", 4)
        for _ in range(2):  # a second loss does not undo what the first one led to
            server.kill()
            newest = [path for path in segments(server.data) if path.stat().st_size][-1]
            damage(newest, how)
            server.start()
            for topic, given in known.items():
                fresh = publish(server, topic, 3)
                assert min(fresh) > max(given), topic
                given += fresh
            assert server.metric("raceway_journal_missing_rows") > 0
            status, body = server.http("/readyz")
            assert (status, json.loads(body)["status"]) == (200, "ok")
            assert any("are lost" in warning for warning in json.loads(body)["warnings"])
        server.restart()
        assert [min(publish(server, topic, 1)) > max(given) for topic, given in known.items()] == [True, True]


def test_a_journal_whose_only_segment_was_removed_says_so_and_goes_on_behind_it(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        given = publish(server, "only", 10)
        server.kill()
        (only,) = segments(server.data)
        only.unlink()
        server.start()
        assert "journal: missing" in server.stderr
        assert server.metric("raceway_journal_missing_rows") >= 10
        assert min(publish(server, "only", 1)) > max(given)


def test_no_offset_is_given_twice_when_the_commit_mark_its_copy_and_the_newest_segment_are_lost(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", **SMALL) as server:
        with dial_server(server) as client:
            client.create("old")
        known = {topic: publish(server, topic, 40) for topic in ("old", "late")}
        for again in range(2):
            server.kill()
            before = rows_of(server.data)
            newest = [path for path in segments(server.data) if path.stat().st_size][-1]
            for path in (newest, server.data / "committed", server.data / "committed.copy"):
                path.unlink()
            server.start()
            for topic, given in known.items():
                fresh = publish(server, topic, 5)
                assert min(fresh) > max(given), (topic, again)
                assert len(fresh) == max(fresh) - min(fresh) + 1
                given += fresh
            assert min(rows_of(server.data).keys() - before.keys()) > max(before)
            assert_gaps_are_told(server, again + 1)
        server.restart()
        assert_gaps_are_told(server, 2)
        left = [message["offset"] for message in get(server, "/topics/old?from=0&limit=1000").json()["messages"]]
        with dial_server(server) as client:  # the queue goes on behind both gaps
            taken = [client.take("old") for _ in left]
        assert len(taken) == len(left) < len(known["old"])
        assert all(min(publish(server, topic, 1)) > max(given) for topic, given in known.items())


def assert_gaps_are_told(server: Server, count: int) -> None:
    assert server.stderr.count("journal: missing") >= count
    assert server.metric("raceway_journal_missing_rows") >= count * SKIPPED
    assert sum("are lost" in warning for warning in get(server, "/readyz").json()["warnings"]) >= count
    assert_told_by_doctor(server)
    gaps = get(server, "/topics/old?from=0&limit=1000").json()["gaps"]
    assert sum(gap["next"] - gap["from"] for gap in gaps) >= count * SKIPPED


def test_a_new_folder_whose_first_start_was_cut_off_begins_at_zero(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        server.kill()
        for path in server.data.iterdir():
            if path.name.startswith(("segment-", "identity", "trimmed", "state-")):
                path.unlink()
        server.start()
        assert publish(server, "t", 1) == [0]
        assert server.metric("raceway_journal_missing_rows") == 0


# Every other file and damage is in test_file_kinds.
LOSSES = {
    "closed blocks cut": (SMALL, ".blocks", 2, "cut"),
    "last before the newest deleted": (SMALL, ".blocks", -2, "deleted"),
    "first Parquet deleted": (SEALED, ".parquet", 0, "deleted"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_segment_is_told_at_start_and_to_every_reader(tmp_path: Path, loss: str) -> None:
    settings, suffix, number, how = LOSSES[loss]
    with running_server(tmp_path / "data", **settings) as server:
        with dial_server(server) as client:
            client.create("t")
        publish(server, "t", 80)
        if suffix == ".parquet":
            wait_until(lambda: len(segments(server.data)) == 1, SEAL_S, "all closed segments to be sealed")
        server.kill()
        # A segment that was just begun has no rows yet: then the loss would be at the end, where nothing follows it.
        chosen = [path for path in segments(server.data, suffix) if path.stat().st_size][number]
        before = rows_of(server.data)
        damage(chosen, how)
        server.start()
        left = rows_of(server.data)
        lost = sorted(set(before) - set(left))
        assert lost
        assert left.items() <= before.items()
        assert_told_by_the_bus(server, len(lost))
        offsets = [offset for position in lost if (offset := before[position]) is not None]
        assert_told_by_topic(server, min(offsets), max(offsets) + 1)
        assert_told_by_doctor(server)
        server.restart()  # and as long as the rows are missing
        assert server.metric("raceway_journal_missing_rows") + server.metric("raceway_journal_quarantined_rows") > 0


def rows_of(data: Path) -> dict[int, int | None]:
    """Position to offset, as anybody reads them."""
    reader = Reader(data)
    try:
        batches = reader.read(reader.first_position(), columns=["sequence", "offset"])
        return {row["sequence"]: row["offset"] for batch in batches for row in batch.to_pylist()}
    finally:
        reader.close()


def assert_told_by_the_bus(server: Server, lost: int) -> None:
    assert "journal: missing" in server.stderr or "journal: quarantined" in server.stderr
    told = server.metric("raceway_journal_missing_rows") + server.metric("raceway_journal_quarantined_rows")
    assert told == lost
    for path in ("/readyz", "/api/overview"):
        answer = get(server, path)
        assert answer.status == 200
        assert any("are lost" in warning for warning in answer.json()["warnings"]), path
    kinds = {found["kind"] for found in get(server, "/api/journal").json()["health"]["damage"]}
    assert kinds & {"missing", "quarantined"}


def assert_told_by_topic(server: Server, first: int, following: int) -> None:
    gap = {"topic": "t", "from": first, "next": following}
    page = get(server, "/topics/t?from=0&limit=1000")
    assert page.json()["gaps"] == [gap]
    assert json.loads(get(server, "/topics/t?from=0&limit=1000&as=cloudevents").headers["x-gaps"]) == [gap]
    with event_stream(server, "/topics/t?from=0") as stream:
        told = [event.data for event in up_to(stream.events(), 79) if event.kind == "gap"]
    assert told == [gap]
    answer = post(server, "/api/replay", b'{"topic": "t", "from": "0"}', content_type="application/json")
    assert answer.json()["gaps"] == [gap]
    skipped = server.metric("raceway_skipped_messages_total")
    with dial_server(server) as client:
        for _ in range(80 - (following - first)):
            client.take("t")
    assert server.metric("raceway_skipped_messages_total") - skipped == following - first
    assert "undelivered rows lost" in server.stderr


def up_to(events: Iterator[Any], last: int) -> Iterator[Any]:
    for event in events:
        yield event
        if event.kind != "gap" and event.data["offset"] >= last:
            return


def assert_told_by_doctor(server: Server) -> None:
    command = [sys.executable, "-m", "raceway", "doctor", "--json", "--data", str(server.data)]
    found = subprocess.run(command, capture_output=True, check=False, timeout=60)
    findings = json.loads(found.stdout)
    assert any(each["subject"] == "readiness" and "are lost" in each["text"] for each in findings)
    assert any(each["subject"] == "journal" and each["verdict"] == "bad" for each in findings)


def test_a_shortened_segment_is_not_sealed_as_if_it_were_whole(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", **SMALL) as server:
        publish(server, "t", 60)
        server.kill()
        chosen = segments(server.data)[1]
        damage(chosen, "cut")
        server.env = SEALED
        server.start()
        sealed = chosen.with_suffix(".parquet")
        wait_until(lambda: sealed.exists() and not chosen.exists(), SEAL_S, "the segment to be sealed")
        lost = server.metric("raceway_journal_missing_rows")
        assert lost > 0
        server.restart()
        assert server.metric("raceway_journal_missing_rows") == lost
        assert any(sealed.name in warning for warning in get(server, "/readyz").json()["warnings"])


def test_what_retention_removed_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    limits = {"RACEWAY_JOURNAL__RETENTION__MAX_BYTES": 15_000}
    with running_server(tmp_path / "data", **SMALL, **limits) as server:
        first = segments(server.data)[0]
        publish(server, "t", 60)
        wait_until(lambda: not first.exists(), what="retention")
        for again in (server.stop, server.kill):
            again()
            server.start()
            assert server.metric("raceway_journal_missing_rows") == 0
            assert get(server, "/readyz").json()["warnings"] == []
        assert "journal: missing" not in server.stderr
        # And a loss right behind it is one.
        server.kill()
        segments(server.data)[0].unlink()
        server.start()
        assert server.metric("raceway_journal_missing_rows") > 0
