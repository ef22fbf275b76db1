"""Cost of the MB, zbus and Seneca codecs per message, without sockets. Run: python -m bench.codec [case …]

A buffer is like one read of a busy socket: 256 KiB of messages with 200-byte payloads. Figures are nanoseconds of this
process per message, best and median of the rounds, without kernel, broker and journal.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
import uuid
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from bench import codec_seneca
from raceway.wires.mb.codec.encode import acknowledgements, deliveries, tcp_frame
from raceway.wires.mb.codec.header import MbLimits, read_message
from raceway.wires.mb.codec.receiver import MbReceiver
from raceway.wires.zbus.codec import client as zbus_client
from raceway.wires.zbus.codec import encode as zbus_encode
from raceway.wires.zbus.codec.head import ZbusLimits, read_head
from raceway.wires.zbus.codec.receiver import ZbusReceiver

PAYLOAD = b'{"reading":"' + b"x" * 186 + b'"}'
BUFFER_BYTES = 256 * 1024
ROUNDS, ROUND_S = 15, 0.03
LIMITS = MbLimits()


def buffer(header: Callable[[int], bytes], spread: int) -> tuple[bytes, int]:
    """Frames up to a buffer's size, and their number. Payloads have `spread` different lengths."""
    frames: list[bytes] = []
    size = 0
    while size < BUFFER_BYTES:
        message = header(len(frames)) + b"\n" + PAYLOAD + b" " * (len(frames) % spread)
        frames.append(tcp_frame(len(message)) + message)
        size += len(frames[-1])
    return b"".join(frames), len(frames)


def fresh_id() -> bytes:
    return str(uuid.uuid4()).encode()


def parsing(header: Callable[[int], bytes], spread: int = 1) -> tuple[Callable[[], object], int]:
    data, count = buffer(header, spread)
    receiver = MbReceiver(LIMITS, framed=True)
    return lambda: receiver.receive_data(data), count


def parsing_messages(header: Callable[[int], bytes]) -> tuple[Callable[[], object], int]:
    messages = [header(row) + b"\n" + PAYLOAD for row in range(900)]
    receiver = MbReceiver(LIMITS, framed=False)
    return lambda: receiver.receive_messages(messages), len(messages)


def strict(header: Callable[[int], bytes]) -> tuple[Callable[[], object], int]:
    message = header(0) + b"\n" + PAYLOAD
    return lambda: read_message(message, LIMITS), 1


def delivering(payload: bytes) -> tuple[Callable[[], object], int]:
    ids, payloads = [fresh_id() for _ in range(900)], [payload] * 900
    return lambda: deliveries(b"bench.topic", b"1.0.0", ids, payloads, tcp_frame), len(ids)


def acknowledging(topics: int) -> tuple[Callable[[], object], int]:
    ids = [fresh_id() for _ in range(900)]
    column: list[bytes | None] = [b"bench.topic%d" % (row % topics) for row in range(900)]
    topic = column if topics > 1 else b"bench.topic"
    return lambda: acknowledgements(topic, b"1.0.0", ids, tcp_frame), len(ids)


def zbus_message(cmd: bytes, payload: bytes, extra: bytes = b"") -> bytes:
    head = b"cmd: %b\r\nmq: bench\r\nmsgid: %b\r\ntoken: t\r\nack: true\r\n%b" % (cmd, fresh_id(), extra)
    return b"POST / HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (head, len(payload), payload)


def zbus_parsing(message: Callable[[int], bytes], at_once: bool = True) -> tuple[Callable[[], object], int]:
    """A case that parses all messages of a buffer in one read, or each in its own."""
    messages = [message(row) for row in range(700)]
    receiver = ZbusReceiver(ZbusLimits())
    reads = [b"".join(messages)] if at_once else messages
    return lambda: [receiver.receive_data(data) for data in reads], len(messages)


def zbus_strict() -> tuple[Callable[[], object], int]:
    head = zbus_message(b"produce", PAYLOAD).partition(b"\r\n\r\n")[0]
    return lambda: read_head(head, ZbusLimits()), 1


def zbus_acknowledging() -> tuple[Callable[[], object], int]:
    ids = [fresh_id() for _ in range(900)]
    return lambda: zbus_encode.acknowledgements(ids, 1_700_000_000_000), len(ids)


