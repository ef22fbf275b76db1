"""MB captures: the same verdict, sentence and fields as the codec gives, on every input."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raceway import config
from raceway.model.failure import maybe_failure_code
from raceway.net.codec.frames import LENGTH
from raceway.pipeline.imports.pieces import cut, form_of, parse_piece, piece_rows
from raceway.wires.captures import lines
from raceway.wires.captures.columns import BRONZE, REJECTED
from raceway.wires.mb.capture import reader as mb
from raceway.wires.mb.codec.calls import is_system, read_call, subscribe_payload
from raceway.wires.mb.codec.header import SUBSCRIBE, MbLimits, MbRefused, as_request, read_message
from raceway.wires.mb.settings import MbWire
from tests.pipeline.captures import Verdict, capture, verdicts
from tests.rigs.vectors.mb import HEADERS, VECTORS, I, P, frame

DEADLINE_MS = config.Config().broker.request_timeout_ms
LIMITS = MbLimits()
IDS = [I, P, I.upper(), "", "zzz", I[:-1], I + "0", I.replace("-", "x"), "5" * 36, "-" * 36]
ACTIONS = ["publish", "Request", "RESPONSE", "subscribe", "pub", "ПУБЛ", "İ", ""]
TOPICS = [
    *VECTORS["topics_ok"], *VECTORS["topics_bad"], *VECTORS["patterns_ok"], *VECTORS["patterns_bad"],
    "system.heartbeat", "System.Topic.Subscribe", "system.nothing", "system.service.register", "a" * 255, "a" * 256,
]  # fmt: skip
VERSIONS = [
    "1.0.0", "01.0.0", "9007199254740991.0.0", "9007199254740992.0.0", "0.9007199254740992.0", "0.0.9007199254740992",
    "1.2", "1.0.0\r", "1" * 40, "123456789012345678901.0.0", "0.0.99999999999999999", "",
]  # fmt: skip
TIMEOUTS = ["", "0", "5000", "3600000", "3600001", "00000001", "0000001", "1.5", "-5", "99999999999999", "٣"]
hostile = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def expected(message: bytes) -> Verdict:
    """What the codec says of one message, as a row."""
    found = read_message(message, LIMITS)
    if isinstance(found, MbRefused):
        return Verdict(None, found.code, found.text, message)
    head, payload = found
    if head.action == SUBSCRIBE or is_system(head.topic):
        if head.action == SUBSCRIBE:
            payload, head = subscribe_payload(head.topic, payload), as_request(head)
        call = read_call(head, payload)
        if isinstance(call, MbRefused):
            return Verdict(None, call.code, call.text, message)
    kind = head.action.decode()
    failure = maybe_failure_code(payload) if kind == "response" else None
    return Verdict(
        {
            "kind": kind,
            "topic": head.topic.decode(),
            "version": head.version.decode(),
            "message_id": _maybe_text(head.message_id),
            "parent_id": _maybe_text(head.parent_id),
            "timeout_ms": DEADLINE_MS if kind == "request" and head.timeout_ms is None else head.timeout_ms,
            "error": _maybe_text(failure),
            "payload": payload,
        }
    )


def _maybe_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def assert_same(found: list[Verdict], wanted: list[Verdict]) -> None:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours.code, ours.reason, ours.payload) == (theirs.code, theirs.reason, theirs.payload)
        if theirs.row is not None:
            assert ours.row is not None
            assert {name: ours.row[name] for name in theirs.row} == theirs.row


def assert_agrees(folder: Path, messages: list[bytes]) -> None:
    found = verdicts(capture(folder, "mb", b"".join(map(frame, messages))))
    assert_same(found, [expected(message) for message in messages])


def escaped(message: bytes) -> bytes:
    return message.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")


fields: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from(IDS).map(str.encode),
    st.sampled_from([b"publish", b"REQUEST", b"response", b"subscribe", b"a.b", b"1.0.0", b"5000", b"3600001", b"-1"]),
    st.binary(max_size=6),
)
headers: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from([header.encode() for header, _, _ in HEADERS]),
    st.lists(fields, max_size=8).map(b":".join),
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from(TOPICS),
        st.sampled_from(VERSIONS),
        st.sampled_from(IDS),
        st.sampled_from(IDS),
        st.sampled_from(TIMEOUTS),
    ).map(lambda each: ":".join(each).encode()),
)  # fmt: skip
payloads: st.SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"", b"{}", b"null", b"[]", b"{", b"error:{}", b'{"error":{"code":"E"}}', b'{"error":7}', b"\n\n",
                     b'{"action":"publish","topic":"a.#"}', b'{"name":"n","description":"d"}', b"x" * 16_384,
                     b"x" * 16_385, b'error:{"code":"C","message":"m","timestamp":"t"}']),
)  # fmt: skip
messages: st.SearchStrategy[bytes] = st.one_of(
    st.tuples(headers, payloads).map(b"\n".join), st.binary(max_size=40), headers
)


@pytest.mark.parametrize(("header", "is_good", "start"), HEADERS)
def test_every_header_of_the_specification_is_judged_as_it_says(
    header: str, is_good: bool, start: str, tmp_path: Path
) -> None:
    (found,) = verdicts(capture(tmp_path, "mb", frame(header.encode() + b"\n{}")))
    assert (found.row is not None) == is_good
    assert is_good or (found.reason or "").startswith(start)


def test_every_value_of_a_field_with_every_value_of_another_gets_the_codecs_verdict(tmp_path: Path) -> None:
    """All pairs in one file: what is examined once for each spelling must not rub off on its neighbours."""
    usual = ["request", "a.b", "1.0.0", I, P, "5000"]
    odd = [ACTIONS, TOPICS, VERSIONS, IDS, IDS, TIMEOUTS]
    spelled = []
    for (one, ones), (other, others) in combinations(enumerate(odd), 2):
        for first, second in product(ones, others):
            header = [*usual]
            header[one], header[other] = first, second
            spelled.append(":".join(header).encode() + b"\n{}")
    assert_agrees(tmp_path, [each for each in spelled if len(each) <= LIMITS.frame_limit])


@hostile
@given(st.lists(messages, max_size=12))
@example([b"publish:a:1.0.0\nx" * 1100, b"request:a.b:1.0.0:" + I.encode() + b"::12\n\xff", b"", b"\n", b":::::"])
@example([b"subscribe:a.#:1.0.0:" + I.encode() + b"\n", b"subscribe:a.#:1.0.0:" + I.encode() + b"\n{"])
@example([b"x" * 367 + b"\n", b"x" * 368 + b"\n", b"publish:a:1.0.0:" + b":" * 400 + b"\n"])
def test_frames_get_the_codecs_verdict_and_fields(tmp_path: Path, found: list[bytes]) -> None:
    assert_agrees(tmp_path, [each for each in found if len(each) <= LIMITS.frame_limit])


@hostile
@given(st.lists(messages.filter(bool), min_size=1, max_size=12))
@example([b"publish:a:1.0.0\n\\n\\\\n\\\n"])
def test_lines_get_the_codecs_verdict_and_fields(tmp_path: Path, found: list[bytes]) -> None:
    spoken = [b"publish:a.b:1.0.0\nfirst", *found]
    wanted = []
    for line in spoken:
        verdict = expected(line)
        if len(line) > LIMITS.frame_limit:
            reason = f"frame of {len(line)} bytes is over the limit of {LIMITS.frame_limit}"
            verdict = Verdict(None, "MALFORMED_MESSAGE", reason)
        wanted.append(verdict if verdict.row else verdict._replace(payload=escaped(line)))
    assert_same(verdicts(capture(tmp_path, "mb", b"\n".join(map(escaped, spoken)))), wanted)


def test_a_line_with_another_escape_is_refused_and_the_next_one_is_read(tmp_path: Path) -> None:
    content = rb"""publish:a.b:1.0.0\n{"text":"\"quoted\""}
