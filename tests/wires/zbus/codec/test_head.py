"""The head of a zbus message: framing rules, first lines, URIs, keys and their spellings."""

from __future__ import annotations

import time

import pytest

from raceway.wires.zbus.codec.head import LEARNABLE_HEADERS, First, ZbusHead, ZbusLimits, ZbusRefused, read_head

LIMITS = ZbusLimits()


def read(head: bytes | str) -> ZbusHead:
    found = read_head(head.encode() if isinstance(head, str) else head, LIMITS)
    assert isinstance(found, ZbusHead), found
    return found


def refused(head: bytes | str) -> ZbusRefused:
    found = read_head(head.encode() if isinstance(head, str) else head, LIMITS)
    assert isinstance(found, ZbusRefused)
    assert found.status == 400
    assert found.close
    return found


def keys(head: bytes | str) -> dict[bytes, bytes]:
    found = read(head)
    assert found.fault is None
    return found.keys


# ---- first line -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["GET / HTTP/1.1", "get / http/1.0", "PoSt /", "PRODUCE-NOW / HTTP/1.1", "x *"])
def test_any_method_word_with_or_without_version_is_taken(line: str) -> None:
    assert read(line).first.status is None


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.1 500 Internal Server Error", 500),
        ("http/1.0 404", 404),
        ("HTTP/1.1 299 ", 299),
    ],
)
def test_word_that_begins_with_http_marks_a_status_line(line: str, status: int) -> None:
    assert read(line + "\r\ncmd: produce").first == First(status, {})


@pytest.mark.parametrize(
    "line",
    [
        "", "GET", "GET ", " / HTTP/1.1", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET / HTTP/2.0", "GET / HTTPS",
        "GET / x y",
        "G(T / HTTP/1.1", "GËT /", "HTTP/1.1", "HTTP/1.1 OK", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 099 x",
        "HTTP/2 200 OK", "HTTPX / HTTP/1.1", "HTTP/1.1  200 OK", "HTTP/1.1 200\tOK", "GET\t/ HTTP/1.1",
    ],
)  # fmt: skip
def test_first_line_that_is_neither_is_refused(line: str) -> None:
    assert refused(line + "\r\nmsgid: m").msgid == b"m"


# ---- header lines ---------------------------------------------------------------------------------------------------


def test_names_fold_to_lower_case_and_values_are_kept() -> None:
    assert keys("GET /\r\nCMD: Produce\r\nX-Shop:\tNord Ost \t") == {b"cmd": b"Produce", b"x-shop": b"Nord Ost"}


def test_name_ends_at_the_first_colon() -> None:
    assert keys("GET /\r\na:b:c\r\nd:") == {b"a": b"b:c", b"d": b""}


def test_last_value_of_a_repeated_name_wins() -> None:
    assert keys("GET /\r\na: 1\r\nA: 2") == {b"a": b"2"}


def test_line_without_a_colon_is_skipped() -> None:
    assert keys("GET /\r\nwhat is this\r\na: 1") == {b"a": b"1"}


@pytest.mark.parametrize(
    "line",
    [
        "mq : orders", " mq: orders", "\tmq: orders", " continued", "\tcontinued", ": value", "m q: x", "größe: 1",
        "a\x0b: 1",
        "\x00: 1", "a: \x00", "a: b\rc", "a: b\nc", "a: \x1b[1m", "a: \x7f", '"a": 1', "content-length : 5",
    ],
)  # fmt: skip
def test_line_that_peers_could_read_differently_is_refused(line: str) -> None:
    assert refused(f"GET /\r\nmsgid: m-1\r\n{line}").msgid == b"m-1"


def test_bare_line_ends_are_refused_wherever_they_stand() -> None:
    for head in (b"GET /\ncmd: a", b"GET /\rcmd: a", b"GET /\r\na: 1\n\r\nb: 2", b"GET /\r\n\ra: 1", b"GET /\n\r"):
        refused(head)


def test_text_of_a_head_is_utf8() -> None:
    assert keys("GET /\r\nmq: grün") == {b"mq": "grün".encode()}


@pytest.mark.parametrize("head", [b"GET /\r\nmsgid: m\r\nmq: \xff", b"GET /\xff HTTP/1.1\r\nmsgid: m"])
def test_head_that_is_no_utf8_is_a_fault_of_this_message_alone(head: bytes) -> None:
    assert read(head).fault == "head is not UTF-8"


def test_as_many_headers_as_the_limit_says_and_no_more() -> None:
    lines = [f"h{number}: x" for number in range(LIMITS.headers)]
    assert len(keys("\r\n".join(["GET /", *lines]))) == 200
    assert refused("\r\n".join(["GET /", *lines, "msgid: m"])).text == "Bad format: more than 200 headers"


# ---- length ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ("", 0), ("content-length: 0", 0), ("Content-Length:\t17 ", 17), ("content-length: 007", 7),
        ("content-length: 5\r\nCONTENT-LENGTH: 5", 5), ("content-length: " + "0" * 30 + "5", 5),
        ("content-length: 123456789012", 123456789012),
    ],
)  # fmt: skip
def test_length_is_a_decimal_number_and_0_when_absent(lines: str, length: int) -> None:
    assert read(f"GET /\r\n{lines}" if lines else "GET /").length == length


