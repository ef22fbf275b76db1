"""The MB receiver: whole, in pieces and with tails; fast and strict agree; batches; limits."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.model.intents.batches import Publish, Request, Respond
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Heartbeat, ListPeers, ReadMetrics, Subscribe
from raceway.wires.mb.codec.header import MbHeader, MbLimits, MbRefused
from raceway.wires.mb.codec.receiver import (
    ALIKE,
    REMEMBERED_HEADS,
    HeartbeatAnswer,
    MbEvent,
    MbReceiver,
    Oversized,
    SystemCall,
    _known_heads,
)
from tests.rigs.mb_events import flat, strictly
from tests.rigs.vectors.mb import EXAMPLE_HEADERS, HEADERS, I, P, frame

LIMITS = MbLimits()
ID, PARENT = I.encode(), P.encode()
OTHER = b"11111111-2222-4333-8444-555555555555"

MESSAGES = [header.encode() + b"\n{}" for header, _, _ in HEADERS]
MESSAGES += [header.encode() + b"\n{}" for header, _ in EXAMPLE_HEADERS]
MESSAGES += [b"", b"\n", b"publish:a:1.0.0\n", b"x" * 368 + b"\n", b"publish:a:1.0.0\nline\nline"]


def tcp() -> MbReceiver:
    return MbReceiver(LIMITS, framed=True)


def received(*messages: bytes) -> list[MbEvent]:
    return tcp().receive_data(b"".join(map(frame, messages)))


# ---- every sample: whole, byte by byte, with a tail, at every split -------------------------------------------------


@pytest.mark.parametrize("message", MESSAGES)
def test_sample_is_read_alike_whole_bytewise_with_a_tail_and_over_websocket(message: bytes) -> None:
    expected = strictly([message], LIMITS)
    data = frame(message)
    assert flat(tcp().receive_data(data)) == expected

    bytewise = tcp()
    *begun, last = (data[at : at + 1] for at in range(len(data)))
    assert [bytewise.receive_data(byte) for byte in begun] == [[]] * len(begun)
    assert bytewise.pending == len(begun)
    assert flat(bytewise.receive_data(last)) == expected
    assert bytewise.pending == 0

    with_tail = tcp()
    assert flat(with_tail.receive_data(data + data[:3])) == expected
    assert with_tail.pending == 3
    assert flat(with_tail.receive_data(data[3:])) == expected

    assert flat(MbReceiver(LIMITS, framed=False).receive_messages([message])) == expected
    assert flat(MbReceiver(LIMITS, framed=False).receive_data(message)) == expected


def test_all_samples_in_one_buffer_come_in_order_wherever_it_is_cut() -> None:
    data = b"".join(map(frame, MESSAGES))
    expected = strictly(MESSAGES, LIMITS)
    for cut in range(0, len(data) + 1, 7):
        receiver = tcp()
        assert flat(receiver.receive_data(data[:cut]) + receiver.receive_data(data[cut:])) == expected


# ---- fast and strict ------------------------------------------------------------------------------------------------

good_ids = st.sampled_from([ID, ID.upper(), OTHER])
bad_ids = st.sampled_from(
    [
        PARENT,
        ID[:-1] + b"g",
        b"-" * 36,
        b":" * 36,
        b"\n" + ID[1:],
        ID[:20] + b"\n" + ID[21:],
        ID[:8] + b"a" + ID[9:],
        ID[:19] + b"c" + ID[20:],
        b"x",
        ID[1:],
        ID + b"0",
    ]
)
starts = st.sampled_from(
    [
        b"publish:a.b:1.0.0",
        b"PUBLISH:a.b:1.0.0",
        b"publish:a.c:1.0.0",
        b"publish:a.b:2.0.0",
        b"request:a.b:1.0.0",
        b"response:a.b:1.0.0",
        b"subscribe:a.#:1.0.0",
        b"publish:a b:1.0.0",
        b"request:system.heartbeat:1.0.0",
        b"response:System.Heartbeat:1.0.0",
        b"nope:a:1.0.0",
        b"publish:a.b:1.0",
        b"request:system.topic.list:1.0.0",
        b"publish",
    ]
)
tails = st.sampled_from(
    [
        b"",
        b":",
        b"::",
        b":" + PARENT,
        b"::5000",
        b":" + ID + b":1",
        b"::3600001",
        b"::00005000",
        b":x",
        b":::",
        b"::12345678",
        b"::\xd9\xa3",
        b"\r",
    ]
)
payloads = st.sampled_from(
    [b"", b"{}", b"\n", b"x" * 20, b"\xff", b"publish:a.b:1.0.0\n{}", b"x" * 16384, b"x" * 16385]
)
headers = st.one_of(
    starts,
    st.tuples(starts, st.just(b":"), good_ids | bad_ids).map(b"".join),
    st.tuples(starts, st.just(b":"), good_ids | bad_ids, tails).map(b"".join),
    st.binary(max_size=60),
)
message_lists = st.lists(
    st.tuples(
        st.one_of(st.tuples(headers, st.just(b"\n"), payloads).map(b"".join), headers),
        st.sampled_from([1, 1, 2, 2 * ALIKE]),
    ),
    max_size=12,
).map(lambda counted: [message for message, count in counted for _ in range(count)])


def _learn(receiver: MbReceiver) -> None:
    """Afterwards the receiver knows the good heads, and the shape of a publish with an id."""
    message = b"publish:a.b:1.0.0:" + ID + b"\n{}"
    assert len(flat(receiver.receive_data(frame(message) * 2 * ALIKE))) == 2 * ALIKE
    receiver.receive_data(frame(b"request:a.b:1.0.0:" + ID + b"::5\n") + frame(b"response:a.b:1.0.0:" + ID + b"\n"))


@settings(max_examples=300)
@given(message_lists, st.booleans(), st.lists(st.integers(0, 4000), max_size=4))
def test_fast_path_agrees_with_the_strict_one_on_any_frames_cut_anywhere(
    messages: list[bytes], learned: bool, cuts: list[int]
) -> None:
    receiver = tcp()
    if learned:
        _learn(receiver)
    data = b"".join(map(frame, messages))
    events: list[MbEvent] = []
    for first, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        events += receiver.receive_data(data[first:end])
    assert flat(events) == strictly(messages, LIMITS)


@given(message_lists)
def test_fast_path_agrees_with_the_strict_one_over_websocket(messages: list[bytes]) -> None:
    receiver = MbReceiver(LIMITS, framed=False)
    assert flat(receiver.receive_messages(messages)) == strictly(messages, LIMITS)


@given(st.lists(st.binary(max_size=300), max_size=6), st.booleans())
def test_no_stream_of_bytes_upsets_the_receiver(pieces: list[bytes], small: bool) -> None:
    receiver = tcp()
    for piece in pieces:
        receiver.receive_data(b"\0\0\0" + piece if small else piece)
    assert receiver.pending <= 4 + LIMITS.frame_limit


@pytest.mark.parametrize("bad", [0, 1, 40, 63])
def test_one_bad_id_among_many_is_refused_alone_and_in_its_place(bad: int) -> None:
    messages = [b"publish:a.b:1.0.0:%b\n%d" % (ID if row != bad else PARENT, row % 8) for row in range(64)]
    receiver = tcp()
    _learn(receiver)
    data = b"".join(map(frame, messages))
    assert flat(receiver.receive_data(data)) == strictly(messages, LIMITS)
    assert flat(receiver.receive_data(data)) == strictly(messages, LIMITS)


def test_newline_of_another_frame_does_not_complete_a_header() -> None:
    tcp().receive_data(frame(b"publish:a:1.0.0\n{}"))
    events = tcp().receive_data(frame(b"publish:a") + b":1.0.0\n{}")
    assert isinstance(events[0], MbRefused)
    assert isinstance(events[1], Oversized)


def test_timeout_longer_than_the_configured_one_may_have_digits_is_refused_on_both_paths() -> None:
    receiver = MbReceiver(MbLimits(timeout_max_ms=999), framed=True)
    good, bad = b"request:a:1.0.0:" + ID + b"::999\n", b"request:a:1.0.0:" + ID + b"::0999\n"
    kinds = [type(event) for event in receiver.receive_data(frame(good) + frame(good) + frame(bad))]
    assert kinds == [Request, MbRefused]


def test_what_is_remembered_is_bounded() -> None:
    receiver = tcp()
    for number in range(REMEMBERED_HEADS + 10):
        receiver.receive_data(frame(b"publish:topic%d:1.0.0\n" % number))
    assert len(_known_heads.starts) <= REMEMBERED_HEADS
    assert len(_known_heads.whole) <= REMEMBERED_HEADS
    assert flat(receiver.receive_data(frame(b"publish:topic1:1.0.0\n")))[0][1] == b"topic1"


# ---- batches --------------------------------------------------------------------------------------------------------


def columns(event: MbEvent) -> dict[str, Any]:
    assert isinstance(event, Publish | Request | Respond)
    return dict(vars(event.batch))


def test_messages_of_one_topic_without_ids_are_one_batch_of_few_columns() -> None:
    (event,) = received(b"publish:a.b:1.0.0\none", b"publish:a.b:1.0.0\ntwo")
    assert isinstance(event, Publish)
    assert columns(event) == {
        "count": 2,
        "wire": b"mb",
        "kind": b"publish",
        "topic": b"a.b",
        "version": b"1.0.0",
        "payload": [b"one", b"two"],
    }


def test_columns_become_lists_only_where_rows_differ() -> None:
    (event,) = received(b"publish:a:1.0.0\n", b"publish:b:1.0.0:" + ID + b"\n", b"publish:B:1.0.0::" + PARENT + b"\n")
    found = columns(event)
    assert found["topic"] == [b"a", b"b", b"B"]
    assert found["version"] == b"1.0.0"
    assert found["message_id"] == [None, ID, None]
    assert found["parent_id"] == [None, None, PARENT]
    assert "timeout_ms" not in found


def test_each_run_of_one_action_is_one_event() -> None:
    request, response = b"request:a:1.0.0:" + ID + b"::7\n", b"response:a:1.0.0:" + ID + b"\n"
    events = received(b"publish:a:1.0.0\n", request, request, response, b"publish:a:1.0.0\n")
    assert [type(event) for event in events] == [Publish, Request, Respond, Publish]
    assert columns(events[1])["timeout_ms"] == [7, 7]
    assert columns(events[1])["message_id"] == [ID, ID]
    assert columns(events[2]).get("timeout_ms") is None


def test_other_events_stand_between_the_batches_in_order() -> None:
    publish = b"publish:a:1.0.0\n"
    events = received(publish, b"bad\n", publish, b"request:system.heartbeat:1.0.0:" + ID + b"\n", publish)
    assert [type(event) for event in events] == [Publish, MbRefused, Publish, SystemCall, Publish]


def test_case_of_the_topic_is_kept() -> None:
    (event,) = received(b"Publish:Orders.Created:1.0.0\n")
    assert columns(event)["topic"] == b"Orders.Created"
    assert columns(event)["kind"] == b"publish"


def test_bare_word_system_is_an_ordinary_topic() -> None:
    (event,) = received(b"publish:system:1.0.0\n")
    assert isinstance(event, Publish)


# ---- system topics --------------------------------------------------------------------------------------------------


def test_request_on_a_system_topic_in_any_case_is_a_call() -> None:
    (event,) = received(b"request:System.Heartbeat:1.0.0:" + ID + b"\nnot json")
    assert event == SystemCall(MbHeader(b"request", b"System.Heartbeat", b"1.0.0", ID), Heartbeat(), b"not json")


@pytest.mark.parametrize("header", [b"response:system.heartbeat:1.0.0", b"response:SYSTEM.heartbeat:1.0.0:" + ID])
def test_heartbeat_response_with_or_without_id_needs_no_reply(header: bytes) -> None:
    (event,) = received(header + b"\n{}")
    assert isinstance(event, HeartbeatAnswer)


def test_publish_on_a_system_topic_is_a_call_that_is_refused() -> None:
    (event,) = received(b"publish:system.message:1.0.0\n{}")
    assert isinstance(event, SystemCall)
    assert isinstance(event.call, MbRefused)
    assert event.call.text == "Invalid action, expected REQUEST for system.message"


def test_subscribe_is_short_for_the_request() -> None:
    (event,) = received(b"Subscribe:Market.#:2.0.0:" + ID + b"\n")
    head = MbHeader(b"request", b"system.topic.subscribe", b"2.0.0", ID)
    assert event == SystemCall(head, Subscribe("publish", "market.#"), b'{"action":"publish","topic":"Market.#"}')


def test_subscribe_takes_action_and_priority_from_its_payload_and_the_topic_from_its_header() -> None:
    (event,) = received(b"subscribe:a:1.0.0:" + ID + b'\n{"action":"request","priority":3,"topic":"b"}')
    assert isinstance(event, SystemCall)
    assert event.call == Subscribe("request", "a", 3)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"{", "Invalid JSON payload"),
        (b'{"action":"both"}', "Missing or invalid action"),
        (b'{"priority":null}', "Invalid priority"),
    ],
)
def test_subscribe_with_a_bad_payload_is_refused_like_the_request(payload: bytes, text: str) -> None:
    (event,) = received(b"subscribe:a:1.0.0:" + ID + b"\n" + payload)
    assert isinstance(event, SystemCall)
    assert isinstance(event.call, MbRefused)
    assert event.call.text == text
    assert event.call.head == MbHeader(b"request", b"system.topic.subscribe", b"1.0.0", ID)


def test_subscribe_to_answers_fails_without_asking_the_broker() -> None:
    (event,) = received(b"subscribe:a:1.0.0:" + ID + b'\n{"action":"response"}')
    assert isinstance(event, SystemCall)
    assert event.call == Done(changed=False)


def test_wish_for_all_facts_of_metrics_is_carried_along() -> None:
    full, short = received(
        b"request:system.metrics:1.0.0:" + ID + b'\n{"showAll":true}', b"request:system.metrics:1.0.0:" + ID + b"\n"
    )
    assert isinstance(full, SystemCall)
    assert isinstance(short, SystemCall)
    assert (full.call, full.show_all, short.show_all) == (ReadMetrics(), True, False)


def test_list_ignores_its_payload() -> None:
    (event,) = received(b"request:system.service.list:1.0.0:" + ID + b"\n{broken")
    assert isinstance(event, SystemCall)
    assert event.call == ListPeers()


# ---- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [16752, 0xFFFFFFFF, int.from_bytes(b"GET ", "big")])
def test_length_word_over_the_limit_ends_it_at_once_and_nothing_is_read_after_it(length: int) -> None:
    receiver = tcp()
    events = receiver.receive_data(frame(b"publish:a:1.0.0\n") + length.to_bytes(4, "big"))
    assert [type(event) for event in events] == [Publish, Oversized]
    assert events[1] == Oversized(length)
    assert receiver.receive_data(frame(b"publish:a:1.0.0\n")) == []
    assert receiver.pending == 0


def test_length_word_that_comes_bytewise_ends_it_with_its_fourth_byte() -> None:
    receiver = tcp()
    assert [receiver.receive_data(byte) for byte in (b"\0", b"\0", b"\x41")] == [[], [], []]
    assert receiver.receive_data(b"\x70") == [Oversized(16752)]


def test_frame_of_16751_bytes_is_read() -> None:
    (event,) = received(b"publish:a:1.0.0\n" + b"x" * (16751 - 16))
    assert isinstance(event, MbRefused)
    assert event.details == {"payloadLength": 16735}


def test_websocket_message_over_the_limit_ends_it() -> None:
    receiver = MbReceiver(LIMITS, framed=False)
    events = receiver.receive_messages([b"publish:a:1.0.0\n", b"x" * 16752, b"publish:a:1.0.0\n"])
    assert [type(event) for event in events] == [Publish, Oversized]
    assert receiver.receive_messages([b"publish:a:1.0.0\n"]) == []


def test_frames_that_drip_in_cost_no_more_than_their_bytes() -> None:
    receiver = MbReceiver(MbLimits(payload_limit=400_000), framed=True)
    data = frame(b"publish:a:1.0.0\n" + b"x" * 300_000)
    began = time.process_time()
    events = [event for at in range(len(data)) for event in receiver.receive_data(data[at : at + 1])]
    assert len(flat(events)) == 1
    assert time.process_time() - began < 5  # joining at each byte would copy 45 GB


def test_many_small_frames_without_newline_cost_no_more_than_their_bytes() -> None:
    data = frame(b"x") * 50_000
    began = time.process_time()
    assert len(tcp().receive_data(data)) == 50_000
    assert time.process_time() - began < 5  # looking for the LF beyond the frame would read 6 GB


HEADS = (b"publish:same.head:1.0.0", b"publish:same.head:1.0.0:" + ID)
# What may follow a read of one header: the same with other lengths, and everything that only looks like it.
FOLLOWING = st.one_of(
    st.builds(lambda head, payload: head + b"\n" + payload, st.sampled_from(HEADS), st.binary(max_size=300)),
    st.builds(lambda head, cut: head[:cut], st.sampled_from(HEADS), st.integers(0, 60)),
    st.sampled_from(
        [HEADS[1][:-3] + b"\nxyz\n", HEADS[1] + b":x\n", HEADS[1][:-1] + b"\n", HEADS[0] + b"\n" + b"x" * 2001]
    ),
)


@given(st.sampled_from(HEADS), st.lists(FOLLOWING, max_size=12), st.integers(0, 400))
def test_reads_of_one_header_and_any_lengths_are_read_as_each_message_by_itself(
    head: bytes, following: list[bytes], cut: int
) -> None:
    limits = MbLimits(payload_limit=2000)
    receiver = MbReceiver(limits, framed=True)
    receiver.receive_data(b"".join(frame(head + b"\n" + b"x" * size) for size in range(2 * ALIKE)))
    data = b"".join(map(frame, following))
    found = flat([*receiver.receive_data(data[:cut]), *receiver.receive_data(data[cut:])])
    assert found == strictly(following, limits)
