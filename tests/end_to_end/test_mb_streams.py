"""What the MB broker tells by itself: the audit stream `system.message` and the log stream `system.log`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.rigs.mb_wire import SUCCESS, TIMESTAMP, Join, Message, Peer, assert_error, fresh_topic, new_id, reply_header
from tests.rigs.vectors.mb import I, P

Record = dict[str, Any]


def audited(auditor: Peer, topic: str) -> list[Record]:
    """The audit records about one topic, after everything else has been done."""
    records = []
    for message in auditor.settled():
        if message.topic == "system.message":
            assert message.header == "publish:system.message:1.0.0"
            record = message.json()
            assert TIMESTAMP.fullmatch(record["timestamp"])
            records.append(record)
    return [record for record in records if record["message"]["header"]["topic"] == topic]


def with_auditor(join: Join, pattern: str = "system.message") -> Peer:
    auditor = join()
    auditor.subscribe(pattern)
    return auditor


# ---- audit -----------------------------------------------------------------------------------------------------------


def test_a_publish_is_audited_as_received_and_as_sent(join: Join) -> None:
    auditor, subscriber, publisher = with_auditor(join), join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    to_id, from_id = subscriber.service_id(), publisher.service_id()
    auditor.settled()
    publisher.send(f"publish:{topic}:1.0.0:{I}:{P}", b'{"a": [1, 2]}')
    publisher.reply(I)
    (copy,) = subscriber.settled()
    received, sent, reply = audited(auditor, topic)

    assert list(received) == ["timestamp", "timeout", "from", "message"]
    assert (received["timeout"], received["from"]) == (5000, from_id)
    header = {"action": "publish", "topic": topic, "version": "1.0.0", "requestId": I, "parentRequestId": P}
    assert received["message"] == {"header": header, "payload": {"a": [1, 2]}}
    assert list(received["message"]["header"]) == list(header)

    assert list(sent) == ["timestamp", "to", "message", "maskedId"]
    assert (sent["to"], sent["maskedId"]) == (to_id, I)
    header = {"action": "publish", "topic": topic, "version": "1.0.0", "requestId": copy.id or ""}
    assert sent["message"] == {"header": header, "payload": {"a": [1, 2]}}

    assert list(reply) == ["timestamp", "to", "message"]
    header = {"action": "response", "topic": topic, "version": "1.0.0", "requestId": I}
    assert (reply["to"], reply["message"]) == (from_id, {"header": header, "payload": {"status": "success"}})


def test_a_request_and_its_answer_are_audited_hop_by_hop(join: Join) -> None:
    auditor, responder, requester = with_auditor(join), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    responder_id, requester_id = responder.service_id(), requester.service_id()
    auditor.settled()
    requester.send(f"request:{topic}:1.0.0:{I}::60000", b"question")
    masked = responder.serve_one(b"answer").id
    requester.reply(I)
    asked, forwarded, answered, passed_on = audited(auditor, topic)
    assert (asked["from"], asked["timeout"]) == (requester_id, 60_000)
    assert asked["message"]["header"]["timeout"] == 60_000
    assert (forwarded["to"], forwarded["maskedId"]) == (responder_id, I)
    assert forwarded["message"]["header"]["requestId"] == masked
    assert answered["from"] == responder_id
    assert answered["message"]["header"]["requestId"] == masked
    assert passed_on["to"] == requester_id
    assert passed_on["message"]["header"] == {
        "action": "response", "topic": topic, "version": "1.0.0", "requestId": I
    }  # fmt: skip
    assert passed_on["message"]["payload"] == "answer"


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a":1}', {"a": 1}),
        (b"[1,2.5,null]", [1, 2.5, None]),
        (b'"text"', "text"),
        (b"17", 17),
        (b"plain text", "plain text"),
        (b'$& "quoted" \\ {', '$& "quoted" \\ {'),
        (b"", ""),
        (b"two\nlines", "two\nlines"),
        (b"\xff", "\ufffd"),
        ("ä€😀".encode(), "ä€😀"),
    ],
)
def test_an_audited_payload_is_json_if_it_is_json_and_else_a_string(join: Join, payload: bytes, shown: Any) -> None:
    auditor, subscriber, publisher = with_auditor(join), join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    auditor.settled()
    publisher.publish(topic, payload)
    received, sent, _ = audited(auditor, topic)
    assert received["message"]["payload"] == sent["message"]["payload"] == shown


def test_a_publish_without_id_has_no_masked_id_in_its_record(join: Join) -> None:
    auditor, subscriber, publisher = with_auditor(join), join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    auditor.settled()
    publisher.send(f"publish:{topic}:1.0.0", b"1")
    publisher.settled()
    received, sent = audited(auditor, topic)
    assert "requestId" not in received["message"]["header"]
    assert "maskedId" not in sent


def test_system_calls_and_their_replies_are_audited(join: Join) -> None:
    auditor, caller = with_auditor(join), join()
    auditor.settled()
    caller.ask("system.topic.list", b"broken {", message_id=I)
    records = audited(auditor, "system.topic.list")
    assert [("from" in record, "to" in record) for record in records] == [(True, False), (False, True)]
    assert records[0]["message"]["payload"] == "broken {"
    assert records[1]["message"]["header"]["requestId"] == I


def test_malformed_input_shows_only_as_the_error_reply(join: Join) -> None:
    auditor, sender = with_auditor(join), join()
    sender_id = sender.service_id()
    auditor.settled()
    sender.send("bad:header")
    sender.receive()
    (record,) = audited(auditor, "error")
    assert record["to"] == sender_id
    assert record["message"]["header"] == {"action": "response", "topic": "error", "version": "1.0.0"}


def test_audit_records_are_not_audited(join: Join) -> None:
    one, two = with_auditor(join), with_auditor(join)
    one.settled()
    two.settled()
    assert audited(one, "system.message") == audited(two, "system.message") == []


@pytest.mark.parametrize("pattern", ["system.message", "system.+", "system.#", "System.Message"])
def test_patterns_that_begin_with_the_word_system_see_the_audit_stream(join: Join, pattern: str) -> None:
    auditor, sender = with_auditor(join, pattern), join()
    auditor.settled()
    topic = fresh_topic()
    sender.publish(topic)
    assert len(audited(auditor, topic)) == 2


@pytest.mark.parametrize("pattern", ["#", "+.message", "+.#", "+.+", "+.log"])
def test_patterns_that_begin_with_a_wildcard_do_not(join: Join, pattern: str) -> None:
    subscriber, sender = join(), join()
    subscriber.subscribe(pattern)
    watcher = watch(join)
    sender.service_id()
    text = provoke(sender, "seen")
    assert text in [record["message"] for record in log_records(watcher)]
    assert subscriber.settled() == []
    subscriber.unsubscribe(pattern)


def test_a_request_subscription_gets_no_audit_records(join: Join) -> None:
    subscriber, sender = join(), join()
    subscriber.subscribe("system.message", "request")
    sender.service_id()
    assert subscriber.settled() == []


def test_an_audit_subscription_through_two_patterns_gets_each_record_once(join: Join) -> None:
    auditor, sender = with_auditor(join), join()
    auditor.subscribe("system.#")
    auditor.settled()
    topic = fresh_topic()
    sender.publish(topic)
    assert len(audited(auditor, topic)) == 2


# ---- log -------------------------------------------------------------------------------------------------------------


def log_records(watcher: Peer) -> list[Record]:
    """The log records that came, each in the form of the wire."""
    return [read_record(message) for message in watcher.settled() if message.topic == "system.log"]


def read_record(message: Message) -> Record:
    assert message.header == "response:system.log:1.0.0"
    record: Record = message.json()
    assert list(record)[-3:] == ["level", "message", "timestamp"]
    assert TIMESTAMP.fullmatch(record["timestamp"])
    return record


def watch(join: Join, **body: Any) -> Peer:
    watcher = join()
    assert watcher.ask("system.log.subscribe", body).payload == SUCCESS
    return watcher


def provoke(sender: Peer, word: str) -> str:
    """An error whose log message holds `word`."""
    sender.send(f"publish:not_{word}:1.0.0")
    sender.receive()
    return f"[MALFORMED_MESSAGE] Invalid topic name: not_{word}"


def test_errors_of_messages_are_logged_with_code_and_text(join: Join) -> None:
    watcher, sender = watch(join), join()
    message_id, topic = new_id(), fresh_topic()
    sender.send(f"response:a.b:1.0.0:{message_id}")
    sender.ask(topic)
    sender.ask("system.topic.subscribe", {"action": "no"})
    sender.settled()
    expected = {provoke(sender, topic.replace(".", "_"))}
    expected |= {
        f"[INVALID_REQUEST_ID] No matching request found for requestId: {message_id}",
        f"[NO_ROUTE_FOUND] No subscribers for topic {topic}",
        "[INVALID_REQUEST] Missing or invalid action",
    }
    records = log_records(watcher)
    assert {record["message"] for record in records} >= expected
    assert {record["level"] for record in records} == {"error"}


def test_a_publish_without_route_is_not_logged_as_an_error(join: Join) -> None:
    watcher, sender = watch(join), join()
    topic = fresh_topic()
    sender.publish(topic)
    assert not [record for record in log_records(watcher) if topic in record["message"]]


def test_a_timeout_is_logged_as_a_warning(join: Join) -> None:
    watcher, responder, sender = watch(join, levels=["warn"]), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    assert sender.ask(topic, timeout_ms=1).json()["error"]["code"] == "TIMEOUT"
    records = log_records(watcher)
    assert any("timed out" in record["message"].lower() for record in records)
    assert {record["level"] for record in records} == {"warn"}


def test_only_the_levels_asked_for_are_sent(join: Join) -> None:
    watcher, sender = watch(join, levels=["debug", "info", "warn"]), join()
    text = provoke(sender, new_id()[:8])
    assert text not in [record["message"] for record in log_records(watcher)]
    assert watcher.ask("system.log.subscribe", {"levels": ["error", "debug"]}).payload == SUCCESS
    text = provoke(sender, new_id()[:8])
    assert text in [record["message"] for record in log_records(watcher)]


def test_no_levels_at_all_means_silence(join: Join) -> None:
    watcher, sender = watch(join, levels=[]), join()
    provoke(sender, "anything")
    assert log_records(watcher) == []


def test_a_regex_searches_the_message(join: Join) -> None:
    word = new_id()[:8]
    watcher, sender = watch(join, levels=["error"], regex=f"name: .*{word}$"), join()
    provoke(sender, "other")
    text = provoke(sender, word)
    assert [record["message"] for record in log_records(watcher)] == [text]


def test_a_later_filter_replaces_the_former(join: Join) -> None:
    watcher, sender = watch(join, regex="nothing matches this"), join()
    assert watcher.ask("system.log.subscribe", {"levels": ["error"]}).payload == SUCCESS
    text = provoke(sender, new_id()[:8])
    assert [record["message"] for record in log_records(watcher)].count(text) == 1


def test_a_log_subscription_is_listed_as_a_publish_subscription(join: Join) -> None:
    watcher = watch(join)
    rows = watcher.ask("system.service.subscriptions").json()["subscriptions"]
    assert rows == [{"action": "publish", "topic": "system.log"}]
    assert watcher.ask("system.log.unsubscribe").payload == SUCCESS
    assert watcher.ask("system.service.subscriptions").json() == {"subscriptions": []}


def test_after_unsubscribing_no_record_comes(join: Join) -> None:
    watcher, sender = watch(join), join()
    for _ in range(2):
        reply = watcher.ask("system.log.unsubscribe", b"not looked at", message_id=I)
        assert reply == (reply_header("system.log.unsubscribe", I), SUCCESS)
    provoke(sender, "unheard")
    assert log_records(watcher) == []


def test_subscribing_to_the_topic_alone_brings_no_records(join: Join) -> None:
    """`system.log` needs `system.log.subscribe`."""
    subscriber, sender = join(), join()
    subscriber.subscribe("system.log")
    provoke(sender, "unheard")
    assert log_records(subscriber) == []


def test_log_records_are_audited(join: Join) -> None:
    watcher, auditor, sender = watch(join), with_auditor(join), join()
    watcher_id = watcher.service_id()
    auditor.settled()
    text = provoke(sender, new_id()[:8])
    records = [record for record in audited(auditor, "system.log") if record["message"]["payload"]["message"] == text]
    assert [record["to"] for record in records] == [watcher_id]
    assert records[0]["message"]["header"] == {"action": "response", "topic": "system.log", "version": "1.0.0"}


@pytest.mark.parametrize("levels", ["error", 5, None, {"a": 1}, True])
def test_levels_must_be_an_array(peer: Peer, levels: Any) -> None:
    reply = peer.ask("system.log.subscribe", {"levels": levels})
    assert_error(reply, "INVALID_REQUEST", "Invalid log levels", {"levels": levels})


@pytest.mark.parametrize("level", ["fatal", "ERROR", "warning", "", 1, None])
def test_each_level_must_be_known(peer: Peer, level: Any) -> None:
    reply = peer.ask("system.log.subscribe", {"levels": ["error", level, "x"]})
    assert_error(reply, "INVALID_REQUEST", "Invalid log level", {"level": level})


@pytest.mark.parametrize("regex", ["(", "[a", "a{2,1}", "*a", r"(?=look)ahead", r"(a)\1", 5, ["a"], "x" * 257])
def test_a_regex_must_compile(peer: Peer, regex: Any) -> None:
    """Those that would need backtracking do not: they are matched in linear time. 256 characters at most."""
    reply = peer.ask("system.log.subscribe", {"levels": ["error"], "regex": regex})
    assert_error(reply, "INVALID_REQUEST", "Invalid log regex", {"regex": regex})


@pytest.mark.parametrize("regex", ["(a+)+$", "(a|aa)*$", "(a?){60}a{60}", "(.*)*$x"])
def test_a_regex_that_makes_backtracking_engines_hang_costs_nothing(join: Join, regex: str) -> None:
    watcher, sender = watch(join, levels=["error"], regex=regex), join()
    began = time.monotonic()
    for _ in range(20):
        sender.send(f"publish:{'a' * 250}_b:1.0.0")
        sender.receive()
    assert sender.settled() == []
    assert time.monotonic() - began < 3
    watcher.settled()


def test_refused_filters_leave_the_former_one_in_place(join: Join) -> None:
    watcher, sender = watch(join), join()
    assert "error" in watcher.ask("system.log.subscribe", {"levels": ["nothing"]}).json()
    assert "error" in watcher.ask("system.log.subscribe", {"regex": "("}).json()
    watcher.settled()
    text = provoke(sender, new_id()[:8])
    assert text in [record["message"] for record in log_records(watcher)]
