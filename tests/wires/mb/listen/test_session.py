from __future__ import annotations

import uuid
from typing import Any

import pytest

from raceway import config
from raceway.model.intents.batches import Publish, Taken
from raceway.wires.mb.codec.encode import tcp_frame, websocket_frame
from raceway.wires.mb.listen.peer import PublishEncoder
from raceway.wires.mb.settings import MbWire
from tests.rigs.desk import MbDesk, Service
from tests.rigs.doubles import Message as Row
from tests.rigs.doubles import RecordingPeer, batch_of
from tests.rigs.mb_wire import SUCCESS, Message, assert_error, reply_header

ID = "550e8400-e29b-41d4-a716-446655440000"
UPPER = ID.upper()


def new_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def desk() -> MbDesk:
    return MbDesk()


def publish(topic: str, message_id: str = "", payload: bytes = b"{}") -> tuple[str, bytes]:
    return f"publish:{topic}:1.0.0{':' if message_id else ''}{message_id}", payload


def acknowledged(messages: list[Message]) -> list[str]:
    """Ids of success replies, in order; anything else among them is a mistake."""
    for message in messages:
        assert message.payload == SUCCESS, message
    return [message.header.split(":")[3] for message in messages]


# ---- acknowledgements ------------------------------------------------------------------------------------------------


def test_a_publish_with_an_id_is_acknowledged_after_the_commit(desk: MbDesk) -> None:
    desk.peer("orders")
    service = desk.service()
    service.send(*publish("Orders", UPPER))
    assert (service.transport.writes[1:], desk.journal.committed) == ([], -1)
    assert service.heard() == [Message(reply_header("Orders", UPPER), SUCCESS)], "as it was spelled"
    assert desk.journal.committed == 0


def test_a_publish_without_an_id_is_never_acknowledged(desk: MbDesk) -> None:
    desk.peer("orders")
    service = desk.service()
    service.send(*publish("orders"))
    assert service.heard() == []
    assert desk.journal.committed == 0


def test_a_service_reads_its_own_copy_before_the_acknowledgement(desk: MbDesk) -> None:
    service = desk.service()
    service.subscribe("orders")
    service.send(*publish("orders", ID, b"hello"))
    copy, reply = service.heard()
    assert (copy.action, copy.payload) == ("publish", b"hello")
    assert reply == Message(reply_header("orders", ID), SUCCESS)


def test_acknowledgements_come_in_the_order_of_the_publishes(desk: MbDesk) -> None:
    desk.peer("#")
    service = desk.service()
    ids = [new_id() for _ in range(50)]
    topics = ["a", "b"] * 25
    service.send_together(*(publish(topic, one) for topic, one in zip(topics[:30], ids[:30], strict=True)))
    for topic, one in zip(topics[30:], ids[30:], strict=True):
        service.send(*publish(topic, one))
    assert acknowledged(service.heard()) == ids


def test_rows_with_and_without_id_and_refused_ones_may_be_mixed(desk: MbDesk) -> None:
    desk.peer("a")
    service = desk.service()
    first, unwanted, last = new_id(), new_id(), new_id()
    service.send_together(publish("a", first), publish("a"), publish("b", unwanted), publish("b"), publish("A", last))
    heard = service.heard()
    assert_error(heard[0], "NO_ROUTE_FOUND", "No subscribers for topic b")
    assert_error(heard[1], "NO_ROUTE_FOUND", "No subscribers for topic b")
    assert heard[0].header == reply_header("b", unwanted)
    assert len(heard[1].fields) == 4, "without an id a fresh one, and no parent"
    assert [message.header for message in heard[2:]] == [reply_header("a", first), reply_header("A", last)]
    assert acknowledged(heard[2:]) == [first, last], "none for the refused row, though it is stored"
    assert len(desk.rows()) == 5


def test_versions_are_echoed_row_by_row(desk: MbDesk) -> None:
    desk.peer("a")
    service, ids = desk.service(), [new_id(), new_id()]
    service.send_together((f"publish:a:1.0.0:{ids[0]}", b""), (f"publish:a:2.0.0:{ids[1]}", b""))
    assert [m.header for m in service.heard()] == [reply_header("a", ids[0]), reply_header("a", ids[1], "2.0.0")]


def test_who_left_before_the_commit_gets_nothing(desk: MbDesk) -> None:
    desk.peer("orders")
    service = desk.service()
    service.send(*publish("orders", ID))
    service.protocol.connection_lost(None)
    assert service.heard() == []
    assert len(desk.rows()) == 1


