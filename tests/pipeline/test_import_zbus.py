"""zbus captures: the same verdict, sentence and fields as the codec gives, on every input."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raceway import config
from raceway.pipeline.imports.pieces import cut, form_of
from raceway.wires.zbus.capture import reader as zbus
from raceway.wires.zbus.codec.head import ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin, Ask, Consume, Produce, ZbusEvent, ZbusHeartbeat, ZbusReceiver
from raceway.wires.zbus.codec.stream import Continue100
from tests.pipeline.captures import Verdict, capture, verdicts
from tests.rigs.vectors.zbus import SENT, corpus

LIMITS = ZbusLimits()
hostile = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
COMPARED = (
    "topic", "kind", "message_id", "parent_id", "reply_to", "routing_key", "schema_id",
    "schema_version", "encoding", "error", "attributes", "payload",
)  # fmt: skip


def expected(content: bytes) -> list[Verdict]:
    """What the codec says of a stream, message by message, up to its end."""
    receiver = ZbusReceiver(LIMITS)
    found = [verdict for event in receiver.receive_data(content) for verdict in _verdicts(event)]
    if receiver.pending:
        found.append(Verdict(None, "400", "the file ends"))
    return found


def _verdicts(event: ZbusEvent) -> Iterator[Verdict]:
    if isinstance(event, ZbusRefused):
        yield Verdict(None, str(event.status), event.text)
    elif isinstance(event, Produce | Ask):
        for row, envelope in enumerate(event.batch):
            status = event.status[row] if isinstance(event.status, list) else event.status
            error = str(status) if status is not None and status >= 400 else None
            yield Verdict({name: getattr(envelope, name) for name in COMPARED} | {"error": error})
    elif isinstance(event, Consume):
        yield _command("consume", event.mq, event.msgid)
    elif isinstance(event, ZbusHeartbeat):
        yield Verdict({"kind": "control"})
    elif isinstance(event, Admin):
        yield Verdict({"kind": "control", "topic": event.keys.get("mq", ""), "payload": event.body})
    else:
        assert isinstance(event, Continue100)


def _command(cmd: str, mq: bytes, msgid: bytes | None) -> Verdict:
    named = None if msgid is None else msgid.decode()
    return Verdict({"kind": "control", "topic": mq.decode(), "message_id": named, "attributes": {"zbus.cmd": cmd}})


def assert_agrees(folder: Path, content: bytes) -> list[Verdict]:
    found, wanted = verdicts(capture(folder, "zbus", content)), expected(content)
    assert [(each.code, _beginning(each.reason)) for each in found] == [
        (each.code, _beginning(each.reason)) for each in wanted
    ]
    for ours, theirs in zip(found, wanted, strict=True):
        if theirs.row is not None:
            assert ours.row is not None
            assert {name: ours.row[name] for name in theirs.row} == theirs.row
    return found


def _beginning(reason: str | None) -> str | None:
    """The codec only waits for more where a file ends."""
    return "the file ends" if reason is not None and reason.startswith("the file ends") else reason


def message(first: bytes, headers: list[tuple[bytes, bytes]], body: bytes, length: bytes | None) -> bytes:
    lines = [first, *(name + b":" + value for name, value in headers)]
    if length is not None:
        lines.append(b"Content-Length: " + length)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


names: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from(
        [b"cmd", b"CMD", b"mq", b"mq-reply", b"mq_reply", b"msgid", b"msgid-raw", b"msgid_raw", b"token", b"topic",
         b"ack", b"encoding", b"content-encoding", b"content-type", b"schema-id", b"schema-version", b"window",
         b"reply-code", b"reply_code", b"routing-key", b"x-shop", b"X-Shop", b"host", b"origin", b"zbus.status",
         b"sub_cmd", b"method", b"cookie", b"broker", b"", b" x", b"x y", b"content-length", b"transfer-encoding"]
    ),
    st.binary(max_size=3),
)  # fmt: skip
values: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from([b"", b" ", b" a\t ", b"0", b"007", b"12", b"999999999999999999", b"9" * 19, b"200", b"204", b"404",
                     b"99", b"600", b"utf-8", b"text/plain", b"application/json; charset=x", "é".encode(), b"\xff",
                     b"-1", b"1", b"true", b"produce", b"a\x00b", b"9999999999"]),
    st.binary(max_size=4),
)  # fmt: skip
commands = st.sampled_from([b"produce", b"request", b"consume", b"heartbeat", b"admin", b"fly", b"track_sub", b""])
firsts: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from([b"POST / HTTP/1.1", b"GET /orders", b"HTTP/1.1 500 Oh no", b"HTTP/1.1 204", b"HTTP/1.1 99 x", b"X",
                     b"GET /q?cmd=produce&&msgid=u&body=b%20c HTTP/1.1", b"GET /q?cmd=consume&window=0", b"GET  /",
                     b"POST /%zz HTTP/1.1", b"GET /?topic=%ff", b"GET /a%20b?x-shop=Nord&mq_reply=r&zbus.x=1 HTTP/1.0",
                     b"GET /q?cmd=request&body= HTTP/1.1", b"http/1.1 404 gone", b""]),
    st.binary(max_size=10),
)  # fmt: skip
good_firsts = st.sampled_from([b"POST / HTTP/1.1", b"GET /orders?x=1&schema-id=5", b"HTTP/1.1 500 Oh no"])
GOOD_NAMES = [
    b"mq", b"Mq", b"mq-reply", b"mq_reply", b"msgid", b"msgid-raw", b"topic", b"encoding", b"content-type", b"window",
    b"content-encoding", b"schema-id", b"schema-version", b"reply-code", b"X-Shop", b"x-shop", b"sub_cmd", b"broker",
]  # fmt: skip
PAIRS = [(b"204", b"a/b"), (b" a/b", b"utf-8"), (b"1", b""), (b"404", b"200")]
good_names = st.sampled_from(GOOD_NAMES)
good_values = st.sampled_from(
    [b" a", b"", b" 12", b" 007", b" 200", b" 404", b" 204", b" text/plain", b" utf-8", " é".encode(), b" a/b"]
)
bodies = st.binary(max_size=8)


@st.composite
def wild(draw: st.DrawFn) -> bytes:
    body = draw(bodies)
    length = draw(st.sampled_from([str(len(body)).encode(), b"3", b"x", b"", b"+1", b"0" * 30, b"9" * 30, None]))
    headers = draw(st.lists(st.tuples(names, values), max_size=5))
    return message(draw(firsts), [(b"cmd", draw(commands)), *headers], body, length)


@st.composite
def tame(draw: st.DrawFn) -> bytes:
    """Well framed: many rows of all kinds in one file."""
    body = draw(bodies)
    headers = draw(st.lists(st.tuples(good_names, good_values), max_size=6))
    named = [(b"cmd", draw(commands))] if draw(st.booleans()) else []
    return message(draw(good_firsts), [*named, *headers], body, str(len(body)).encode())


@pytest.mark.parametrize(("vector", "data"), SENT, ids=[vector for vector, _ in SENT])
def test_every_message_of_the_vectors_gets_the_codecs_verdict(vector: str, data: bytes, tmp_path: Path) -> None:
    assert_agrees(tmp_path, data)


def test_all_messages_of_the_vectors_in_one_file(tmp_path: Path) -> None:
    found = assert_agrees(tmp_path, b"".join(data for _, data in SENT if b"many" not in data))
    assert {each.row["kind"] for each in found if each.row} == {"publish", "request", "control"}


@pytest.mark.parametrize("file", corpus(), ids=lambda file: file.name)
def test_kept_hostile_inputs_get_the_codecs_verdict(file: Path, tmp_path: Path) -> None:
    assert_agrees(tmp_path, file.read_bytes())


def test_every_two_headers_together_get_the_codecs_verdict(tmp_path: Path) -> None:
    """All pairs in one file: spellings of one key, what a status allows, which label is the encoding."""
    spelled = []
    for (first, second), values, body in product(product(GOOD_NAMES, repeat=2), PAIRS, (b"", b"x")):
        headers = [(b"cmd", b"produce"), (first, values[0]), (second, values[1])]
        spelled.append(message(b"GET /q?mq_reply=u&x=1 HTTP/1.1", headers, body, b"%d" % len(body)))
    assert len(assert_agrees(tmp_path, b"".join(spelled))) == len(spelled)


@hostile
@given(st.lists(st.one_of(wild(), tame()), max_size=5), st.binary(max_size=8))
@example([b"POST / HTTP/1.1\r\ncmd: produce\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\nx"], b"")
@example([b"POST / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", b"POST / HTTP/1.1\r\ncmd: produce\r\n\r\n"], b"")
@example([b"POST / HTTP/1.1\r\norigin: a\r\nOrigin: b\r\nhost: a\r\nhost: a\r\n\r\n"], b"")
@example([b"POST / HTTP/1.1\r\n folded\r\nx y: 1\r\n\r\n"], b"")
@example([b"POST / HTTP/1.1\r\n" + b"a:b\r\n" * 201 + b"\r\n"], b"")
@example([b"POST / HTTP/1.1\r\n" + b"a:b\r\n" * 20_000 + b"\r\n"], b"")
def test_any_stream_gets_the_codecs_verdicts_and_fields(tmp_path: Path, found: list[bytes], tail: bytes) -> None:
    assert_agrees(tmp_path, b"".join(found) + tail)


@hostile
@given(st.lists(tame(), max_size=12))
def test_well_framed_streams_get_the_codecs_fields(tmp_path: Path, found: list[bytes]) -> None:
    assert len(assert_agrees(tmp_path, b"".join(found))) == len(found)


def test_a_file_that_is_cut_off_anywhere_keeps_its_whole_messages(tmp_path: Path) -> None:
    several = [
        message(b"POST / HTTP/1.1", [(b"cmd", b"produce"), (b"mq", b"q")], b"x" * size, b"%d" % size) for size in (0, 3)
    ]
    content, ends = b"".join(several), [len(several[0]), len(several[0] + several[1])]
    for size in range(len(content) + 1):
        found = assert_agrees(tmp_path, content[:size])
        whole = sum(end <= size for end in ends)
        is_cut = size not in (0, *ends)
        assert [each.row is not None for each in found] == [True] * whole + [False] * is_cut
        if is_cut:
            assert found[-1].payload == content[ends[whole - 1] if whole else 0 : size]


@pytest.mark.parametrize(
    "doubtful",
    [
        b"POST / HTTP/1.1\r\ncmd: produce\r\ncontent-length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\ncmd: produce\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ncmd: produce\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\ncmd : produce\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"x" * 65_536,
    ],
)
def test_where_framing_breaks_the_rest_of_the_file_is_one_refused_row(
    doubtful: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = message(b"POST / HTTP/1.1", [(b"cmd", b"produce"), (b"mq", b"q")], b"x", b"1")
    rest = doubtful + good * 9
    monkeypatch.setattr(zbus, "PIECE_MESSAGES", 3)
    found = assert_agrees(tmp_path, good * 4 + rest)
    assert [each.row is not None for each in found] == [True] * 4 + [False]
    assert found[-1].payload == rest[: 64 * 1024]


def test_wherever_a_file_is_cut_into_pieces_its_rows_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = capture(tmp_path, "zbus", b"".join(data for _, data in SENT if b"many" not in data))
    whole = verdicts(found)
    monkeypatch.setattr(zbus, "PIECE_MESSAGES", 4)
    assert verdicts(found) == whole
    monkeypatch.setattr(zbus, "PIECE_BYTES", 100)
    assert verdicts(found) == whole
    assert len(cut(found.file, form_of("zbus", config.Config(), found.file))) > 10
