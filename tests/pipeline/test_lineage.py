"""OpenLineage events: one run per batch, to a file or a server, and never in the way of the tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.lineage import KEY_VARIABLE, Lineage


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(None, Folders(tmp_path / "data"))


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_batch_begins_and_is_complete_with_its_tables(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    lineage = Lineage(str(file), lake)
    for number in range(2):
        with lineage.batch() as run:
            run.tables += ["bronze.messages", "silver.hops", "state.dedup_ids", "silver.hops"]
            run.rows, run.bytes = 7 + number, 100
    told = events(file)
    assert [each["eventType"] for each in told] == ["START", "COMPLETE"] * 2
    ids = [each["run"]["runId"] for each in told]
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert ids[0] != ids[2]
    last = told[-1]
    assert (last["job"]["namespace"], last["job"]["name"]) == ("raceway", "pipeline")
    assert [each["name"] for each in last["inputs"]] == [str(tmp_path / "data")]
    bronze, hops = last["outputs"]
    assert (bronze["namespace"], bronze["name"]) == ("file", f"{lake.storage.root}/bronze/messages")
    assert bronze["outputFacets"]["outputStatistics"]["rowCount"] == 8
    fields = {each["name"]: each for each in hops["facets"]["schema"]["fields"]}
    assert (fields["queue_ms"]["type"], fields["sid"]["description"]) == ("bigint", "Sender of the step.")


def test_a_batch_that_fails_says_why(lake: Lake, tmp_path: Path) -> None:
    lineage = Lineage(f"file://{tmp_path}/events.json", lake)
    with pytest.raises(PipelineError), lineage.batch():
        raise PipelineError("the disk is full")
    failed = events(tmp_path / "events.json")[-1]
    assert failed["eventType"] == "FAIL"
    assert failed["run"]["facets"]["errorMessage"]["message"] == "the disk is full"


def test_without_a_place_nothing_is_sent(lake: Lake) -> None:
    with Lineage("", lake).batch() as run:
        assert run.tables == []


def test_other_places_are_refused_by_name(lake: Lake) -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.lineage: is the URL of a server \(http://…\), or a file"):
        Lineage("kafka://somewhere/topic", lake)


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[str, str | None, dict[str, Any]]]]]:
    """A server that notes what it gets."""
    got: list[tuple[str, str | None, dict[str, Any]]] = []

    class Noting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Noting) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", got
        finally:
            listening.shutdown()
            thread.join()


def test_a_server_gets_them_with_the_key_of_the_environment(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "of the catalogue")
    with server(201) as (url, got):
        with Lineage(url, lake).batch() as run:
            run.tables.append("bronze.messages")
        assert [(path, key, each["eventType"]) for path, key, each in got] == [
            ("/api/v1/lineage", "Bearer of the catalogue", "START"),
            ("/api/v1/lineage", "Bearer of the catalogue", "COMPLETE"),
        ]


def test_a_server_that_fails_is_left_alone_for_a_while_and_holds_nothing_up(lake: Lake) -> None:
    with server(500) as (url, got):
        lineage = Lineage(url, lake)
        for _ in range(3):
            with lineage.batch():
                pass
        assert len(got) == 1