def test_a_commit_that_fails_is_told_to_each_who_waits(desk: MbDesk) -> None:
    desk.peer("a")
    service, ids = desk.service(), [new_id() for _ in range(3)]
    desk.journal.fail_next_commit()
    service.send_together(publish("a", ids[0]), publish("a"), publish("b", ids[1]), publish("a", ids[2]))
    heard = service.heard()
    assert_error(heard[0], "NO_ROUTE_FOUND", "No subscribers for topic b")
    for message, one in zip(heard[1:], (ids[0], ids[2]), strict=True):
        assert message.header == reply_header("a", one)
        assert_error(message, "SERVICE_UNAVAILABLE", "no space left")


def test_a_commit_that_fails_acknowledges_nothing_of_a_batch_in_which_all_is_well(desk: MbDesk) -> None:
    desk.peer("a")
    service, ids = desk.service(), [new_id() for _ in range(3)]
    desk.journal.fail_next_commit()
    service.send_together(*(publish("a", one) for one in ids))
    heard = service.heard()
    assert [message.header for message in heard] == [reply_header("a", one) for one in ids]
    for message in heard:
        assert_error(message, "SERVICE_UNAVAILABLE", "no space left")


def test_a_journal_that_takes_nothing_is_told_to_everybody(desk: MbDesk) -> None:
    desk.peer("a")
    service = desk.service()
    desk.journal.refuse_writes()
    service.send_together(publish("a", ID), publish("a"), (f"request:r:1.0.0:{ID}", b""))
    heard = service.heard()
    assert len(heard) == 3
    for message in heard:
        assert_error(message, "SERVICE_UNAVAILABLE", "a sync failed")
    desk.journal.take_writes()
    service.send(*publish("a", ID))
    assert acknowledged(service.heard()) == [ID]


def test_while_the_bus_stops_publishes_are_refused(desk: MbDesk) -> None:
    desk.peer("a")
    service = desk.service()
    desk.broker.draining = True
    service.send(*publish("a", ID))
    assert_error(service.heard()[0], "SERVICE_UNAVAILABLE", "The bus is stopping")


# ---- copies ----------------------------------------------------------------------------------------------------------


def test_copies_carry_topic_and_version_as_sent_and_a_masked_id(desk: MbDesk) -> None:
    reader, writer = desk.service(), desk.service()
    reader.subscribe("a.#")
    writer.send_together(
        (f"publish:A.b:1.0.0:{ID}", b"1"), ("publish:A.b:2.0.0", b"2"), ("publish:a:1.0.0", b"\xff"),
    )  # fmt: skip
    heard = reader.heard()
    assert [(message.fields[:3], message.payload) for message in heard] == [
        (["publish", "A.b", "1.0.0"], b"1"),
        (["publish", "A.b", "2.0.0"], b"2"),
        (["publish", "a", "1.0.0"], "\ufffd".encode()),
    ]
    ids = [message.fields[3] for message in heard]
    assert len(set(ids)) == 3
    assert ID not in ids
    assert all(len(message.fields) == 4 for message in heard)
    assert desk.rows()[2]["payload"] == b"\xff", "the journal keeps the bytes"


@pytest.mark.parametrize("frame", [tcp_frame, websocket_frame])
def test_a_message_of_another_wire_shows_version_1_0_0(desk: MbDesk, frame: Any) -> None:
    subscriber = RecordingPeer()
    subscriber.encoder = PublishEncoder(frame)
    desk.connected(subscriber, "a")
    batch = batch_of(b"publish", Row(b"a", b"1"), Row(b"a", b"2"))
    batch.version = None
    assert desk.broker.perform(desk.exact_peer(), Publish(batch)) == Taken()
    assert subscriber.delivered[0].count(b"publish:a:1.0.0:") == 2


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_request_and_its_answer(desk: MbDesk) -> None:
    responder, asker = desk.service(), desk.service()
    responder.subscribe("orders", "request")
    asker.send(f"request:Orders:3.0.0:{UPPER}", b"ask")
    (forwarded,) = responder.heard()
    assert (forwarded.fields[:3], forwarded.payload) == (["request", "Orders", "3.0.0"], b"ask")
    responder.send(f"response:{forwarded.header.removeprefix('request:')}", b"answer")
    assert asker.heard() == [Message(reply_header("Orders", UPPER, "3.0.0"), b"answer")]
    assert responder.heard() == []