publish:a.b:1.0.0\n\\n

publish:a.b:1.0.0\nends with \
publish:a.b:1.0.0\n"""
    first, second, third, fourth = verdicts(capture(tmp_path, "mb", content))
    assert first.reason == third.reason == "invalid escape: a backslash must be followed by n or a backslash"
    assert second.row is not None
    assert second.row["payload"] == b"\\n"
    assert fourth.row is not None
    assert fourth.row["payload"] == b""


def test_a_file_that_is_cut_off_anywhere_keeps_its_whole_frames(tmp_path: Path) -> None:
    several = [frame(b"publish:a.b:1.0.0\n" + b"x" * size) for size in (0, 3, 1)]
    content = b"".join(several)
    ends = [sum(map(len, several[: number + 1])) for number in range(3)]
    for size in range(len(content) + 1):
        found = verdicts(capture(tmp_path, "mb", content[:size]))
        whole = sum(end <= size for end in ends)
        assert [each.row is not None for each in found[:whole]] == [True] * whole
        is_cut = size not in (0, *ends)
        assert len(found) == whole + is_cut
        if is_cut:
            assert found[-1].code == "MALFORMED_MESSAGE"
            assert (found[-1].reason or "").startswith("the file ends")
            assert found[-1].payload == content[ends[whole - 1] if whole else 0 : size]


def test_behind_a_frame_that_is_too_long_nothing_is_read(tmp_path: Path) -> None:
    good, limit = frame(b"publish:a.b:1.0.0\n"), LIMITS.frame_limit
    assert verdicts(capture(tmp_path, "mb", frame(b"x" * limit) + good))[1].row is not None
    first, rest = verdicts(capture(tmp_path, "mb", good + frame(b"x" * (limit + 1)) + good * 5000))
    assert first.row is not None
    assert rest.reason == f"frame of {limit + 1} bytes is over the limit of {limit}"
    assert rest.payload is not None
    assert len(rest.payload) == 64 * 1024


def test_a_larger_payload_is_good_where_the_settings_allow_it(tmp_path: Path) -> None:
    large = capture(tmp_path, "mb", frame(b"publish:a.b:1.0.0\n" + b"x" * 20_000))
    allowed = config.Config(listen=config.Listen(wires=(MbWire(payload_limit=20_000),)))
    assert verdicts(large)[0].row is None
    assert verdicts(large, allowed)[0].row is not None


@pytest.mark.parametrize("is_lines", [False, True])
def test_wherever_a_file_is_cut_into_pieces_its_rows_are_the_same(
    is_lines: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"publish:a.b:1.0.0:%b\n%b" % (I.encode(), b"\\" * size) for size in range(40)]
    messages = [body if number % 7 else body[10:] for number, body in enumerate(bodies)]
    content = b"\n".join(map(escaped, messages)) if is_lines else b"".join(map(frame, messages))
    found = capture(tmp_path, "mb", content)
    whole = verdicts(found)
    for module in (mb, lines):
        monkeypatch.setattr(module, "PIECE_MESSAGES", 7)
    assert verdicts(found) == whole
    monkeypatch.setattr(mb if not is_lines else lines, "PIECE_BYTES", 100)
    assert verdicts(found) == whole
    assert len(cut(found.file, form_of("mb", config.Config(), found.file))) > 10


@given(
    st.lists(st.one_of(st.binary(max_size=400), st.sampled_from([b"", bytes(2), bytes(300), b"a\0", b"\0\0\0\5a"]))),
    st.sampled_from([b"", bytes(1), bytes(3), b"\0\0\1\0", b"\0\0\0\2a"]),
    st.integers(4, 500),
)
def test_frames_end_where_a_walk_over_their_lengths_says(bodies: list[bytes], rest: bytes, window: int) -> None:
    """Also where payloads look like lengths, whatever is searched at a time, and with something behind the last one."""
    content = b"".join(map(frame, bodies)) + rest
    ends = np.cumsum([LENGTH.size + len(body) for body in bodies], dtype=np.int64)
    with patch.object(mb, "_WINDOW_BYTES", window), patch.object(mb, "PIECE_MESSAGES", len(bodies) or 1):
        found = mb.split_frames(content, 0, MbLimits())
    assert found.stops.tolist() == ends.tolist()
    assert found.starts.tolist() == [end - len(body) for end, body in zip(ends.tolist(), bodies, strict=True)]
    assert (found.fault is not None) == (bool(rest) and not bodies)


def test_columns_of_codes_are_columns_of_text_in_the_file(tmp_path: Path) -> None:
    spoken = [b"publish:a.b:1.0.0", b"Request:a.b:2.0.0:%b" % I.encode(), b"publish:\xff:1.0.0", b"PUBLISH:c:1.0.0"]
    found = capture(tmp_path, "mb", b"".join(frame(header + b"\n{}") for header in spoken))
    form = form_of("mb", config.Config(), found.file)
    (piece,) = cut(found.file, form)
    told = parse_piece(found, form, 0, piece, tmp_path / "files")
    rows, refused = pq.read_table(told.messages_file), pq.read_table(told.rejected_file)
    assert (rows.schema, refused.schema) == (BRONZE, REJECTED)
    assert rows.equals(piece_rows(found, form, piece)[0].cast(BRONZE))
    assert [*zip(*(rows[name].to_pylist() for name in ("kind", "topic", "version")), strict=True)] == [
        ("publish", "a.b", "1.0.0"), ("request", "a.b", "2.0.0"), ("publish", "c", "1.0.0"),
    ]  # fmt: skip
    kinds = pq.read_metadata(told.messages_file).row_group(0).column(BRONZE.get_field_index("kind")).statistics
    assert (kinds.min, kinds.max) == ("publish", "request"), "others skip by them"