def test_length_of_thousands_of_digits_is_just_too_large() -> None:
    assert read("GET /\r\ncontent-length: " + "9" * 60_000).length > LIMITS.body_bytes


@pytest.mark.parametrize("text", ["many", "", "-1", "+5", "5 5", "5,5", "0x5", "5_0", "5.0", "٣", "1e3", "5;"])
def test_length_that_is_no_number_is_refused_with_the_id(text: str) -> None:
    found = refused(f"POST / HTTP/1.1\r\ncmd: produce\r\nmsgid: z-1\r\ncontent-length: {text}")
    assert found == ZbusRefused(400, "Bad format: content-length", b"z-1", close=True)


@pytest.mark.parametrize("second", ["6", "05", "", "5, 5"])
def test_lengths_that_differ_are_refused(second: str) -> None:
    assert (
        refused(f"GET /\r\ncontent-length: 5\r\nContent-Length: {second}").text
        == "Bad format: differing content-length"
    )


@pytest.mark.parametrize("value", ["chunked", "identity", ""])
def test_any_transfer_coding_is_refused(value: str) -> None:
    assert refused(f"POST /\r\ncontent-length: 5\r\nTransfer-Encoding: {value}").text == "Bad format: transfer-encoding"


def test_framing_keys_of_a_uri_frame_nothing() -> None:
    assert read("GET /?content-length=7&transfer-encoding=chunked").length == 0


def test_wish_to_be_told_to_go_on_is_noted() -> None:
    assert read("POST /\r\nExpect: 100-Continue\r\ncontent-length: 5").expects_continue
    assert not read("POST /\r\nexpect: more").expects_continue


# ---- URI ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/", {}),
        ("/MyMQ", {b"mq": b"MyMQ"}),
        ("MyMQ", {b"mq": b"MyMQ"}),
        ("//MyMQ", {b"mq": b"/MyMQ"}),
        ("/a%2Fb/c+d", {b"mq": b"a/b/c+d"}),
        ("/%67r%C3%BCn?x=1", {b"mq": "grün".encode(), b"x": b"1"}),
        ("/grün", {b"mq": "grün".encode()}),
        ("/?cmd=admin&&method=index", {b"cmd": b"admin", b"method": b"index"}),
        ("/q?cmd=consume&msgid=w-2", {b"mq": b"q", b"cmd": b"consume", b"msgid": b"w-2"}),
        ("/q?&&&a=1&&&&b=2&", {b"mq": b"q", b"a": b"1", b"b": b"2"}),
        ("/q?mq=other", {b"mq": b"other"}),
        ("/q?mq=", {b"mq": b""}),
        ("/?a=b=c&d", {b"a": b"b=c", b"d": b""}),
        ("/?%20X-Shop%20=Nord%20+Ost", {b"x-shop": b"Nord  Ost"}),
        ("/?a=1?b=2", {b"a": b"1?b=2"}),
        ("/?a=%2525", {b"a": b"%25"}),
        ("/?a=1&a=2", {b"a": b"2"}),
        ("/?tab=%09x", {b"tab": b"x"}),
    ],
)
def test_uri_is_read_as_keys(uri: str, expected: dict[bytes, bytes]) -> None:
    assert keys(f"GET {uri} HTTP/1.1") == expected


@pytest.mark.parametrize(
    ("uri", "body"),
    [("/?body=hi%20there+you", b"hi there you"), ("/?body=%00%ff%0d%0a", b"\x00\xff\r\n"), ("/?body=", b"")],
)
def test_body_in_the_uri_may_have_any_bytes_and_is_no_key(uri: str, body: bytes) -> None:
    found = read(f"GET {uri}")
    assert (found.first.body, found.keys, found.fault) == (body, {}, None)


@pytest.mark.parametrize(
    ("uri", "fault"),
    [
        ("/%", "escape in the URI"),
        ("/%4", "escape in the URI"),
        ("/%zz", "escape in the URI"),
        ("/?a=%u0041", "escape in the URI"),
        ("/?a=%+1", "escape in the URI"),
        ("/?%=1", "escape in the URI"),
        ("/?body=%g0", "escape in the URI"),
        ("/?a=%ff", "key in the URI"),
        ("/?a=x%0d%0aevil:1", "key in the URI"),
        ("/?a=%00", "key in the URI"),
        ("/?x%0d%0aevil=1", "key in the URI"),
        ("/?a%3ab=1", "key in the URI"),
        ("/?a+b=1", "key in the URI"),
        ("/?=1", "key in the URI"),
        ("/?%C3%BC=1", "key in the URI"),
        ("/%00", "path of the URI"),
        ("/a%0d%0ab", "path of the URI"),
        ("/%ff", "path of the URI"),
    ],
)
def test_uri_that_cannot_be_read_is_a_fault_of_this_message_alone(uri: str, fault: str) -> None:
    found = read(f"GET {uri}{'&' if '?' in uri else '?'}msgid=m-1 HTTP/1.1\r\ncontent-length: 3")
    assert (found.fault, found.length, found.keys[b"msgid"]) == (fault, 3, b"m-1")