def test_an_answer_that_matches_nothing_is_refused_to_its_sender(desk: MbDesk) -> None:
    service = desk.service()
    service.send(f"response:orders:1.0.0:{ID}")
    service.send("response:orders:1.0.0")
    first, second = service.heard()
    assert first.header == reply_header("orders", ID)
    assert_error(first, "INVALID_REQUEST_ID", f"No matching request found for requestId: {ID}")
    assert_error(second, "INVALID_REQUEST_ID", "Received response message without requestId.")


def test_a_timeout_names_the_responder(desk: MbDesk) -> None:
    responder, asker = desk.service(), desk.service()
    responder.subscribe("orders", "request")
    asker.send(f"request:orders:1.0.0:{ID}::100")
    desk.loop.advance(0.2)
    (reply,) = asker.heard()
    assert reply.header == reply_header("orders", ID)
    assert_error(reply, "TIMEOUT", "Request timed out", {"targetServiceId": responder.session.id})


def test_an_evicted_request_is_answered_with_its_own_id() -> None:
    desk = MbDesk(max_outstanding=1)
    responder, asker = desk.service(), desk.service()
    responder.subscribe("orders", "request")
    asker.send(f"request:orders:1.0.0:{ID}")
    asker.send(f"request:orders:1.0.0:{new_id()}")
    (reply,) = asker.heard()
    assert reply.header == reply_header("orders", ID)
    assert_error(reply, "SERVICE_UNAVAILABLE", "Message broker is busy")


@pytest.mark.parametrize("payload", [b'{"error":{"code":"BROKEN"}}', b'error:{"code":"BROKEN"}'])
def test_an_answer_that_reports_failure_is_passed_on_and_counted(desk: MbDesk, payload: bytes) -> None:
    responder, asker = desk.service(), desk.service()
    responder.subscribe("orders", "request")
    asker.send(f"request:orders:1.0.0:{ID}")
    (forwarded,) = responder.heard()
    responder.send(f"response:{forwarded.header.removeprefix('request:')}", payload)
    assert asker.heard()[0].payload == payload
    assert desk.rows()[1]["error"] == "BROKEN"
    assert desk.counted("router.response.error") == 1


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_calls_are_answered_and_refused_calls_are_counted_and_logged(desk: MbDesk) -> None:
    service, watcher = desk.service(), desk.service()
    assert watcher.ask("system.log.subscribe", {"levels": ["error"]}).payload == SUCCESS
    assert service.ask("system.heartbeat").payload == SUCCESS
    reply = service.ask("system.service.subscriptions", {"serviceId": ID})
    assert_error(reply, "SERVICE_UNAVAILABLE", f"Service {ID} not found")
    assert_error(service.ask("system.nothing"), "TOPIC_NOT_SUPPORTED", "Unknown system message topic: system.nothing")
    assert service.session.peer.errors == 2
    records = [message.json() for message in watcher.heard()]
    assert [(record["level"], record["message"], record["module"]) for record in records] == [
        ("error", f"[SERVICE_UNAVAILABLE] Service {ID} not found", "mb"),
        ("error", "[TOPIC_NOT_SUPPORTED] Unknown system message topic: system.nothing", "mb"),
    ]


def test_a_publish_that_nobody_wants_is_not_logged_and_a_timeout_is_a_warning(desk: MbDesk) -> None:
    service, watcher, responder = desk.service(), desk.service(), desk.service()
    assert watcher.ask("system.log.subscribe", {"levels": ["debug", "info", "warn", "error"]}).payload == SUCCESS
    responder.subscribe("slow", "request")
    service.send(*publish("nobody", ID))
    service.send(f"request:nobody:1.0.0:{ID}")
    service.send(f"request:slow:1.0.0:{ID}::10")
    desk.loop.advance(0.1)
    records = [message.json() for message in watcher.heard()]
    assert [(record["level"], record["message"]) for record in records] == [
        ("error", "[NO_ROUTE_FOUND] No subscribers for topic nobody"),
        ("warn", "[TIMEOUT] Request timed out"),
    ]


def test_replies_of_one_read_are_one_write(desk: MbDesk) -> None:
    service = desk.service()
    before = len(service.transport.writes)
    service.send_together(*((f"request:system.heartbeat:1.0.0:{new_id()}", b"") for _ in range(10)))
    assert len(service.heard()) == 10
    assert len(service.transport.writes) == before + 1


