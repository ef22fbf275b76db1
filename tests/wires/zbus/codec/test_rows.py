"""Keys of zbus messages as columns: defaults, conversions, attributes, what no receiver may see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.model.envelope import Column
from raceway.wires.zbus.codec.head import First
from raceway.wires.zbus.codec.rows import (
    Browser,
    ColumnValues,
    KeyValueError,
    common_columns,
    consume_columns,
    differs,
    is_final,
    is_true,
    joined,
    message_columns,
)
from raceway.wires.zbus.codec.shapes import ShapedRun


def run(count: int = 1, status: int | None = None, body: bytes = b"", **keys: Column[bytes]) -> ShapedRun:
    named = {name.replace("_", "-").encode(): value for name, value in keys.items()}
    return ShapedRun(First(status, {}), named, [body] * count)


def columns(**keys: Column[bytes]) -> ColumnValues:
    return message_columns(run(1, None, b"", **keys))


def attributes(**keys: Column[bytes]) -> Any:
    found = columns(**keys).get("attributes")
    return found and json.loads(found)


# ---- keys with a column ---------------------------------------------------------------------------------------------


def test_message_without_keys_has_defaults() -> None:
    assert columns() == {"topic": b"", "ack": True, "payload": [b""]}


def test_each_key_has_its_column() -> None:
    found = columns(
        mq=b"q", msgid=b"m", mq_reply=b"r", msgid_raw=b"p", token=b"t", topic=b"s", routing_key=b"k", ack=b"0"
    )
    assert found.pop("attributes") == b'{"zbus.topic":"s"}'
    assert found == {
        "topic": b"q",
        "message_id": b"m",
        "reply_to": b"r",
        "parent_id": b"p",
        "token": b"t",
        "subject": b"s",
        "routing_key": b"k",
        "ack": False,
        "payload": [b""],
    }


def test_empty_value_is_as_good_as_none() -> None:
    assert columns(mq=b"", msgid=b"", token=b"", topic=b"", mq_reply=b"") == columns()


def test_lists_are_converted_item_by_item() -> None:
    found = message_columns(run(2, mq=[b"", b"q"], msgid=[b"m", b""], token=[b"", b"t"], ack=[b"1", b""]))
    assert found["topic"] == [b"", b"q"]
    assert found["message_id"] == [b"m", None]
    assert found["token"] == [None, b"t"]
    assert found["ack"] == [True, False]


@pytest.mark.parametrize("value", [b"1", b"true", b"TRUE", b"True"])
def test_true_is_1_or_true_in_any_case(value: bytes) -> None:
    assert is_true(value)


@pytest.mark.parametrize("value", [b"", b"0", b"false", b"yes", b"on", b"2", b"11", b"t", b"true ", b"truee"])
def test_every_other_value_of_ack_is_false(value: bytes) -> None:
    assert columns(ack=value)["ack"] is False


# ---- status ---------------------------------------------------------------------------------------------------------


def test_status_comes_from_the_status_line_or_from_the_key() -> None:
    for made in (run(status=500), run(reply_code=b"500"), run(status=404, reply_code=b"500")):
        found = message_columns(made)
        assert (found["status"], found["attributes"]) == (500, b'{"zbus.status":"500"}')


@pytest.mark.parametrize("made", [run(status=200), run(reply_code=b"200"), run(status=500, reply_code=b"200"), run()])
def test_status_200_is_nothing_special(made: ShapedRun) -> None:
    assert message_columns(made) == columns()


@pytest.mark.parametrize("code", [b"", b"many", b"-5", b"+200", b"100", b"199", b"600", b"1e3", b"0200000000000"])
def test_status_that_cannot_be_delivered_is_refused(code: bytes) -> None:
    with pytest.raises(KeyValueError):
        columns(reply_code=code)


@pytest.mark.parametrize("status", [204, 205, 304])
def test_status_that_has_no_body_in_http_may_not_come_with_one(status: int) -> None:
    """A browser or curl would take the body for the next message."""
    assert message_columns(run(status=status))["status"] == status
    with pytest.raises(KeyValueError):
        message_columns(run(status=status, body=b"HTTP/1.1 200 OK\r\n\r\n"))


def test_final_status_is_from_200_to_599() -> None:
    assert [is_final(status) for status in (0, 199, 200, 599, 600)] == [False, False, True, True, False]


# ---- encoding, schema -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "column", "kept"),
    [
        ({"content_type": b"text/plain"}, b"text/plain", None),
        ({"encoding": b"gbk"}, b"gbk", None),
        ({"content_encoding": b"gzip"}, b"gzip", {"content-encoding": "gzip"}),
        ({"encoding": b"gbk", "content_encoding": b"gzip"}, b"gbk", {"content-encoding": "gzip"}),
        ({"encoding": b"gbk", "content_type": b"text/plain"}, b"text/plain", {"zbus.encoding": "gbk"}),
        ({"encoding": b"a/b"}, None, {"zbus.encoding": "a/b"}),
        ({"encoding": b"a/b", "content_type": b"c/d"}, b"c/d", {"zbus.encoding": "a/b"}),
        ({"content_type": b"odd"}, None, {"content-type": "odd"}),
        ({"content_type": b"odd", "encoding": b"gbk"}, b"gbk", {"content-type": "odd"}),
        ({"encoding": b""}, None, None),
    ],
)
def test_encoding_and_content_type_share_a_column_and_nothing_is_lost(
    keys: dict[str, bytes], column: bytes | None, kept: dict[str, str] | None
) -> None:
    assert columns(**keys).get("encoding") == column
    assert attributes(**keys) == kept


def test_numbers_of_a_schema_have_columns_if_spelled_plainly() -> None:
    found = columns(schema_id=b"7", schema_version=b"0")
    assert (found["schema_id"], found["schema_version"]) == (7, 0)
    assert "attributes" not in found


@pytest.mark.parametrize("text", [b"", b"07", b"x", b"-1", b"1" * 19, b"1.0"])
def test_odd_number_of_a_schema_travels_on_as_it_is(text: bytes) -> None:
    assert "schema_id" not in columns(schema_id=text)
    assert attributes(schema_id=text) == {"schema-id": text.decode()}


# ---- attributes -----------------------------------------------------------------------------------------------------


def test_unknown_keys_are_attributes_in_order() -> None:
    found = columns(x_b=b"1", x_a="ü".encode(), user_agent=b'"q"', window=b"3", method=b"m")["attributes"]
    assert found == '{"x-b":"1","x-a":"ü","user-agent":"\\"q\\"","method":"m","window":"3"}'.encode()


def test_attributes_that_differ_are_one_object_for_each_row() -> None:
    found = message_columns(run(2, x_a=[b"1", b"2"], x_b=b"s", topic=[b"t", b""]))
    assert found["attributes"] == [b'{"x-a":"1","x-b":"s","zbus.topic":"t"}', b'{"x-a":"2","x-b":"s"}']
    assert message_columns(run(2, topic=[b"t", b""]))["attributes"] == [b'{"zbus.topic":"t"}', None]


@pytest.mark.parametrize(
    "name",
    [
        "cmd", "mq", "msgid", "token", "ack", "broker", "remote-addr", "content-length", "transfer-encoding", "expect",
        "connection", "keep-alive", "te", "trailer", "upgrade", "cookie", "authorization", "proxy-authorization",
        "zbus.status", "zbus.anything",
    ],
)  # fmt: skip
def test_what_concerns_the_connection_or_is_a_secret_never_travels_on(name: str) -> None:
    assert "attributes" not in message_columns(ShapedRun(First(None, {}), {name.encode(): b"secret"}, [b""]))


def test_page_a_message_comes_from_is_told_and_travels_on() -> None:
    found = columns(host=b"h", origin=b"o", sec_fetch_site=b"cross-site")
    assert found["browser"] == Browser(b"h", b"o", b"cross-site")
    assert json.loads(found["attributes"]) == {"host": "h", "origin": "o", "sec-fetch-site": "cross-site"}
    assert columns(content_type=b"a/b").get("browser") is None


def test_keys_whose_values_matter_may_not_differ_within_a_run() -> None:
    assert differs(run(2, reply_code=[b"1", b"2"]))
    assert not differs(run(2, reply_code=b"200", msgid=[b"1", b"2"], x=[b"1", b"2"]))


# ---- consumes and others --------------------------------------------------------------------------------------------


def test_consume_has_its_own_names() -> None:
    found = consume_columns(run(mq=b"q", msgid=b"c", topic=b"a, b", token=b"t", window=b"-1", mq_reply=b"r", x=b"y"))
    assert found == {"mq": b"q", "msgid": b"c", "topics": b"a, b", "token": b"t", "ack": True, "window": -1}


@pytest.mark.parametrize(("text", "window"), [(b"1", 1), (b"-1", -1), (b"999999999", 999999999)])
def test_window_is_a_count_or_no_limit(text: bytes, window: int) -> None:
    assert consume_columns(run(window=text))["window"] == window


@pytest.mark.parametrize("text", [b"0", b"-2", b"", b"many", b"1.5", b"1234567890"])
def test_other_windows_are_refused(text: bytes) -> None:
    with pytest.raises(KeyValueError, match="window"):
        consume_columns(run(window=text))


def test_common_columns_judge_no_value() -> None:
    assert common_columns(run(mq=b"q", window=b"x", reply_code=b"x"))["topic"] == b"q"


# ---- runs that follow one another -----------------------------------------------------------------------------------

cells = st.one_of(st.none(), st.sampled_from([b"a", b"b"]))
parts = st.lists(
    st.tuples(st.integers(1, 3), st.dictionaries(st.sampled_from(["x", "y"]), cells)), min_size=1, max_size=4
)


@given(parts, st.data())
def test_joined_columns_have_every_row_of_every_part(
    parts: list[tuple[int, ColumnValues]], data: st.DataObject
) -> None:
    for count, part in parts:
        for name in part:
            if data.draw(st.booleans()):
                part[name] = data.draw(st.lists(cells, min_size=count, max_size=count))
    rows = [
        {name: value[row] if type(value) is list else value for name, value in part.items()}
        for count, part in parts
        for row in range(count)
    ]
    for name, column in joined(parts).items():
        found = column if type(column) is list else [column] * len(rows)
        assert found == [row.get(name) for row in rows]


def test_joined_columns_stay_one_value_where_all_parts_agree() -> None:
    found = joined(
        [(2, {"topic": b"q", "payload": [b"1", b"2"]}), (1, {"topic": b"q", "payload": [b"3"], "token": b"t"})]
    )
    assert found == {"topic": b"q", "payload": [b"1", b"2", b"3"], "token": [None, None, b"t"]}
