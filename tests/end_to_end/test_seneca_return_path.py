"""Answers that come too late for the connection they were asked on go to the caller's `rtn.urn`: once, with retries,
and only where the bus may connect to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.rigs.ports import free_port_base
from tests.rigs.seneca_wire import (
    Got,
    Service,
    answering,
    fresh_word,
    new_id,
    post,
    rows,
    seed,
    seed_answer,
    serving,
    wait_for_rows,
)
from tests.rigs.server import Door, Server, running_server, wait_until

HOLD_MS, TIMEOUT_MS = 100, 500
RETRIES_MS = (30, 60, 120)
LATE_S = 0.25


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__SENECA__HOLD_MS=HOLD_MS,
        RACEWAY_LISTEN__SENECA__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
        RACEWAY_SENECA__RETRIES_MS=json.dumps(RETRIES_MS),
    ) as server:
        yield server


def late(result: dict[str, Any], rid: str = "B", **meta: Any) -> Any:
    """A service that answers when the caller is not held any more."""

    def react(got: Got) -> tuple[int, Any]:
        time.sleep(LATE_S)
        return 500 if meta.get("error") else 200, seed_answer(got, result, rid, **meta)

    return react


def too_late(got: Got) -> tuple[int, Any]:
    """A service that answers when the call is over."""
    time.sleep(TIMEOUT_MS / 1000 + 0.3)
    return 200, {}


def taking(*statuses: int) -> Service:
    """A return path that answers with these statuses in turn, the last one for ever."""
    left = list(statuses)
    return Service(lambda got: (left.pop(0) if len(left) > 1 else left[0], {}))


def request(word: str, urn: str, **meta: Any) -> dict[str, Any]:
    return seed({"role": word, "year": 2023}, rtn={"urn": urn}, **meta)


def parked(server: Server, mid: str) -> list[dict[str, Any]]:
    return [row for row in rows(server, topic="raceway.undeliverable") if mid.encode() in row["payload"]]


def test_an_answer_in_time_comes_in_band(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", answering({"rows": 7})), taking(200) as path:
        answer = post(server, request(word, path.url("/rtn")))
        assert (answer.status, answer.data) == (200, {"rows": 7})
        assert path.got == []


def test_a_late_answer_is_posted_once_with_the_callers_ids(server: Server) -> None:
    word, mid, cid = fresh_word(), new_id(), new_id("c")
    with serving(server, f"role:{word}", late({"rows": 7})), taking(200) as path:
        answer = post(server, request(word, path.url("/rtn?x=1"), mid=mid, cid=cid))
        assert (answer.status, answer.json()) == (202, {})
        (got,) = path.wait_for(1)
        assert got.path == "/rtn?x=1"
        assert got.headers["content-type"] == "application/json"
        document = got.json()
        meta = document.pop("meta$")
        assert document == {"rows": 7}
        assert (meta["rid"], meta["res"], meta["mid"], meta["cid"]) == ("B", True, mid, cid)
        ((hop),) = meta["trk"]
        assert (hop["sid"], hop["rid"], hop["mid"], len(hop["tms"])) == ("A", "B", mid, 3)
        time.sleep(2 * sum(RETRIES_MS) / 1000)
        assert len(path.got) == 1, "delivered once"
    (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    assert row["reply_to"] == path.url("/rtn?x=1")
    (stored,) = wait_for_rows(server, 1, answers=row["sequence"])
    assert json.loads(stored["payload"]) == {"rows": 7}


def test_a_late_failure_is_posted_too(server: Server) -> None:
    word, mid = fresh_word(), new_id()
    react = late({"message": "no paper", "code": "no_paper"}, error=True)
    with serving(server, f"role:{word}", react), taking(200) as path:
        assert post(server, request(word, path.url("/rtn"), mid=mid)).status == 202
        (got,) = path.wait_for(1)
    assert got.meta["error"] is True
    assert (got.json()["code"], got.json()["message"]) == ("no_paper", "no paper")


def test_a_return_path_that_fails_is_tried_again(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", late({"rows": 7})), taking(500, 503, 200) as path:
        assert post(server, request(word, path.url("/rtn"))).status == 202
        got = path.wait_for(3)
        assert len({post.body for post in got}) == 1, "each time the same"
        time.sleep(2 * sum(RETRIES_MS) / 1000)
        assert len(path.got) == 3


def test_after_three_retries_the_answer_is_parked(server: Server) -> None:
    word, mid = fresh_word(), new_id()
    with serving(server, f"role:{word}", late({"rows": 7})), taking(500) as path:
        assert post(server, request(word, path.url("/rtn"), mid=mid)).status == 202
        wait_until(lambda: parked(server, mid), 10, "the answer among what could not be delivered")
        assert len(path.got) == 1 + len(RETRIES_MS)


def test_where_nobody_listens_the_answer_is_parked(server: Server) -> None:
    word, mid = fresh_word(), new_id()
    with serving(server, f"role:{word}", late({"rows": 7})):
        assert post(server, request(word, f"http://127.0.0.1:{free_port_base()}/rtn", mid=mid)).status == 202
        (row,) = wait_until(lambda: parked(server, mid), 10, "the answer among what could not be delivered")
    assert b'"rows":7' in row["payload"]


@pytest.mark.parametrize("status", [400, 404, 410])
def test_a_return_path_that_refuses_is_not_asked_again(server: Server, status: int) -> None:
    word, mid = fresh_word(), new_id()
    with serving(server, f"role:{word}", late({"rows": 7})), taking(status) as path:
        assert post(server, request(word, path.url("/rtn"), mid=mid)).status == 202
        wait_until(lambda: parked(server, mid), 10, "the answer among what could not be delivered")
        time.sleep(2 * sum(RETRIES_MS) / 1000)
        assert len(path.got) == 1


def timed_out(server: Server, urns: list[str]) -> list[tuple[int, str, float]]:
    """Status, code and seconds of calls that nobody answers in time, one for each return path, all at once."""
    word = fresh_word()

    def call(urn: str) -> tuple[int, str, float]:
        began = time.monotonic()
        answer = post(server, request(word, urn))
        return answer.status, answer.json()["code"], time.monotonic() - began

    with serving(server, f"role:{word}", too_late), ThreadPoolExecutor(len(urns)) as threads:
        return list(threads.map(call, urns))


OFF_THE_LIST = [
    "http://192.0.2.1:8000/rtn", "http://bus.invalid/rtn", "https://203.0.113.7/rtn", "http://[2001:db8::1]/rtn",
    "http://0x7f.1.evil.example/", "ftp://127.0.0.1/rtn", "file:///etc/passwd", "127.0.0.1/rtn", "http:///rtn", "x",
]  # fmt: skip


def test_an_address_off_the_list_is_refused_and_logged(server: Server) -> None:
    before = len(server.stderr)
    for status, code, seconds in timed_out(server, OFF_THE_LIST):
        assert (status, code) == (500, "action_timeout")
        assert seconds >= TIMEOUT_MS / 1000 * 0.9, "held until its deadline"
    logged = server.stderr[before:]
    assert [urn for urn in OFF_THE_LIST if urn not in logged] == []


def test_an_address_off_the_list_is_no_harm_to_an_answer_in_time(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", answering({"ok": 1})):
        for urn in OFF_THE_LIST:
            assert post(server, request(word, urn)).data == {"ok": 1}


def test_the_bus_does_not_call_itself(server: Server) -> None:
    before = len(server.stderr)
    doors: list[Door] = ["seneca", "seneca_tcp", "console", "tcp", "zbus"]
    urns = [f"http://127.0.0.1:{server.port(door)}/act" for door in doors]
    urns += [f"http://{host}:{server.port('seneca')}/act" for host in ("localhost", "[::1]")]
    for status, code, _ in timed_out(server, urns):
        assert (status, code) == (500, "action_timeout")
    logged = server.stderr[before:]
    assert [urn for urn in urns if urn not in logged] == []


def test_without_return_path_the_call_is_held_until_its_deadline(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", late({"rows": 7})):
        answer = post(server, seed({"role": word}))
        assert (answer.status, answer.data) == (200, {"rows": 7})


def test_an_asynchronous_message_has_no_use_for_a_return_path(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", answering({"rows": 7})) as service, taking(200) as path:
        answer = post(server, request(word, path.url("/rtn"), snc=False))
        assert (answer.status, answer.json()) == (202, {})
        service.wait_for(1)
        time.sleep(2 * LATE_S)
        assert path.got == []


def test_a_return_path_is_the_senders_own_and_goes_no_further(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", answering({"rows": 7})) as service, taking(200) as path:
        assert post(server, request(word, path.url("/rtn"))).status == 200
        assert path.url("/rtn") not in service.got[0].body.decode()


def test_several_answers_come_one_by_one(server: Server) -> None:
    word, mid = fresh_word(), new_id()
    with (
        serving(server, f"role:{word}", answering({"price": 5}, "C")),
        serving(server, f"role:{word}", answering({"price": 6}, "D")),
        taking(200) as path,
    ):
        answer = post(server, request(word, path.url("/rtn"), mid=mid, multiple=True))
        assert (answer.status, answer.json()) == (202, {})
        got = path.wait_for(2)
    assert sorted((document.json()["price"], document.meta["rid"]) for document in got) == [(5, "C"), (6, "D")]
    assert {document.meta["mid"] for document in got} == {mid}