# ---- life ------------------------------------------------------------------------------------------------------------

LIFE = config.Listen(wires=(MbWire(heartbeat_ms=300, deregister_ms=1000),), head_s=0.2, body_rate=1000)


def swept(desk: MbDesk, seconds: float) -> None:
    """Time passes with a sweep every 10 ms."""
    end = desk.loop.time() + seconds
    while desk.loop.time() < end - 1e-9:
        desk.loop.advance(0.01)
        desk.gate.sweep()
        desk.loop.settle()


def test_a_silent_service_is_asked_once_then_removed_and_closed() -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    swept(desk, 0.29)
    assert service.heard() == []
    swept(desk, 0.5)
    (question,) = service.heard()
    assert question.header.startswith("request:system.heartbeat:1.0.0:")
    assert uuid.UUID(question.fields[3]).version == 4
    swept(desk, 0.25)
    assert service.heard() == []
    assert service.transport.closed
    assert (desk.counted("bus.silent_closed"), len(desk.broker.peers), len(desk.gate.sessions)) == (1, 0, 0)


@pytest.mark.parametrize(
    "header",
    [
        "response:system.heartbeat:1.0.0", f"response:system.heartbeat:1.0.0:{ID}", "publish:a:1.0.0",
        f"request:system.nothing:1.0.0:{ID}", f"response:a:1.0.0:{ID}",
    ],
)  # fmt: skip
def test_any_message_with_a_good_header_counts_as_life(header: str) -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    for _ in range(8):
        swept(desk, 0.25)
        service.send(header)
    assert not any("heartbeat" in message.header for message in service.heard()), "never silent long enough to be asked"
    swept(desk, 0.4)
    assert len([message for message in service.heard() if "heartbeat" in message.header]) == 1
    service.send(header)
    swept(desk, 0.9)
    assert not service.transport.closed
    assert len([message for message in service.heard() if "heartbeat" in message.header]) == 1, "asked anew"


def test_malformed_messages_do_not_count_as_life_but_too_large_payloads_do() -> None:
    desk = MbDesk(LIFE)
    malformed, large = desk.service(), desk.service()
    for _ in range(11):
        swept(desk, 0.1)
        malformed.send("nonsense")
        large.send("publish:a:1.0.0", b"x" * 16385)
    swept(desk, 0.05)
    assert malformed.transport.closed
    assert not large.transport.closed


def test_a_heartbeat_answer_gets_no_reply(desk: MbDesk) -> None:
    service = desk.service()
    service.send(f"response:system.heartbeat:1.0.0:{ID}")
    assert service.heard() == []


def test_when_a_service_was_heard_is_shown(desk: MbDesk) -> None:
    service = desk.service()
    desk.loop.advance(5)
    service.send("publish:a:1.0.0")
    row = service.session.peer.row()
    assert row.heard_us - row.connected_us == 5_000_000


def test_a_message_that_does_not_end_is_cut_after_a_while() -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    service.protocol.data_received(b"\x00\x00\x01\x00" + b"x" * 96)  # 100 bytes: 0.2 s and 0.1 s for them
    swept(desk, 0.29)
    assert not service.transport.aborted
    swept(desk, 0.05)
    assert service.transport.aborted
    assert (desk.counted("bus.stalled_closed"), len(desk.broker.peers)) == (1, 0)


def test_bytes_that_keep_coming_slowly_do_not_start_the_clock_again() -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    service.protocol.data_received(b"\x00\x00\x40\x00")
    for _ in range(50):
        swept(desk, 0.01)
        if not service.transport.aborted:
            service.protocol.data_received(b"x")
    assert service.transport.aborted


def test_a_steady_sender_whose_reads_end_within_messages_is_not_cut() -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    stream = b"".join(len(m).to_bytes(4, "big") + m for m in [b"publish:a:1.0.0\n" + b"x" * 100] * 60)
    for at in range(0, len(stream), 100):
        service.protocol.data_received(stream[at : at + 100])
        swept(desk, 0.05)
    assert not service.transport.aborted
    assert desk.counted("router.publish") == 60


def test_a_message_that_ended_is_no_longer_waited_for() -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    message = b"publish:a:1.0.0\n"
    service.protocol.data_received(b"\x00\x00")
    service.protocol.data_received(b"\x00\x10" + message)
    swept(desk, 0.9)
    assert not service.transport.aborted