def test_keys_of_a_uri_are_bounded_like_headers() -> None:
    assert len(keys("GET /?" + "&".join(f"k{n}=1" for n in range(200)))) == 200
    assert read("GET /?" + "&".join(f"k{n}=1" for n in range(201))).fault == "more than 200 keys in the URI"


# ---- priorities -----------------------------------------------------------------------------------------------------


def test_header_counts_more_than_the_query_and_the_query_more_than_the_path() -> None:
    assert keys("GET /path?mq=query&msgid=uri HTTP/1.1\r\nmq: header") == {b"mq": b"header", b"msgid": b"uri"}
    assert keys("GET /path?mq=query") == {b"mq": b"query"}


def test_empty_header_counts_too() -> None:
    assert keys("GET /path?mq=query HTTP/1.1\r\nmq:")[b"mq"] == b""


@pytest.mark.parametrize(
    ("older", "newer"), [("mq_reply", "mq-reply"), ("msgid_raw", "msgid-raw"), ("reply_code", "reply-code")]
)
def test_both_spellings_are_taken_and_the_hyphen_counts_more(older: str, newer: str) -> None:
    name = newer.encode()
    assert keys(f"GET /\r\n{older}: u") == keys(f"GET /?{older}=u") == {name: b"u"}
    for head in (
        f"GET /\r\n{older}: u\r\n{newer}: h",
        f"GET /\r\n{newer}: h\r\n{older}: u",
        f"GET /?{older}=u&{newer}=h",
    ):
        assert keys(head) == {name: b"h"}


def test_header_in_the_older_spelling_counts_more_than_the_uri_in_the_newer() -> None:
    assert keys("GET /?mq-reply=uri HTTP/1.1\r\nmq_reply: header") == {b"mq-reply": b"header"}


def test_sub_cmd_is_method_in_admin_commands_only() -> None:
    assert keys("GET /\r\nsub_cmd: data") == {b"method": b"data"}
    assert keys("GET /\r\ncmd: admin\r\nsub_cmd: data\r\nmethod: index")[b"method"] == b"index"
    assert keys("GET /?cmd=admin&sub_cmd=data")[b"method"] == b"data"
    assert keys("GET /?method=data HTTP/1.1\r\nsub_cmd: index")[b"method"] == b"index"
    assert keys("GET /\r\ncmd: produce\r\nsub_cmd: x") == {b"cmd": b"produce", b"sub_cmd": b"x"}


# ---- what may be learned --------------------------------------------------------------------------------------------


def test_shape_is_the_first_line_and_the_names_as_spelled() -> None:
    assert read("POST / HTTP/1.1\r\nCmd: produce\r\nmq:x").shape == (b"POST / HTTP/1.1", b"Cmd", b"mq")


@pytest.mark.parametrize(
    "head",
    [
        "GET /\r\na: 1\r\na: 2",
        "GET /\r\na: 1\r\nno colon",
        "GET /\r\nexpect: x",
        "GET /\r\nsub_cmd: x",
        "GET /?sub_cmd=x HTTP/1.1\r\na: 1",
        "GET /% HTTP/1.1\r\na: 1",
        "GET / HTTP/1.1\r\na: " + "x" * 1024,
        "\r\n".join(["GET /", *(f"h{n}: 1" for n in range(LEARNABLE_HEADERS + 1))]),
    ],
)
def test_unusual_head_is_not_learned(head: str) -> None:
    assert read(head).shape == ()


def test_head_that_is_no_utf8_is_not_learned() -> None:
    assert read(b"HTTP/1.1 200 \xd1OK\r\nmsgid: a").shape == ()


# ---- hostile --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"%" * 60_000,
        b"GET /" + b"%41" * 20_000,
        b"GET /" + b"%25" * 20_000,
        b"GET /?" + b"&" * 60_000,
        b"GET /?" + b"a&" * 30_000,
        b"GET /?" + b"=" * 60_000,
        b"GET /\r\na:" + b" " * 60_000 + b"\0",
        b"GET /\r\na:" + b" " * 60_000 + b"x",
        b"GET /\r\n" + b":\r\n" * 20_000,
        b"GET /\r\n" + b"a" * 60_000,
        b"GET /\r\n" + b"a" * 60_000 + b": 1",
        b" " * 60_000,
        b"HTTP/1.1 200 " + b" " * 60_000,
        b"GET /\r\nmsgid:" + b" " * 30_000 + b"x" * 30_000 + b"\r\n\0",
    ],
    ids=range(14),
)
def test_longest_heads_are_read_in_no_time(head: bytes) -> None:
    began = time.process_time()
    read_head(head, LIMITS)
    assert time.process_time() - began < 0.25


def test_id_of_a_refused_head_is_only_told_when_it_is_harmless() -> None:
    for bad in (b"a\x00b", b"x" * 256, b"", b"a b", "ü".encode()):
        found = read_head(b"GET /\r\nmsgid: " + bad + b"\r\n: 1", LIMITS)
        assert isinstance(found, ZbusRefused)
        assert found.msgid is None
