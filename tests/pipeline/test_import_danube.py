"""Danube captures: every message gets the codec's verdict, and its fields the columns they have on the bus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raceway import config
from raceway.pipeline.imports.pieces import cut, form_of
from raceway.wires.danube.capture import reader as danube
from raceway.wires.danube.codec.fields import varint
from raceway.wires.danube.codec.pb.danube_api_pb2 import MsgID, StreamMessage
from raceway.wires.danube.codec.rows import SendLimits, decode_sends
from tests.pipeline.captures import Verdict, capture, verdicts

hostile = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
COMPARED = (
    "topic", "kind", "message_id", "parent_id", "sent_ms", "producer_id", "schema_id", "schema_version", "routing_key",
    "attributes", "payload",
)  # fmt: skip


def message(topic: str = "/default/events", **fields: Any) -> bytes:
    values: dict[str, Any] = {"request_id": 2, "msg_id": MsgID(producer_id=7, topic_name=topic), "payload": b"x"}
    return StreamMessage(**(values | fields)).SerializeToString()


def delimited(messages: list[bytes]) -> bytes:
    return b"".join(varint(len(each)) + each for each in messages)


def expected(sent: bytes) -> Verdict:
    """What the codec says of one message."""
    batch, rows, _, refused = decode_sends([sent], SendLimits())
    if not rows:
        ((_, error),) = refused
        return Verdict(None, error.code, str(error), sent[: 64 * 1024])
    (row,) = batch
    return Verdict({name: getattr(row, name) for name in COMPARED})


def assert_agrees(folder: Path, messages: list[bytes]) -> None:
    found = verdicts(capture(folder, "danube", delimited(messages)))
    assert len(found) == len(messages)
    for ours, sent in zip(found, messages, strict=True):
        theirs = expected(sent)
        assert (ours.code, ours.reason, ours.payload) == (theirs.code, theirs.reason, theirs.payload)
        if theirs.row is not None:
            assert ours.row is not None
            assert {name: ours.row[name] for name in theirs.row} == theirs.row


numbers = st.sampled_from([0, 1, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
texts = st.sampled_from(["", "a", "é", "x" * 300])
messages: st.SearchStrategy[bytes] = st.one_of(
    st.builds(
        message,
        topic=st.sampled_from(["/default/a", "/shop/a.b", "a", "", "/default/", "/de.f/a", "/default/a b", "/a/b/c"]),
        publish_time=numbers,
        request_id=numbers,
        producer_name=texts,
        schema_id=st.one_of(st.none(), numbers),
        schema_version=st.one_of(st.none(), st.sampled_from([0, 5, 2**32 - 1])),
        routing_key=st.one_of(st.none(), texts),
        attributes=st.dictionaries(st.sampled_from(["x-parent-id", "x-correlation-id", "a"]), texts),
        payload=st.binary(max_size=10),
    ),
    st.binary(max_size=30),
    st.just(StreamMessage(payload=b"no id").SerializeToString()),
)


@hostile
@given(st.lists(messages, max_size=10))
@example([message(attributes={str(n): "" for n in range(129)}), message(attributes={"a": "x" * 65_537}), b""])
def test_messages_get_the_codecs_verdict_and_fields(tmp_path: Path, found: list[bytes]) -> None:
    assert_agrees(tmp_path, found)


def test_a_message_tells_its_producer_its_chain_and_when_it_was_sent(tmp_path: Path) -> None:
    chained = {"x-parent-id": "7-1", "x-correlation-id": "root"}
    sent = [message(publish_time=2, producer_name="p", attributes=chained), message(publish_time=1, request_id=9)]
    first, second = (each.row or {} for each in verdicts(capture(tmp_path, "danube", delimited(sent))))
    assert (first["producer"], first["parent_id"], first["correlation_id"]) == ("p", "7-1", "root")
    assert (second["producer"], second["message_id"], second["correlation_id"]) == (None, "7-9", "7-9")
    assert (first["time_us"], second["time_us"], second["sent_ms"]) == (2000, 2000, 1)


def test_a_file_that_is_cut_off_anywhere_keeps_its_whole_messages(tmp_path: Path) -> None:
    sent = [message(), message(payload=b"y" * 200)]
    content, ends = delimited(sent), [len(delimited(sent[:1])), len(delimited(sent))]
    for size in range(len(content) + 1):
        found = verdicts(capture(tmp_path, "danube", content[:size]))
        whole = sum(end <= size for end in ends)
        is_cut = size not in (0, *ends)
        assert [each.row is not None for each in found] == [True] * whole + [False] * is_cut
        if is_cut:
            assert (found[-1].code, (found[-1].reason or "")[:13]) == ("malformed", "the file ends")
            assert found[-1].payload == content[ends[whole - 1] if whole else 0 : size]


@pytest.mark.parametrize(
    ("length", "code", "reason"),
    [
        (varint(4_128_769), "too_large", "message of 4128769 bytes is over the limit of 4128768"),
        (b"\xff" * 10, "malformed", "the length of a message has more than 10 bytes"),
        (b"\xff" * 9 + b"\x7f", "too_large", "message of 1180591620717411303423 bytes is over the limit of 4128768"),
    ],
)
def test_behind_a_length_that_is_not_to_be_believed_nothing_is_read(
    length: bytes, code: str, reason: str, tmp_path: Path
) -> None:
    good = delimited([message()])
    first, rest = verdicts(capture(tmp_path, "danube", good + length + good * 3))
    assert first.row is not None
    assert (rest.code, rest.reason, rest.payload) == (code, reason, length + good * 3)


def test_wherever_a_file_is_cut_into_pieces_its_rows_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = capture(tmp_path, "danube", delimited([message(request_id=n) if n % 5 else b"\xff" for n in range(40)]))
    whole = verdicts(found)
    monkeypatch.setattr(danube, "PIECE_MESSAGES", 3)
    assert verdicts(found) == whole
    monkeypatch.setattr(danube, "PIECE_BYTES", 60)
    assert verdicts(found) == whole
    assert len(cut(found.file, form_of("danube", config.Config(), found.file))) > 10