def test_while_the_journal_is_behind_nobody_is_blamed_for_silence_or_unfinished_messages() -> None:
    desk = MbDesk(LIFE)
    silent, unfinished = desk.service(), desk.service()
    unfinished.protocol.data_received(b"\x00\x00\x01\x00abc")
    desk.gate.pause(True)
    swept(desk, 5)
    assert (len(desk.gate.sessions), silent.heard()) == (2, [])
    desk.gate.pause(False)
    swept(desk, 0.15)
    assert len(desk.gate.sessions) == 2, "their time begins anew"
    swept(desk, 0.2)
    assert unfinished.transport.aborted
    swept(desk, 0.7)
    assert silent.transport.closed


def test_who_is_not_read_because_its_output_waits_is_not_blamed_for_an_unfinished_message() -> None:
    desk = MbDesk(LIFE)
    service = desk.service()
    service.protocol.data_received(b"\x00\x00\x01\x00abc")
    service.protocol.pause_writing()
    swept(desk, 0.6)
    assert not service.transport.aborted
    service.protocol.resume_writing()
    swept(desk, 0.15)
    assert not service.transport.aborted
    swept(desk, 0.1)
    assert service.transport.aborted


def test_a_frame_that_is_too_long_closes_the_connection_without_a_message(desk: MbDesk) -> None:
    service = desk.service()
    service.protocol.data_received((16752).to_bytes(4, "big"))
    assert service.transport.closed
    assert (len(desk.gate.sessions), service.heard()) == (0, [])
    service.protocol.data_received(b"more")


def test_what_was_said_before_a_frame_that_is_too_long_is_still_done(desk: MbDesk) -> None:
    service = desk.service()
    asked = f"request:system.heartbeat:1.0.0:{ID}\n".encode()
    service.protocol.data_received(len(asked).to_bytes(4, "big") + asked + b"GET ")
    assert service.heard() == [Message(reply_header("system.heartbeat", ID), SUCCESS)]
    assert service.transport.closed


# ---- the gate --------------------------------------------------------------------------------------------------------


def test_a_pause_stops_all_services_and_those_that_come_later(desk: MbDesk) -> None:
    early = desk.service()
    desk.gate.pause(True)
    late = desk.service()
    assert (early.transport.reading, late.transport.reading) == (False, False)
    desk.gate.pause(False)
    assert (early.transport.reading, late.transport.reading) == (True, True)
    assert desk.service().transport.reading


def test_a_pause_of_the_gate_and_one_of_the_transport_add_up(desk: MbDesk) -> None:
    service = desk.service()
    service.protocol.pause_writing()
    desk.gate.pause(True)
    service.protocol.resume_writing()
    assert not service.transport.reading
    desk.gate.pause(False)
    assert service.transport.reading


def test_a_connection_over_the_limit_is_counted() -> None:
    desk = MbDesk(config.Listen(wires=(MbWire(max_connections=1),)))
    service = desk.service()
    assert not desk.gate.has_room()
    assert desk.counted("connection.rejected") == 1
    service.protocol.connection_lost(None)
    assert desk.gate.has_room()


def test_messages_over_the_rate_are_refused_one_by_one() -> None:
    desk = MbDesk(config.Listen(wires=(MbWire(rate_per_topic=2),)))
    reader = desk.peer("#")
    service, ids = desk.service(), [new_id() for _ in range(5)]
    topics = ["a", "b", "a", "a", "b"]
    service.send_together(*(publish(topic, one) for topic, one in zip(topics, ids, strict=True)))
    heard = service.heard()
    assert heard[0].header == reply_header("a", ids[3])
    assert_error(heard[0], "SERVICE_UNAVAILABLE", "Rate limit exceeded")
    assert acknowledged(heard[1:]) == [ids[0], ids[1], ids[2], ids[4]]
    assert [copy.topic for copy in reader.copies] == [b"a", b"b", b"a", b"b"]
    assert len(desk.rows()) == 4
    desk.loop.advance(1)
    service.send(*publish("a", ID))
    assert acknowledged(service.heard()) == [ID]


