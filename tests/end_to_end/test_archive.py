"""A bus whose rows are in an object store: everything that reads goes on there, and the loop never waits for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.pipeline.object_store import BUCKET, object_store
from tests.rigs.danube_process import danube_process
from tests.rigs.danube_wire import danube_url
from tests.rigs.http_door import get, post
from tests.rigs.mb_wire import connect
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import dial_server

ROWS = 60


def searched(server: Server, text: str) -> Any:
    """The answer to a search; None if there is none in time, as on a busy machine: the process has a low priority."""
    try:
        return get(server, f"/api/messages?text={text}&limit=5").json()
    except TimeoutError:
        return None


def test_replay_queues_search_traces_and_reads_go_on_in_the_archive(tmp_path: Path) -> None:
    with (
        object_store() as store,
        running_server(
            tmp_path / "data",
            RACEWAY_JOURNAL__ARCHIVE=f"s3a://{BUCKET}/bus",
            RACEWAY_STORAGE__ENDPOINT=store.endpoint,
            RACEWAY_STORAGE__ACCESS_KEY=store.access_key,
            RACEWAY_STORAGE__SECRET_KEY=store.secret_key,
            RACEWAY_JOURNAL__SEGMENT_BYTES=20_000,
            RACEWAY_JOURNAL__SEAL_KEEP_S=0,
            RACEWAY_JOURNAL__UPKEEP_S=0.05,
            RACEWAY_JOURNAL__ARCHIVE_RETRY_S=0.1,
            RACEWAY_JOURNAL__RETENTION__MAX_BYTES=1,
            RACEWAY_BROKER__SUBSCRIPTIONS__RECENT_BYTES=4096,
        ) as server,
        danube_process(danube_url(server)) as danube,
        connect(server, "tcp") as peer,
        dial_server(server) as client,
    ):
        sent = [b'{"n": %d, "fill": "%s"}' % (number, b"x" * 900) for number in range(ROWS)]
        for number in range(3):
            peer.publish("u", b"%d" % number)
        peer.publish("t", sent[0])
        danube.subscribe("c", "/default/t", "s")
        client.create("t")
        for payload in sent[1:]:
            peer.publish("t", payload)
        assert len(danube.receive("c", ROWS - 1, ack=True)) == ROWS - 1
        for payload in sent[1:]:
            assert client.take("t").body == payload
        wait_until(lambda: server.metric("raceway_journal_archive_segments") >= 2, 60, "segments in the archive")
        wait_until(lambda: len(list(server.data.glob("segment-*"))) <= 2, 60, "segments left the disk")
        first = get(server, "/topics/t?from=first&limit=1")
        assert first.status == 200
        assert b'"n": 0' in first.body or b'\\"n\\": 0' in first.body

        for wanted in ({"subscription": "s"}, {"subscription": None}):
            asked = {"topic": "t", "from": "first", **wanted}
            assert post(server, "/api/replay", json.dumps(asked).encode()).status == 200
        again = danube.receive("c", ROWS, ack=True, within_s=30)
        assert [message.payload for message in again] == sent
        assert [client.take("t").body for _ in range(ROWS)] == sent
        assert list((server.data / "archive").glob("segment-*.parquet")), "brought back for the loop"

        asked = {"name": "u", "start": "2020-01-01T00:00:00Z"}
        made = post(server, "/api/queues", json.dumps(asked).encode())
        assert made.status in (200, 201), made.body
        assert [client.take("u").body for _ in range(3)] == [b"0", b"1", b"2"], "a time that only the archive has"

        found = wait_until(lambda: searched(server, "%22n%22%3A%201%2C"), 90, "an answer of the searching process")
        (row,) = [row for row in found["messages"] if row["topic"] == "t"]
        assert row["offset"] == 1
        health = get(server, "/api/journal").json()["health"]["archive"]
        assert (health["url"], health["error"]) == (f"s3://{BUCKET}/bus", "")
        assert get(server, "/readyz").json()["warnings"] == []
        assert store.secret_key not in server.stdout + server.stderr
        assert store.secret_key not in (server.data / "archive" / "location").read_text()
