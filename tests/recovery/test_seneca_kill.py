"""The process is killed while Seneca clients of all dialects are busy: what was accepted is in the journal, once.

An asynchronous message that was answered 202 is on disk. A call that was answered may be missing, with or without its
answer, because answers leave before they are stored; but no answer is there without its request. Services stay attached
over the kill, and real npm clients go on by themselves.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from raceway.journal.read.reader import Reader
from tests.rigs.node_peers import DIALECTS, NodePeers, node_peers
from tests.rigs.ports import free_port_base
from tests.rigs.rounds import rounds, seeded
from tests.rigs.seneca_wire import Got, Http, Service, attach, new_id, seed, seed_answer
from tests.rigs.server import Server, running_server, wait_until

TOPIC = "kill.seneca"
KEYS = {"role": "kill", "cmd": "seneca"}
SENDERS, CALLERS = 4, 2
WANTED = 300


def react(got: Got) -> tuple[int, Any]:
    if not got.meta["snc"]:
        return 202, {}
    return 200, seed_answer(got, {"n": got.json()["n"]})


class Traffic(threading.Thread):
    """One connection that sends one message after another until it is cut off."""

    def __init__(self, server: Server, sync: bool) -> None:
        super().__init__(daemon=True)
        self._http, self._sync = Http(server.port("seneca")), sync
        self.sent: dict[str, int] = {}
        self.done: set[str] = set()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        with self._http, suppress(OSError, HTTPException):
            while True:
                mid, number = new_id(), len(self.sent)
                self.sent[mid] = number
                answer = self._http.post(seed({**KEYS, "n": number}, mid=mid, sync=self._sync))
                try:
                    self._check(answer.status, answer.body, number)
                except AssertionError as failure:
                    self.failure = failure
                    return
                self.done.add(mid)

    def _check(self, status: int, body: bytes, number: int) -> None:
        assert status == (200 if self._sync else 202), body
        assert not self._sync or json.loads(body)["n"] == number


def read_rows(data: Path) -> list[dict[str, Any]]:
    columns = ["sequence", "topic", "offset", "kind", "message_id", "answers", "payload"]
    return [
        row for batch in Reader(data).read(0, columns=columns) for row in batch.to_pylist() if row["topic"] == TOPIC
    ]


class Books:
    """What was sent and accepted, over all rounds."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.accepted: set[str] = set()

    def add(self, traffic: list[Traffic]) -> None:
        for thread in traffic:
            thread.join(20)
            assert not thread.is_alive()
            if thread.failure:
                raise thread.failure
            self.sent |= thread.sent
            if not thread._sync:
                self.accepted |= thread.done

    def check(self, data: Path) -> None:
        rows = read_rows(data)
        asked = [row for row in rows if row["kind"] != "response"]
        assert [row["offset"] for row in asked] == list(range(len(asked))), "offsets are dense"
        stored = Counter(row["message_id"] for row in asked)
        assert max(stored.values()) == 1, "nothing is there twice"
        assert not self.accepted - stored.keys(), "what was accepted is there"
        for row in asked:
            assert json.loads(row["payload"]) == {**KEYS, "n": self.sent[row["message_id"]]}, "as it was sent"
        requests = {row["sequence"]: row["message_id"] for row in rows if row["kind"] == "request"}
        for row in rows:
            if row["kind"] == "response":
                assert requests[row["answers"]] == row["message_id"], "every answer has its request"
        print(f"{len(self.accepted):,} accepted, {len(asked):,} stored, {len(rows) - len(asked):,} answers")


@pytest.mark.timeout(60 + 20 * rounds(3))
def test_what_was_accepted_is_in_the_journal_once_after_each_kill(tmp_path: Path) -> None:
    chosen, books = seeded("seneca kill"), Books()
    with running_server(tmp_path / "data") as server, Service(react) as service:
        attach(server, "role:kill,cmd:*", service.url(), "S")
        for _ in range(rounds(3)):
            traffic = [Traffic(server, sync=False) for _ in range(SENDERS)]
            traffic += [Traffic(server, sync=True) for _ in range(CALLERS)]
            wanted = chosen.randrange(20, WANTED)
            wait_until(lambda: sum(len(t.done) for t in traffic) >= wanted, 30, f"{wanted} answers")  # noqa: B023
            server.kill()
            books.add(traffic)
            books.check(server.data)
            server.start()
        with Http(server.port("seneca")) as http:
            assert http.post(seed({**KEYS, "n": -1})).data == {"n": -1}, "the service is still attached"
        server.stop()
        assert len(books.accepted) > 0


@pytest.fixture(scope="module")
def node() -> Iterator[NodePeers]:
    with node_peers() as node:
        yield node


def test_real_clients_and_services_go_on_after_a_kill(node: NodePeers) -> None:
    base = free_port_base()
    with running_server() as server, ExitStack() as stack:
        for number, dialect in enumerate(DIALECTS):
            node.listen(f"B{dialect}", dialect, base + number, role=f"kill{dialect}")
            stack.callback(node.close_instance, f"B{dialect}")
            scheme = "tcp" if dialect == "T" else "http"
            attach(server, f"role:kill{dialect},cmd:*", f"{scheme}://127.0.0.1:{base + number}", dialect)
            port = server.port("seneca_tcp" if dialect == "T" else "seneca")
            node.client(f"A{dialect}", dialect, port, timeout_ms=2000)
            stack.callback(node.close_instance, f"A{dialect}")
        pairs = [(caller, host) for caller in DIALECTS for host in DIALECTS]

        def answers(caller: str, host: str) -> bool:
            return bool(node.act(f"A{caller}", role=f"kill{host}", cmd="sum", a=1, b=2).result == {"sum": 3})

        assert all(answers(*pair) for pair in pairs)
        server.kill()
        server.start()
        for pair in pairs:
            wait_until(lambda: answers(*pair), 20, f"an answer from {pair[1]} for {pair[0]}")  # noqa: B023