def test_a_batch_that_is_over_the_rate_whole_is_refused_whole() -> None:
    desk = MbDesk(config.Listen(wires=(MbWire(rate_per_service=1),)))
    desk.peer("#")
    service = desk.service()
    service.send(*publish("a"))
    service.send_together(publish("a", ID), publish("a"))
    heard = service.heard()
    assert len(heard) == 2
    for message in heard:
        assert_error(message, "SERVICE_UNAVAILABLE", "Rate limit exceeded")


# ---- audit -----------------------------------------------------------------------------------------------------------


def audited(records: list[dict[str, Any]], way: str, service: Service) -> list[dict[str, Any]]:
    return [record["message"]["header"] for record in records if record.get(way) == service.session.id]


def test_the_audit_shows_a_publish_its_copies_and_its_acknowledgement(desk: MbDesk) -> None:
    auditor, writer, reader = desk.auditor(), desk.service(), desk.service()
    reader.subscribe("orders")
    auditor.heard()
    parent = new_id()
    writer.send(f"publish:Orders:1.2.0:{ID}:{parent}", b'{"n": 1}')
    records = auditor.records()
    (received,) = [record for record in records if record.get("from") == writer.session.id]
    assert received["timeout"] == 5000
    assert received["message"] == {
        "header": {"action": "publish", "topic": "Orders", "version": "1.2.0", "requestId": ID,
                   "parentRequestId": parent},
        "payload": {"n": 1},
    }  # fmt: skip
    (copy,) = [record for record in records if record.get("to") == reader.session.id]
    masked = reader.heard()[0].fields[3]
    assert copy["maskedId"] == ID
    assert copy["message"] == {
        "header": {"action": "publish", "topic": "Orders", "version": "1.2.0", "requestId": masked},
        "payload": {"n": 1},
    }
    (reply,) = [record for record in records if record.get("to") == writer.session.id]
    assert reply["message"]["header"]["action"] == "response"
    assert reply["message"]["payload"] == {"status": "success"}
    assert "maskedId" not in reply
    assert [records.index(one) for one in (received, copy, reply)] == [0, 1, 2], "received first, then as it was sent"


def test_the_audit_shows_a_request_from_its_sender_to_its_answer(desk: MbDesk) -> None:
    auditor, asker, responder = desk.auditor(), desk.service(), desk.service()
    responder.subscribe("orders", "request")
    auditor.heard()
    asker.send(f"request:orders:1.0.0:{ID}::700", b"not JSON")
    (forwarded,) = responder.heard()
    responder.send(f"response:{forwarded.header.removeprefix('request:')}", b"")
    records = auditor.records()
    assert [tuple(record)[1:3] for record in records] == [
        ("timeout", "from"), ("to", "message"), ("timeout", "from"), ("to", "message"),
    ]  # fmt: skip
    assert records[0]["timeout"] == records[0]["message"]["header"]["timeout"] == 700
    assert records[0]["message"]["payload"] == "not JSON"
    assert (records[1]["to"], records[1]["maskedId"]) == (responder.session.id, ID)
    assert records[1]["message"]["header"]["requestId"] == forwarded.fields[3]
    assert (records[2]["from"], records[3]["to"]) == (responder.session.id, asker.session.id)
    assert records[3]["message"]["header"]["requestId"] == ID
    assert "maskedId" not in records[3]


def test_the_audit_shows_calls_greetings_heartbeats_and_refusals() -> None:
    desk = MbDesk(LIFE)
    auditor = desk.auditor()
    service = desk.service()
    (greeting,) = auditor.records()
    assert greeting["message"]["header"] == {"action": "publish", "topic": "system.initialize", "version": "1.0.0"}
    service.ask("system.topic.list")
    assert len(audited(records := auditor.records(), "from", service)) == 1
    assert audited(records, "to", service)[0]["topic"] == "system.topic.list"
    service.send("nonsense")
    (refusal,) = auditor.records()
    assert refusal["message"]["header"] == {"action": "response", "topic": "error", "version": "1.0.0"}
    service.send("response:system.heartbeat:1.0.0")
    assert audited(auditor.records(), "from", service)[0]["topic"] == "system.heartbeat"
    swept(desk, 0.35)
    asked = [record for record in auditor.heard() if record.action == "publish" and b"heartbeat" in record.payload]
    assert len(asked) == 2, "the auditor is asked as well"


def test_log_records_are_audited_and_audit_records_are_not(desk: MbDesk) -> None:
    auditor, watcher = desk.auditor(), desk.service()
    watcher.ask("system.log.subscribe", {"levels": ["error"]})
    auditor.heard()
    desk.broker.logs.emit("error", "it broke")
    (record,) = auditor.records()
    assert record["message"]["header"] == {"action": "response", "topic": "system.log", "version": "1.0.0"}
    assert record["to"] == watcher.session.id
    assert auditor.records() == []


