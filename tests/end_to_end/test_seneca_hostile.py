"""What strangers may send to the Seneca doors: each gets the stated answer, memory stays bounded, the server lives on.

A real npm listener of dialect W dies of an empty body, of `null`, of a list and of a string.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.rigs.rounds import rounds, seeded
from tests.rigs.seneca_wire import (
    DEADLINE_S,
    JSON,
    Answer,
    Got,
    Http,
    Lines,
    Service,
    attached,
    encode,
    legacy_headers,
    line,
    new_id,
    post,
    rows,
    seed,
    seed_answer,
    wait_for_rows,
    web,
)
from tests.rigs.server import Door, Server, running_server, wait_until

MIB = 1 << 20
BODY_LIMIT, DEPTH_LIMIT = 8 * MIB, 512
HEAD_S = 0.5
# What allocators and the journal's open block may keep.
GROWTH = 64 * MIB
ECHO = {"role": "echo", "cmd": "data"}
NOT_A_MESSAGE = {"code": "invalid_message", "message": "seneca: message must be a JSON object", "seneca": True}
NOT_JSON = {"code": "invalid_json", "message": "seneca: Invalid JSON", "seneca": True}


def echo(got: Got) -> tuple[int, Any]:
    document = got.json()
    if not got.meta.get("snc", True):
        return 202, {}
    result = {name: value for name, value in document.items() if name not in ("meta$", "role", "cmd")}
    if document["cmd"] == "size":
        result = {"size": len(document["data"])}
    return 200, seed_answer(got, result)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with (
        running_server(
            RACEWAY_LISTEN__HEAD_S=HEAD_S, RACEWAY_LISTEN__SENECA__SWEEP_MS=50, RACEWAY_LISTEN__HOSTS="bus.example"
        ) as server,
        Service(echo) as service,
        attached(server, "role:echo,cmd:*", service.url(), "S"),
    ):
        yield server


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """After each test well-behaved clients are served on both doors."""
    yield
    server.assert_not_ended_by_itself()
    assert post(server, {**ECHO, "n": 1}).json() == {"n": 1}
    with Lines(server.port("seneca_tcp")) as lines:
        assert lines.ask(line({**ECHO, "n": 2}))["res"] == {"n": 2}


# ---- curl -----------------------------------------------------------------------------------------------------------


def curl(*arguments: str) -> str:
    done = subprocess.run(["curl", "-s", *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done
    return done.stdout


def test_curl_needs_one_line(server: Server) -> None:
    address = f"http://127.0.0.1:{server.port('seneca')}/act"
    assert json.loads(curl(address, "-d", json.dumps({**ECHO, "a": 4, "b": "Größe"}))) == {"a": 4, "b": "Größe"}


def test_curl_learns_the_ids_from_headers_and_the_journal_has_defaults(server: Server) -> None:
    address = f"http://127.0.0.1:{server.port('seneca')}/act"
    shown = curl("-i", address, "-d", json.dumps({**ECHO, "a": 1}))
    head, _, body = shown.partition("\n\n") if "\n\n" in shown else shown.partition("\r\n\r\n")
    headers = dict(text.strip().lower().split(": ", 1) for text in head.splitlines()[1:] if text.strip())
    assert json.loads(body) == {"a": 1}
    mid, cid = headers["seneca-id"].split("/")
    assert headers["seneca-accept"]
    (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    assert row["correlation_id"] == cid
    assert re.fullmatch(r"curl/.*", row["producer"])
    (answer,) = wait_for_rows(server, 1, answers=row["sequence"])
    (hop,) = answer["hops"]
    assert (hop["sid"], hop["mid"], hop["tms"][0], len(hop["tms"])) == (row["producer"], mid, None, 3)


def test_any_content_type_will_do(server: Server) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8"):
        assert post(server, {**ECHO, "n": 1}, {"Content-Type": kind}).json() == {"n": 1}


# ---- no message -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"null", b"[1,2]", b'"text"', b"7", b"true", b" [] "])
@pytest.mark.parametrize("headers", [JSON, legacy_headers("m1", "c1")], ids=["bare", "L"])
def test_what_is_no_object_is_refused(server: Server, body: bytes, headers: dict[str, str]) -> None:
    answer = post(server, body, headers)
    assert (answer.status, answer.json()) == (400, NOT_A_MESSAGE)
    if "seneca-id" in headers:
        assert (answer.headers["seneca-id"], answer.headers["seneca-origin"]) == ("m1/c1", "A")


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b'{"role":', b"{'role':'a'}", b"{role:1}", b'{"a":1,}', b'{"a":1}{"b":2}', b'{"a":01}',
        b'{"a":NaN}', b'{"a":1} // comment', b'{"a":"\xff"}', b"\x00", b'{"a":"\x01"}', b"\xef\xbb\xbf{}x",
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(server: Server, body: bytes) -> None:
    answer = post(server, body)
    assert (answer.status, answer.json()) == (400, NOT_JSON)


def test_a_get_reads_its_query(server: Server) -> None:
    answer = post(server, b"", {}, "/act?role=echo&cmd=data&a=4&b=x+y%20z", "GET")
    assert (answer.status, answer.json()) == (200, {"a": "4", "b": "x y z"})


def test_a_get_without_anything_is_refused(server: Server) -> None:
    answer = post(server, b"", {}, "/act", "GET")
    assert (answer.status, answer.json()) == (400, NOT_JSON)


def test_a_query_is_merged_over_the_body_and_its_pattern_comes_first(server: Server) -> None:
    answer = post(server, {**ECHO, "a": 1, "b": 1}, path="/act?msg$=a:2,c:3&b=4")
    assert answer.json() == {"a": 2, "b": "4", "c": 3}


@pytest.mark.parametrize("path", ["/", "/actor", "/act/x", "/rtn", "/act%00"])
def test_other_paths_are_not_there(server: Server, path: str) -> None:
    assert post(server, {**ECHO}, path=path).status == 404


# ---- large, deep, odd -----------------------------------------------------------------------------------------------


def test_a_body_of_ten_megabytes_is_refused_and_costs_no_memory(server: Server) -> None:
    before = server.rss()
    body = encode({**ECHO, "data": "x" * (10 * MIB)})
    with suppress(ConnectionError):  # it may be told before it has sent everything
        answer = post(server, body)
        assert answer.status == 413
        assert answer.json()["code"] == "too_large"
    assert server.rss() - before < GROWTH


def test_a_body_of_the_largest_size_passes(server: Server) -> None:
    message = {"role": "echo", "cmd": "size", "data": ""}
    size = BODY_LIMIT - len(encode(message))
    body = encode({**message, "data": "x" * size})
    assert len(body) == BODY_LIMIT
    answer = post(server, body)
    assert (answer.status, answer.json()) == (200, {"size": size})


def test_chunks_without_end_are_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer:
        peer.sendall(b"POST /act HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        with suppress(ConnectionError):
            for _ in range(40 * MIB // 0x10000):
                peer.sendall(chunk)
        with suppress(ConnectionError):
            assert peer.recv(1000).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [DEPTH_LIMIT + 1, 100_000])
def test_what_is_nested_too_deep_is_refused(server: Server, opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    inner = opening * depth + ("1" if opening != "[" else "") + closing * depth
    for body in (f'{{"role":"echo","cmd":"data","x":{inner}}}', opening * depth, inner):
        answer = post(server, body.encode())
        assert answer.status == 400
        assert answer.json()["code"] in ("invalid_json", "invalid_message")
    with Lines(server.port("seneca_tcp")) as lines:
        lines.send(f'{{"id":"m/c","kind":"act","sync":true,"act":{{"role":"echo","cmd":"data","x":{inner}}}}}'.encode())
        with suppress(EOFError):
            assert lines.receive()["error"]


def test_deep_but_not_too_deep_passes(server: Server) -> None:
    inner = "[" * 500 + "]" * 500
    answer = post(server, f'{{"role":"echo","cmd":"data","x":{inner}}}'.encode())
    assert answer.json() == {"x": json.loads(inner)}


def test_of_duplicate_keys_the_last_one_counts(server: Server) -> None:
    answer = post(server, b'{"role":"nobody","role":"echo","cmd":"data","a":1,"a":2,"a":3}')
    assert answer.json() == {"a": 3}


@pytest.mark.parametrize("meta", [5, "text", None, True, [], [1], {}])
def test_meta_data_that_is_no_object_or_empty_is_as_good_as_none(server: Server, meta: Any) -> None:
    answer = post(server, {**ECHO, "a": 1, "meta$": meta})
    assert (answer.status, answer.json()) == (200, {"a": 1})
    assert re.fullmatch(r"[0-9a-z]{12}/[0-9a-z]{12}", answer.headers["seneca-id"])


def test_fields_of_the_meta_data_that_are_of_another_type_are_as_good_as_absent(server: Server) -> None:
    meta: dict[str, Any] = {
        "mid": 7,
        "cid": None,
        "sid": [],
        "snc": "yes",
        "trk": "x",
        "rtn": 5,
        "ctm": [1],
        "vin": "1",
        "pat": {},
    }
    answer = post(server, {**ECHO, "a": 1, "meta$": meta})
    assert (answer.status, answer.data) == (200, {"a": 1})
    assert re.fullmatch("[0-9a-z]{12}", answer.meta["mid"])


def test_a_trk_of_ten_thousand_entries_is_cut_and_marked(server: Server) -> None:
    mid = new_id()
    trk = [{"sid": f"s{n}", "rid": f"r{n}", "mid": f"m{n}", "tms": [n, n + 1]} for n in range(9_999)]
    answer = post(server, seed({**ECHO, "a": 1}, mid=mid, trk=[*trk, {"sid": "A", "mid": mid, "tms": [1]}]))
    assert (answer.status, answer.data) == (200, {"a": 1})
    (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    hops = row["hops"]
    assert len(hops) == 64
    assert (hops[0]["mid"], hops[-1]["mid"]) == ("m0", mid), "the first and the last are kept"
    assert any("hops" in name for name, _ in row["attributes"]), "and it is marked"


@pytest.mark.parametrize(
    "trk",
    [
        [None], [1, "x", []], [{"sid": 1, "mid": 2, "tms": "x"}], [{"tms": [1e400]}], [{}],
        [{"mid": "m", "tms": [2**63, -(2**70), 1.5, "x", None]}],
        [{"sid": "A", "mid": "m", "tms": list(range(1000))}],
    ],
)  # fmt: skip
def test_a_trk_of_anything_is_survived(server: Server, trk: Any) -> None:
    document = json.dumps(seed({**ECHO, "a": 1}, trk=trk)).replace("Infinity", "1e400")
    answer = post(server, document.encode())
    assert answer.status in (200, 400)
    if answer.status == 200:
        assert answer.data == {"a": 1}


@pytest.mark.parametrize("parents", [5, [1], [[1, 2]], [["p", "m/c", "i", "-", "v", "x", None, True, "a"]] * 50])
def test_parents_of_anything_are_survived(server: Server, parents: Any) -> None:
    document = web({**ECHO, "a": 1})
    document["meta$"]["parents"] = parents
    answer = post(server, document)
    assert answer.status in (200, 500)
    assert "meta$" in answer.json()


def test_directives_of_strangers_mean_nothing(server: Server) -> None:
    directives = {
        "fatal$": True, "default$": {"x": 1}, "gate$": True, "timeout$": 1, "local$": True, "id$": "x/y",
        "sync$": False, "direct$": True, "prior$": 1, "entity$": "-/-/x", "a$b": 1,
    }  # fmt: skip
    answer = post(server, {**ECHO, "a": 1, **directives})
    assert answer.status == 200
    assert set(answer.json()) - {"a$b"} == {"a"}
    nobody = post(server, {"role": "nobody", "default$": {"x": 1}})
    assert (nobody.status, nobody.json()["code"]) == (500, "act_not_found")


@pytest.mark.parametrize("role", ["seneca", "transport"])
def test_what_is_inside_a_listener_cannot_be_reached(server: Server, role: str) -> None:
    for cmd in ("stats", "close", "listen"):
        answer = post(server, {"role": role, "cmd": cmd})
        assert (answer.status, answer.json()["code"]) == (500, "act_not_found")


@pytest.mark.parametrize("role", ["system", "raceway"])
def test_names_of_the_broker_are_refused(server: Server, role: str) -> None:
    for sync in (True, False):
        answer = post(server, seed({"role": role, "cmd": "message"}, sync=sync))
        assert answer.status == 400
        assert answer.json()["code"] == "invalid_message"
    assert rows(server, topic=f"{role}.message") == []


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def raw_request(body: bytes, *headers: str, first: str = "POST /act HTTP/1.1") -> bytes:
    lines = [first, "host: 127.0.0.1", *headers, f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_answer(stream: Any) -> Answer:
    status = int(stream.readline().split()[1])
    headers = dict(text.decode().strip().lower().split(": ", 1) for text in iter(stream.readline, b"\r\n"))
    return Answer(status, headers, stream.read(int(headers["content-length"])))


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        bodies = [encode({**ECHO, "n": n}) for n in range(50)]
        bodies[7] = b"no json"
        peer.sendall(b"".join(raw_request(body) for body in bodies))
        answers = [read_answer(stream) for _ in bodies]
    assert [answer.status for answer in answers] == [400 if n == 7 else 200 for n in range(50)]
    assert [answer.json()["n"] for n, answer in enumerate(answers) if n != 7] == [n for n in range(50) if n != 7]


def test_a_request_may_come_byte_by_byte(server: Server) -> None:
    data = raw_request(encode({**ECHO, "n": "é"}))
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        for at in range(len(data)):
            peer.sendall(data[at : at + 1])
        assert read_answer(stream).json() == {"n": "é"}


def test_connections_stay_open_unless_asked_otherwise(server: Server) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        for _ in range(3):
            peer.sendall(raw_request(encode(ECHO)))
            assert read_answer(stream).status == 200
        peer.sendall(raw_request(encode(ECHO), "connection: close"))
        answer = read_answer(stream)
        assert answer.headers["connection"] == "close"
        assert stream.read() == b""


def test_who_asks_before_sending_is_told_to_go_on(server: Server) -> None:
    body = encode({**ECHO, "n": 1})
    data = raw_request(body, "expect: 100-continue")
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        peer.sendall(data[: -len(body)])
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        peer.sendall(body)
        assert read_answer(stream).json() == {"n": 1}


def test_chunked_bodies_are_read(server: Server) -> None:
    body = encode({**ECHO, "n": 1})
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body))) + b"0\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        peer.sendall(b"POST /act HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
        assert read_answer(stream).json() == {"n": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"POST /act HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n{}",
        b"POST /act HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /act HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /act HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_and_closed(server: Server, data: bytes) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        peer.sendall(data)
        found = stream.read()
    assert found == b"" or re.match(rb"HTTP/1\.1 4\d\d ", found)


def test_a_head_over_the_limit_is_refused(server: Server) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer,
        peer.makefile("rb") as stream,
    ):
        with suppress(ConnectionError):
            peer.sendall(raw_request(b"{}", "x-long: " + "y" * 200_000))
        with suppress(ConnectionError):
            assert re.match(rb"HTTP/1\.1 4\d\d ", stream.read())


def test_a_head_that_does_not_come_is_not_waited_for(server: Server) -> None:
    with ExitStack() as stack:
        peers = []
        for _ in range(100):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S))
            peer.sendall(b"POST /act HTTP/1.1\r\nhost:")
            peers.append(peer)
        began = time.monotonic()
        for peer in peers:
            with suppress(ConnectionError):
                while peer.recv(1000):
                    pass
        assert time.monotonic() - began < DEADLINE_S


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}]
)
def test_pages_of_other_sites_are_refused(server: Server, headers: dict[str, str]) -> None:
    assert post(server, {**ECHO}, {**JSON, **headers}).status == 403


def test_names_that_are_ours_are_allowed(server: Server) -> None:
    assert post(server, {**ECHO, "n": 1}, {**JSON, "Host": "bus.example"}).json() == {"n": 1}


def test_a_caller_that_leaves_costs_nothing(server: Server) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port("seneca")), DEADLINE_S) as peer:
            peer.sendall(raw_request(encode({**ECHO, "n": 1})))


# ---- lines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [b"{", b"nonsense", b"[1,2]", b'"x"', b"7", b"\xff\xfe", b'{"kind":"act","act":'])
def test_a_line_that_is_no_document_closes_the_connection_without_a_word_that_is_no_json(
    server: Server, bad: bytes
) -> None:
    with Lines(server.port("seneca_tcp")) as lines:
        lines.send(bad)
        with suppress(EOFError):
            while True:
                lines.receive()  # a line that is no JSON would kill a real Node client


@pytest.mark.parametrize("bad", [{"kind": "res"}, {"id": None}, {"error": {"code": "x"}}, {"act": 5}, {"act": None}])
def test_a_line_that_is_no_request_is_refused_if_an_answer_is_wanted(server: Server, bad: dict[str, Any]) -> None:
    whole = line({**ECHO, "n": 1})
    for name, value in bad.items():
        whole[name] = value
    with Lines(server.port("seneca_tcp")) as lines:
        lines.send(whole)
        answer = lines.receive()
        assert answer["kind"] == "res"
        assert answer["error"]
        assert lines.ask(line({**ECHO, "n": 2}))["res"] == {"n": 2}, "the connection goes on"
        lines.send({**whole, "sync": False})
        assert lines.ask(line({**ECHO, "n": 3}))["res"] == {"n": 3}, "nothing came before"


def test_blank_lines_and_carriage_returns_are_no_harm(server: Server) -> None:
    with Lines(server.port("seneca_tcp")) as lines:
        lines.socket.sendall(b"\n\r\n \n" + encode(line({**ECHO, "n": 1})) + b"\r\n")
        assert lines.receive()["res"] == {"n": 1}


def test_lines_may_come_in_pieces_and_many_at_once(server: Server) -> None:
    with Lines(server.port("seneca_tcp")) as lines:
        data = b"".join(encode(line({**ECHO, "n": n}, id=f"m{n}/{new_id('c')}")) + b"\n" for n in range(100))
        for at in range(0, len(data), 97):
            lines.socket.sendall(data[at : at + 97])
        answers = [lines.receive() for _ in range(100)]
    assert sorted(answer["res"]["n"] for answer in answers) == list(range(100))
    assert all(answer["id"].startswith(f"m{answer['res']['n']}/") for answer in answers)


def test_a_line_without_end_is_cut_off(server: Server) -> None:
    before = server.rss()
    with socket.create_connection(("127.0.0.1", server.port("seneca_tcp")), DEADLINE_S) as peer:
        with suppress(ConnectionError):
            for _ in range(64):
                peer.sendall(b"x" * MIB)
        with suppress(ConnectionError):
            while peer.recv(65536):
                pass
    assert server.rss() - before < GROWTH


# ---- anything -------------------------------------------------------------------------------------------------------


def test_random_bytes_on_both_doors_are_survived(server: Server) -> None:
    chosen = seeded("seneca bytes")
    for _ in range(rounds(30)):
        goods: dict[Door, bytes] = {"seneca": raw_request(encode(seed(ECHO))), "seneca_tcp": encode(line(ECHO)) + b"\n"}
        for door, good in goods.items():
            data = bytearray(good * 3)
            for _ in range(chosen.randrange(1, 8)):
                data[chosen.randrange(len(data))] = chosen.randrange(256)
            with (
                socket.create_connection(("127.0.0.1", server.port(door)), DEADLINE_S) as peer,
                suppress(ConnectionError),
            ):
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass


def test_many_connections_that_say_nothing_leave_room_for_others(server: Server) -> None:
    with ExitStack() as stack:
        for port in (server.port("seneca"), server.port("seneca_tcp")):
            for _ in range(200):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        with Http(server.port("seneca")) as http:
            assert http.post({**ECHO, "n": 1}).json() == {"n": 1}
    wait_until(lambda: post(server, {**ECHO, "n": 1}).status == 200, 5)