def zbus_delivering() -> tuple[Callable[[], object], int]:
    ids = [fresh_id() for _ in range(900)]

    def work() -> list[bytes]:
        made = []
        for each in ids:
            head = zbus_encode.delivery_head(
                zbus_encode.SentFacts(b"127.0.0.1:15555", b"bench", b"produce", ids[0], b"127.0.0.1:4000")
            )
            made.append(zbus_encode.delivery(b"c-1", head.status, zbus_encode.delivery_tail(each, head, PAYLOAD)))
        return made

    return work, len(ids)


def zbus_client_side() -> tuple[Callable[[], object], int]:
    data = zbus_encode.acknowledgements([fresh_id() for _ in range(900)], 1_700_000_000_000)
    receiver = zbus_client.ZbusClientReceiver()
    return lambda: receiver.receive_data(data), 900


CASES: dict[str, Callable[[], tuple[Callable[[], object], int]]] = {
    "publish": lambda: parsing(lambda row: b"publish:bench.topic:1.0.0"),
    "publish with id": lambda: parsing(lambda row: b"publish:bench.topic:1.0.0:" + fresh_id()),
    "publish, lengths differ": lambda: parsing(lambda row: b"publish:bench.topic:1.0.0", spread=64),
    "publish with id, lengths differ": lambda: parsing(
        lambda row: b"publish:bench.topic:1.0.0:" + fresh_id(), spread=64
    ),
    "request": lambda: parsing(lambda row: b"request:bench.topic:1.0.0:" + fresh_id()),
    "request with timeout": lambda: parsing(lambda row: b"request:bench.topic:1.0.0:%b::5000" % fresh_id()),
    "10 topics": lambda: parsing(lambda row: b"publish:bench.topic%d:1.0.0" % (row % 10)),
    "10 topics with id": lambda: parsing(lambda row: b"publish:bench.topic%d:1.0.0:%b" % (row % 10, fresh_id())),
    "websocket publish": lambda: parsing_messages(lambda row: b"publish:bench.topic:1.0.0"),
    "websocket publish with id": lambda: parsing_messages(lambda row: b"publish:bench.topic:1.0.0:" + fresh_id()),
    "strict publish with id": lambda: strict(lambda row: b"publish:bench.topic:1.0.0:" + fresh_id()),
    "deliveries": lambda: delivering(PAYLOAD),
    "deliveries, not ASCII": lambda: delivering("ü".encode() * 100),
    "acknowledgements": lambda: acknowledging(1),
    "acknowledgements, 10 topics": lambda: acknowledging(10),
    "zbus produce": lambda: zbus_parsing(lambda row: zbus_message(b"produce", PAYLOAD)),
    "zbus produce, lengths differ": lambda: zbus_parsing(
        lambda row: zbus_message(b"produce", PAYLOAD + b" " * (row % 64))
    ),
    "zbus produce, a header differs": lambda: zbus_parsing(
        lambda row: zbus_message(b"produce", PAYLOAD, b"x-trace: %b\r\n" % fresh_id())
    ),
    "zbus produce, one a read": lambda: zbus_parsing(lambda row: zbus_message(b"produce", PAYLOAD), at_once=False),
    "zbus consume": lambda: zbus_parsing(lambda row: zbus_message(b"consume", b"")),
    "zbus produce by URI": lambda: zbus_parsing(
        lambda row: b"GET /q?cmd=produce&&msgid=%d&&body=x HTTP/1.1\r\n\r\n" % row
    ),
    "zbus strict head": lambda: zbus_strict(),
    "zbus acknowledgements": lambda: zbus_acknowledging(),
    "zbus deliveries": lambda: zbus_delivering(),
    "zbus client, acknowledgements": lambda: zbus_client_side(),
    **codec_seneca.CASES,
}


def measure(case: Callable[[], tuple[Callable[[], object], int]]) -> list[float]:
    """Nanoseconds per message, one figure per round."""
    work, count = case()
    began = time.perf_counter()
    work()
    repeats = max(1, int(ROUND_S / (time.perf_counter() - began)))
    figures = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(repeats):
            work()
        figures.append((time.perf_counter() - began) / repeats / count * 1e9)
    return sorted(figures)


def main(chosen: list[str]) -> None:
    table = Table("case", "best", "median", "thousand/s", title="codecs, ns per message")
    for name, case in CASES.items():
        if not chosen or any(word in name for word in chosen):
            figures = measure(case)
            median = statistics.median(figures)
            table.add_row(name, f"{figures[0]:.0f}", f"{median:.0f}", f"{1e6 / median:,.0f}")
    console = Console()
    console.print(f"Python {platform.python_version()}, {platform.machine()}, payload {len(PAYLOAD)} bytes")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