def test_each_row_of_a_batch_has_its_own_records(desk: MbDesk) -> None:
    auditor, writer, reader = desk.auditor(), desk.service(), desk.service()
    reader.subscribe("#")
    auditor.heard()
    ids = [new_id() for _ in range(3)]
    writer.send_together(
        *(publish(topic, one, b"%d" % n) for n, (topic, one) in enumerate(zip("aba", ids, strict=True)))
    )
    records = auditor.records()
    assert [header["requestId"] for header in audited(records, "from", writer)] == ids
    assert [record["maskedId"] for record in records if record.get("to") == reader.session.id] == ids
    replies = [record for record in records if record.get("to") == writer.session.id]
    assert [record["message"]["header"]["requestId"] for record in replies] == ids
    assert [record["message"]["header"]["topic"] for record in replies] == ["a", "b", "a"]


def test_without_an_auditor_nothing_is_described(desk: MbDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("nobody reads it")

    monkeypatch.setattr("raceway.wires.mb.codec.audit.audit_received", refuse)
    monkeypatch.setattr("raceway.wires.mb.codec.audit.audit_sent", refuse)
    service = desk.service()
    service.subscribe("#")
    service.send(*publish("a", ID))
    assert len(service.heard()) == 2


def test_a_code_that_a_peer_makes_up_is_not_remembered(desk: MbDesk) -> None:
    service = desk.service()
    for number in range(5):
        error = f'error:{{"code":"MINE{number}","message":"m","timestamp":"t"}}'
        assert service.ask("system.metrics", error).json()["error"]["code"] == f"MINE{number}"
    assert not any("MINE" in name for name in desk.broker.meter.counts)
    assert service.session.peer.errors == 5


# ---- many requests in one read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("audited", [False, True])
def test_requests_and_answers_of_one_read_are_those_of_single_ones(audited: bool) -> None:
    desk = MbDesk()
    responder, first, second = desk.service(), desk.service(), desk.service()
    responder.subscribe("#", "request")
    if audited:
        desk.auditor()
    ids = [str(uuid.uuid4()) for _ in range(6)]
    versions = ["1.0.0", "1.0.0", "1.0.0", "2.0.0", "1.0.0", "1.0.0"]
    topics = ["a", "a", "a", "a", "b", "a"]
    sent = [
        (f"request:{t}:{v}:{i}", b"%d\xff" % n) for n, (t, v, i) in enumerate(zip(topics, versions, ids, strict=True))
    ]
    first.send_together(*sent[:3])
    second.send_together(*sent[3:])
    asked = responder.heard()
    assert [(m.fields[1], m.fields[2], m.payload) for m in asked] == [
        (topic, version, "%d�".encode() % number)
        for number, (topic, version) in enumerate(zip(topics, versions, strict=True))
    ]
    assert len({message.fields[3] for message in asked} | set(ids)) == 12, "under masked ids"
    responder.send_together(*((f"response:x:1.0.0:{m.fields[3]}", b"to " + m.payload[:1]) for m in reversed(asked)))
    for service, rows in ((first, (2, 1, 0)), (second, (5, 4, 3))):
        assert service.heard() == [
            Message(f"response:{topics[row]}:{versions[row]}:{ids[row]}:{ids[row]}", b"to %d" % row) for row in rows
        ]


def test_failures_among_the_answers_of_one_read_are_passed_on() -> None:
    desk = MbDesk()
    responder, requester = desk.service(), desk.service()
    responder.subscribe("a", "request")
    ids = [str(uuid.uuid4()) for _ in range(3)]
    requester.send_together(*((f"request:a:1.0.0:{each}", b"?") for each in ids))
    payloads = [b"1", b'{"error":{"code":"LATE","message":"no"}}', b"3"]
    masked = [message.fields[3] for message in responder.heard()]
    responder.send_together(*((f"response:a:1.0.0:{m}", p) for m, p in zip(masked, payloads, strict=True)))
    assert [(m.fields[3], m.payload) for m in requester.heard()] == list(zip(ids, payloads, strict=True))
    assert [row["error"] for row in desk.rows() if row["kind"] == "response"] == [None, "LATE", None]
