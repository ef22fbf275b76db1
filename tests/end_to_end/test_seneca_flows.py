"""The three flows of Seneca's protocol text, with a process for each instance, through the bus. What the instances saw
and what the journal recorded is compared entry by entry with the text; times by their order, not by their values.

Where the text contradicts itself, it is read like this: the last response is `{x: 2}`; an entry has its own hop's id,
and the first request has one too; entries are requests, found by their id; an entry has four times; each receiver has a
copy of its own; `rid` is the same instance in both places.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.rigs.seneca_wire import DEADLINE_S, rows, wait_for_rows
from tests.rigs.server import Server, running_server


class Instance:
    """One of A, B and C."""

    def __init__(self, name: str, server: Server) -> None:
        urls = [f"seneca://127.0.0.1:{server.port('seneca')}", f"http://127.0.0.1:{server.port('console')}"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.seneca_instance", name, *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(json.loads(line))

    def next(self) -> dict[str, Any]:
        return self._said.get(timeout=DEADLINE_S)

    def send(self, message: dict[str, Any], sync: bool) -> dict[str, Any]:
        """What came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"message": message, "sync": sync}).encode() + b"\n")
        self._process.stdin.flush()
        return self.next()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(DEADLINE_S) == 0
        finally:
            self._process.kill()
            self._reader.join(DEADLINE_S)
            self._process.stdout.close()


Instances = dict[str, Instance]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # Both `a:1` and `b:1` would be the topic `1`.
    with running_server(RACEWAY_SENECA__NAMES='{"b:1" = "b.1"}') as server:
        yield server


@pytest.fixture(scope="module")
def instances(server: Server) -> Iterator[Instances]:
    with ExitStack() as stack:
        found: Instances = {}
        for name in ("A", "B", "C"):
            found[name] = Instance(name, server)
            stack.callback(found[name].close)
            assert found[name].next() == {"ready": name}
        yield found


def ids(entry: dict[str, Any]) -> tuple[str, str, str, int]:
    """Who, to whom, which message, and how many times are known."""
    return entry["sid"], entry.get("rid") or "", entry["mid"], len(entry["tms"])


def in_order(*times: int) -> bool:
    return list(times) == sorted(times)


def recorded(server: Server, mid: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request and its answer, as the journal has them."""
    (request,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    (answer,) = wait_for_rows(server, 1, answers=request["sequence"])
    return request, answer


def test_a_to_b_synchronous(server: Server, instances: Instances) -> None:
    answer = instances["A"].send({"a": 1}, sync=True)
    received = instances["B"].next()
    mid, cid = received["mid"], received["cid"]
    assert received["received"] == {"a": 1}
    assert received["sync"] is True
    assert [ids(entry) for entry in received["trk"]] == [("A", "B", mid, 2)]
    assert (answer["result"], answer["rid"]) == ({"x": 1}, "B")
    assert [ids(entry) for entry in answer["trk"]] == [("A", "B", mid, 4)]
    assert in_order(*answer["trk"][0]["tms"])
    request, response = recorded(server, mid)
    assert [ids(entry) for entry in request["hops"]] == [("A", "", mid, 1)]
    assert [ids(entry) for entry in response["hops"]] == [("A", "B", mid, 3)]
    assert response["hops"][0]["tms"] == answer["trk"][0]["tms"][:3], "the bus writes no times where the responder does"
    assert (request["producer"], request["correlation_id"], response["correlation_id"]) == ("A", cid, cid)
    assert (json.loads(request["payload"]), json.loads(response["payload"])) == ({"a": 1}, {"x": 1})
    assert request["sent_ms"] == request["hops"][0]["tms"][0]


def test_a_to_b_and_c_asynchronous(server: Server, instances: Instances) -> None:
    assert instances["A"].send({"a": 2}, sync=False) == {"sent": {"a": 2}}
    at_b, at_c = instances["B"].next(), instances["C"].next()
    mid, cid = at_b["mid"], at_b["cid"]
    for name, received in (("B", at_b), ("C", at_c)):
        assert received["received"] == {"a": 2}
        assert received["sync"] is False
        assert (received["mid"], received["cid"]) == (mid, cid)
        assert [ids(entry) for entry in received["trk"]] == [("A", name, mid, 2)]
        assert in_order(*received["trk"][0]["tms"])
    assert at_b["trk"][0]["tms"][0] == at_c["trk"][0]["tms"][0], "sent once"
    (row,) = wait_for_rows(server, 1, message_id=mid)
    assert (row["kind"], row["producer"], row["correlation_id"]) == ("publish", "A", cid)
    assert [ids(entry) for entry in row["hops"]] == [("A", "", mid, 1)]
    assert rows(server, answers=row["sequence"]) == [], "no response"


def test_a_to_b_to_c_chained_synchronous(server: Server, instances: Instances) -> None:
    answer = instances["A"].send({"a": 3}, sync=True)
    at_b, at_c = instances["B"].next(), instances["C"].next()
    m03, m04, cid = at_b["mid"], at_c["mid"], at_b["cid"]
    assert m03 != m04, "a new message id"
    assert at_c["cid"] == cid, "the same correlation id"
    assert (at_b["received"], at_c["received"]) == ({"a": 3}, {"b": 1})
    assert [ids(entry) for entry in at_b["trk"]] == [("A", "B", m03, 2)]
    assert [ids(entry) for entry in at_c["trk"]] == [("A", "B", m03, 2), ("B", "C", m04, 2)]
    # The text contradicts itself: `{y: 1}` in the text's last response is C's answer; B answers `{x: 2}`.
    assert (answer["result"], answer["rid"]) == ({"x": 2}, "B")
    assert [ids(entry) for entry in answer["trk"]] == [("A", "B", m03, 4), ("B", "C", m04, 4)]
    outer, inner = (entry["tms"] for entry in answer["trk"])
    # One machine has one clock, so here they may be compared: sent by A, received by B, sent by B, received by C,
    # answered by C, back at B, answered by B, back at A.
    assert in_order(outer[0], outer[1], *inner, outer[2], outer[3])

    outer_request, outer_response = recorded(server, m03)
    inner_request, inner_response = recorded(server, m04)
    assert [ids(entry) for entry in outer_request["hops"]] == [("A", "", m03, 1)]
    assert [ids(entry) for entry in inner_request["hops"]] == [("A", "B", m03, 2), ("B", "", m04, 1)]
    assert [ids(entry) for entry in inner_response["hops"]] == [("A", "B", m03, 2), ("B", "C", m04, 3)]
    assert [ids(entry) for entry in outer_response["hops"]] == [("A", "B", m03, 3), ("B", "C", m04, 4)]
    assert inner_request["parent_id"] == m03
    four = (outer_request, outer_response, inner_request, inner_response)
    assert {row["correlation_id"] for row in four} == {cid}
    assert [row["producer"] for row in four] == ["A", "B", "B", "C"]
    assert [json.loads(row["payload"]) for row in four] == [{"a": 3}, {"x": 2}, {"b": 1}, {"y": 1}]


def test_one_correlation_id_finds_the_whole_flow_and_nothing_else(server: Server, instances: Instances) -> None:
    instances["A"].send({"a": 3}, sync=True)
    first = instances["B"].next()["cid"]
    instances["C"].next()
    instances["A"].send({"a": 3}, sync=True)
    second = instances["B"].next()["cid"]
    instances["C"].next()
    assert first != second
    for cid in (first, second):
        flow = wait_for_rows(server, 4, correlation_id=cid)
        assert [row["kind"] for row in flow].count("request") == 2
        assert len(flow) == 4
