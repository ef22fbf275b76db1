"""The zbus receiver: vectors, events in order, batches, the command each message is, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.wires.zbus.codec.head import ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin, Ask, Consume, Produce, ZbusEvent, ZbusHeartbeat, ZbusReceiver
from raceway.wires.zbus.codec.rows import Browser
from raceway.wires.zbus.codec.stream import Continue100
from tests.rigs.vectors.zbus import SENT, connection_id
from tests.rigs.zbus_events import flat, received_bytewise, strict

LIMITS = ZbusLimits()
CALLER = connection_id("r").encode()


def received(*messages: bytes | str) -> list[ZbusEvent]:
    data = b"".join(each.encode() if isinstance(each, str) else each for each in messages)
    return ZbusReceiver(LIMITS).receive_data(data)


def message(cmd: str, body: str = "", **keys: str) -> str:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in keys.items()]
    return f"POST / HTTP/1.1\r\ncmd: {cmd}\r\n{''.join(lines)}content-length: {len(body.encode())}\r\n\r\n{body}"


# ---- vectors --------------------------------------------------------------------------------------------------------


def produced(mq: bytes, msgid: bytes | None, payload: bytes, **more: Any) -> tuple[str, dict[str, Any]]:
    return "produce", {"mq": mq, "msgid": msgid, "payload": payload, **more}


def asked(mq: bytes, msgid: bytes, payload: bytes, **more: Any) -> tuple[str, dict[str, Any]]:
    return "request", {"mq": mq, "msgid": msgid, "payload": payload, **more}


def created(msgid: bytes, body: bytes) -> Admin:
    return Admin("create_mq", {"cmd": "admin", "method": "create_mq", "msgid": msgid.decode()}, body, msgid)


_ORDERS = b'{"mqName":"orders","mqMode":"%d","accessToken":""}'
# What each message that a client sends in the vectors must be, in order.
EXPECTED: list[tuple[str, Any]] = [
    ("V01", Admin("index", {})),
    ("V02", Admin("index", {"cmd": "admin", "method": "index", "msgid": "ix-9"}, b"", b"ix-9")),
    ("V03", Admin("index", {"mq": "orders"})),
    ("V04", created(b"k-1", _ORDERS % 1)),
    ("V05", created(b"k-2", _ORDERS % 1)),
    ("V06", created(b"k-3", _ORDERS % 2)),
    ("V07", created(b"k-4", b'{"mqName":')),
    ("V08", Admin("fly", {"cmd": "admin", "method": "fly", "msgid": "k-5"}, b"", b"k-5")),
    ("V09", ZbusRefused(400, "Bad format: command(publish) not support", b"k-6")),
    ("V10", produced(b"orders", b"p-1", b"hello")),
    ("V11", produced(b"orders", b"p-2", b"quiet", ack=False)),
    ("V12", produced(b"orders", None, b"anon")),
    ("V13", Consume(b"orders", b"c-1")),
    ("V13", Consume(b"orders", b"c-2")),
    ("V14", Consume(b"empty1", b"c-3")),
    ("V14", produced(b"empty1", b"p-4", b"at last", ack=False)),
    ("V15", Consume(b"empty2", b"c-4")),
    ("V15", Consume(b"empty2", b"c-5")),
    ("V15", produced(b"empty2", b"p-5", b"one", ack=False)),
    ("V16", produced(b"nosuch", b"p-6", b"x")),
    ("V17", produced(b"nosuch", b"p-7", b"x", ack=False)),
    ("V18", produced(b"web", b"w-1", b"hi there")),
    ("V18", Consume(b"web", b"w-2")),
    ("V19", produced(b"web", b"from-head", b"H")),
    ("V20", produced(b"web", b"Id-A", b"ok", attributes=b'{"x-shop":"Nord"}')),
    ("V20", Consume(b"web", b"c-6")),
    ("V21", produced(b"vault", b"t-1", b"s", token=b"guess")),
    ("V21", produced(b"vault", b"t-2", b"s")),
    ("V21", produced(b"vault", b"t-3", b"s", token=b"open")),
    ("V22", created(b"t-4", b'{"mqName":"q9","mqMode":"1"}')),
    ("V23", Consume(b"ticks", b"s-1", (b"sse", b"hk"))),
    ("V23", Consume(b"ticks", b"s-2", (b"*",))),
    ("V23", produced(b"ticks", b"e-1", b"9.80", topic=b"hk", attributes=b'{"zbus.topic":"hk"}')),
    ("V24", produced(b"ticks", b"e-2", b"9.81", topic=b"hk", attributes=b'{"zbus.topic":"hk"}', ack=False)),
    ("V24", Consume(b"ticks", b"s-3")),
    ("V25", produced(b"ticks", b"e-3", b"void")),
    ("V26", Consume(b"adder", b"sv-1")),
    ("V26", asked(b"adder", b"rq-1", b"1+1")),
    ("V26", produced(CALLER, b"rq-1", b"2", ack=False)),
    ("V27", Consume(b"adder", b"sv-2")),
    ("V27", asked(b"adder", b"rq-2", b"1/0", reply_to=b"box-7")),
    (
        "V27",
        produced(b"box-7", b"rq-2", b"division by zero", ack=False, status=500, attributes=b'{"zbus.status":"500"}'),
    ),
    ("V28", asked(b"adder", b"rq-A", b"A")),
    ("V28", asked(b"adder", b"rq-B", b"B")),
    ("V28", Consume(b"adder", b"sv-3")),
    ("V28", Consume(b"adder", b"sv-4")),
    ("V28", produced(CALLER, b"rq-B", b"b!", ack=False)),
    ("V28", produced(CALLER, b"rq-A", b"a!", ack=False)),
    ("V29", asked(b"nosuch", b"rq-3", b"x")),
    ("V30", ZbusHeartbeat()),
    ("V31", [produced(b"web", b"m-1", b"1"), produced(b"web", b"m-2", b"2")]),
    ("V32", created(b"d-1", b'{"accessToken":"","mqMode":"1","mqName":"legacy"}')),
    ("V32", asked(b"legacy", b"d-2", b"?", reply_to=b"box-8")),
    ("V32", Consume(b"legacy", b"d-3")),
    ("V33", ZbusRefused(400, "Bad format: content-length", b"z-1", close=True)),
    ("V34", Admin("track_sub", {"cmd": "admin", "method": "track_sub", "msgid": "ts-1"}, b"", b"ts-1")),
    (
        "V34",
        Admin(
            "track_report",
            {"cmd": "admin", "method": "track_report"},
            b'{"broker":"10.0.0.5:15555","lastUpdatedTime":1423000000000,"mqTable":{}}',
        ),
    ),
]


def brief(events: list[Any]) -> list[Any]:
    """Rows of messages with what is not at its default; admin keys without the length."""
    found: list[Any] = []
    for event in flat(events):
        if isinstance(event, dict):
            row = {"mq": event["topic"], "msgid": event["message_id"], "payload": event["payload"]}
            row |= {name: event[name] for name in ("reply_to", "attributes") if event[name] is not None}
            row |= {name: event[f"zbus {name}"] for name in ("token", "topic", "status") if event[f"zbus {name}"]}
            row |= {} if event["zbus ack"] else {"ack": False}
            found.append(({b"publish": "produce", b"request": "request"}[event["kind"]], row))
        elif isinstance(event, Admin):
            event.keys.pop("content-length", None)
            found.append(event)
        else:
            found.append(event)
    return found


def test_expectations_name_every_message_of_the_vectors() -> None:
    assert [vector for vector, _ in EXPECTED] == [vector for vector, _ in SENT]


@pytest.mark.parametrize(
    ("data", "expected"),
    [(data, e) for (_, data), (_, e) in zip(SENT, EXPECTED, strict=True)],
    ids=[v for v, _ in SENT],
)
def test_message_of_a_vector_is_read_alike_whole_bytewise_and_with_a_tail(data: bytes, expected: Any) -> None:
    wanted = expected if isinstance(expected, list) else [expected]
    assert brief(ZbusReceiver(LIMITS).receive_data(data)) == wanted
    oracle = flat(strict().receive_data(data))
    for made in (ZbusReceiver(LIMITS), strict()):
        assert received_bytewise(made, data) == oracle
        assert made.pending == 0
    with_tail = ZbusReceiver(LIMITS)
    assert flat(with_tail.receive_data(data + data[:5])) == oracle
    if not (isinstance(expected, ZbusRefused) and expected.close):
        assert with_tail.pending == 5
        assert flat(with_tail.receive_data(data[5:])) == oracle


def test_all_messages_of_the_vectors_in_one_buffer_come_in_order_wherever_it_is_cut() -> None:
    sent = [data for vector, data in SENT if vector != "V33"] + [data for vector, data in SENT if vector == "V33"]
    expected = [event for data in sent for event in flat(strict().receive_data(data))]
    data = b"".join(sent)
    for cut in range(0, len(data) + 1, 23):
        made = ZbusReceiver(LIMITS)
        assert flat(made.receive_data(data[:cut]) + made.receive_data(data[cut:])) == expected


# ---- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first_line", ["GET /", "GET / HTTP/1.1", "POST /q HTTP/1.1", "GET /q?a=1 HTTP/1.1", "GET /produce"]
)
def test_message_without_command_asks_for_the_page(first_line: str) -> None:
    (event,) = received(f"{first_line}\r\n\r\n")
    assert isinstance(event, Admin)
    assert (event.method, event.msgid, event.body) == ("index", None, b"")


@pytest.mark.parametrize("cmd", ["PRODUCE", "Produce", "publish", "", "track_pub", "sub", "ü"])
def test_command_that_is_not_spelled_exactly_is_unknown(cmd: str) -> None:
    (event,) = received(message(cmd, msgid="m"))
    assert event == ZbusRefused(400, f"Bad format: command({cmd}) not support", b"m")


@pytest.mark.parametrize("cmd", ["track_report", "track_sub"])
def test_tracker_commands_mean_the_same_at_top_level(cmd: str) -> None:
    (event,) = received(message(cmd, "{}", msgid="m", token="t"))
    assert isinstance(event, Admin)
    assert (event.method, event.msgid, event.token, event.body) == (cmd, b"m", b"t", b"{}")


def test_admin_command_has_all_keys_but_the_token() -> None:
    (event,) = received(
        "POST /q?mq_mode=2&Access_Token=key HTTP/1.1\r\ncmd: admin\r\nmethod: create_mq\r\ntoken: t\r\nack: 0\r\n\r\n"
    )
    keys = {"mq": "q", "mq_mode": "2", "access_token": "key", "cmd": "admin", "method": "create_mq", "ack": "0"}
    assert event == Admin("create_mq", keys, token=b"t")


def test_heartbeat_has_no_answer_with_or_without_id() -> None:
    assert received(message("heartbeat", msgid="m"), message("heartbeat")) == [ZbusHeartbeat(), ZbusHeartbeat()]


def test_consume_takes_topics_window_and_token() -> None:
    (event,) = received(message("consume", mq="q", msgid="c", topic=" a,, b ,*", window="-1", token="t", ack="0"))
    assert event == Consume(b"q", b"c", (b"a", b"b", b"*"), b"t", False, -1)


def test_consume_with_an_odd_window_is_refused() -> None:
    assert received(message("consume", mq="q", msgid="c", window="0")) == [ZbusRefused(400, "Bad format: window", b"c")]


def test_every_message_tells_which_page_it_comes_from() -> None:
    told = {"host": "localhost", "origin": "http://evil.example", "sec_fetch_site": "cross-site"}
    events = received(*(message(cmd, mq="q", **told) for cmd in ("produce", "consume", "request", "admin")))
    browser = Browser(b"localhost", b"http://evil.example", b"cross-site")
    assert [event.browser for event in events if not isinstance(event, ZbusRefused | ZbusHeartbeat | Continue100)] == [
        browser
    ] * 4


def test_status_line_without_command_is_admin_too() -> None:
    (event,) = received("HTTP/1.1 200 OK\r\n\r\n")
    assert isinstance(event, Admin)


# ---- batches --------------------------------------------------------------------------------------------------------


def test_consecutive_produces_are_one_batch_of_few_columns() -> None:
    (event,) = received(*(message("produce", str(n), mq="q", msgid=f"m{n}", token="t", ack="true") for n in range(3)))
    assert isinstance(event, Produce)
    assert vars(event.batch) == {
        "count": 3,
        "wire": b"zbus",
        "kind": b"publish",
        "topic": b"q",
        "message_id": [b"m0", b"m1", b"m2"],
        "payload": [b"0", b"1", b"2"],
    }
    assert (event.ack, event.token, event.topic, event.status, event.browser) == (True, b"t", None, None, None)


def test_columns_become_lists_only_where_rows_differ() -> None:
    (event,) = received(
        message("produce", mq="a", msgid="1"),
        message("produce", mq="b", ack="0"),
        message("produce", mq="b", token="t"),
    )
    assert isinstance(event, Produce)
    assert event.batch.topic == [b"a", b"b", b"b"]
    assert event.batch.message_id == [b"1", None, None]
    assert (event.ack, event.token) == ([True, False, True], [None, None, b"t"])


def test_produces_requests_and_other_events_stay_in_order() -> None:
    produce, request = message("produce", mq="q"), message("request", mq="q", msgid="r")
    events = received(
        produce, produce, request, request, produce, message("consume", mq="q"), produce, "GET /%\r\n\r\n"
    )
    kinds = [Produce, Ask, Produce, Consume, Produce, ZbusRefused]
    assert [type(event) for event in events] == kinds
    assert [event.batch.count for event in events if isinstance(event, Produce | Ask)] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    "cmds", [["produce", "consume"], ["consume", "produce", "request", "heartbeat", "admin", "fly"]]
)
def test_commands_that_share_a_shape_stay_in_order(cmds: list[str]) -> None:
    data = "".join(message(cmd, mq="q", msgid=f"m{n}") for n in range(5) for cmd in cmds).encode()
    made = ZbusReceiver(LIMITS)
    for _ in range(3):
        assert flat(made.receive_data(data)) == flat(strict().receive_data(data))


def test_one_bad_value_among_many_is_refused_alone_and_in_its_place() -> None:
    codes = ["200", "500", "bad", "404", "500", "500"]
    data = "".join(message("produce", mq="q", msgid=f"m{n}", reply_code=code) for n, code in enumerate(codes)).encode()
    made = ZbusReceiver(LIMITS)
    for _ in range(3):
        events = flat(made.receive_data(data))
        assert [event if isinstance(event, ZbusRefused) else event["zbus status"] for event in events] == [
            None,
            500,
            ZbusRefused(400, "Bad format: reply-code", b"m2"),
            404,
            500,
            500,
        ]


def test_same_bad_value_in_all_messages_of_a_run_refuses_each_under_its_own_id() -> None:
    data = "".join(message("produce", mq="q", msgid=f"m{n}", reply_code="100") for n in range(6)).encode()
    made = ZbusReceiver(LIMITS)
    for _ in range(2):
        assert made.receive_data(data) == [ZbusRefused(400, "Bad format: status", b"m%d" % n) for n in range(6)]


def test_token_is_nowhere_in_the_batch() -> None:
    secret = "TOP-SECRET"
    (event,) = received(*(message("produce", "x", mq="q", token=secret, x=str(n)) for n in range(3)))
    assert isinstance(event, Produce)
    assert secret.encode() not in repr(vars(event.batch)).encode()
    assert event.token == secret.encode()


def test_many_messages_with_headers_of_their_own_cost_no_more_than_their_bytes() -> None:
    """A column for each header name would have a place for each message."""
    names = [[f"x{row}-{column}: 1" for column in range(150)] for row in range(400)]
    data = "".join("POST /q?cmd=produce HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n" for lines in names)
    (event,) = received(data)
    assert isinstance(event, Produce)
    assert event.batch.count == 400


def test_continue_stands_behind_what_came_before() -> None:
    waiting = message("produce", "body", mq="q", expect="100-continue")
    events = received(message("produce", mq="q"), waiting[:-4])
    assert [type(event) for event in events] == [Produce, Continue100]


# ---- smuggling ------------------------------------------------------------------------------------------------------

INNER = "POST / HTTP/1.1\r\ncmd: admin\r\nmethod: create_mq\r\nmsgid: inner\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        "content-length: 0\r\ncontent-length: {n}\r\n",
        "content-length: {n}\r\nContent-Length: 0\r\n",
        "content-length: {n}\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\ncontent-length: {n}\r\n",
        "transfer-encoding\t: chunked\r\ncontent-length: {n}\r\n",
        "content-length : {n}\r\n",
        " content-length: {n}\r\n",
        "x: 1\r\n content-length: {n}\r\n",
        "x: 1\n content-length: {n}\r\n",
        "x: 1\rcontent-length: {n}\r\n",
        "content-length: +{n}\r\n",
        "content-length: {n},{n}\r\n",
        "content-length: 0{n}\r\ncontent-length: {n}\r\n",
        "content-length: \x0b{n}\r\n",
        "content-length: {n}\x00\r\n",
        "content\x00-length: {n}\r\n",
        "content-length: 0x10\r\n",
    ],
)
def test_message_whose_end_could_be_read_in_two_ways_ends_the_connection(framing: str) -> None:
    outer = "POST / HTTP/1.1\r\ncmd: produce\r\nmq: q\r\n" + framing.format(n=len(INNER)) + "\r\n"
    events = received(outer, INNER, INNER)
    assert len(events) == 1
    assert isinstance(events[0], ZbusRefused)
    assert events[0].close


def test_keys_of_the_uri_cannot_change_where_a_message_ends() -> None:
    events = received("GET /q?cmd=produce&content-length=70&transfer-encoding=chunked HTTP/1.1\r\n\r\n", INNER)
    assert [type(event) for event in events] == [Produce, Admin]


@given(st.binary(max_size=60))
def test_body_never_becomes_a_message(body: bytes) -> None:
    data = b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: q\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    (event,) = received(data, data)
    assert isinstance(event, Produce)
    assert event.batch.payload == [body, body]
