"""A small client of the zbus wire for black-box tests, written apart from the product's own codec.

A `Client` is one connection with blocking calls that all have a deadline. Whatever the server sends is held against
the framing rules: lower-case names, each once, `content-length` always. To prove that something was *not* sent, call
`settled()`: it produces a message of its own and returns whatever came before the acknowledgement, so no test has to
wait and hope.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from tests.rigs.server import Server

DEADLINE_S = 10.0
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
TIME_MS = re.compile(rb"\d{13}")
# Ports behind the server's first.
ZBUS, TRACKER = 3, 7
# Mode bits of a queue.
MQ, PUBSUB, TEMP = 1, 2, 4
EVERY_BYTE = bytes(range(256))

_STATUS_LINE = re.compile(r"HTTP/1\.1 (\d{3}) ([ -~]*)")
# The only message with a request line that a server sends: the tracker's push.
_PUSH_LINE = "GET / HTTP/1.1"
_FENCE = "fence"


class ClosedByServer(Exception):  # noqa: N818 - an event of the wire, not always an error
    """The server ended the connection."""


class Message(NamedTuple):
    """What the server sent."""

    first: str
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> int:
        """0: a request line."""
        found = _STATUS_LINE.fullmatch(self.first)
        return int(found[1]) if found else 0

    @property
    def msgid(self) -> str | None:
        return self.headers.get("msgid")

    @property
    def raw_id(self) -> str | None:
        return self.headers.get("msgid-raw")

    @property
    def is_page(self) -> bool:
        """The monitoring page."""
        is_html = self.headers.get("content-type") == "text/html; charset=utf-8"
        return self.status == 200 and is_html and b"<html" in self.body.lower()

    def json(self) -> Any:
        return json.loads(self.body)


def new_id() -> str:
    return str(uuid.uuid4())


def fresh_name() -> str:
    """A queue that no other test uses."""
    return "q" + uuid.uuid4().hex[:12]


def compose(keys: Mapping[str, str], body: bytes | str = b"", first: str = "POST / HTTP/1.1") -> bytes:
    """A message as sent: names as they are, `content-length` added unless given."""
    data = body.encode() if isinstance(body, str) else body
    lines = dict(keys)
    if "content-length" not in {name.lower() for name in lines}:
        lines["content-length"] = str(len(data))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{first}\r\n{head}\r\n".encode() + data


class Client:
    """One connection. Keywords of its calls are keys of the wire; `mq_reply=` is sent as `mq-reply`."""

    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:  # so that what is left unread stays with the server
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(DEADLINE_S)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.backlog: deque[Message] = deque()
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Break the connection off: a reset instead of a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    # ---- messages ----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.socket.settimeout(DEADLINE_S)
        self.socket.sendall(data)

    def write_slowly(self, data: bytes, pause_s: float = 0.00005) -> None:
        """Byte by byte, each in a segment of its own."""
        for byte in data:
            self.write(bytes([byte]))
            time.sleep(pause_s)

    def send(self, cmd: str, body: bytes | str = b"", **keys: str) -> None:
        named = {"cmd": cmd} | {name.replace("_", "-"): value for name, value in keys.items()}
        self.write(compose(named, body))

    def get(self, uri: str) -> None:
        """All by URL, as a browser does."""
        self.write(f"GET {uri} HTTP/1.1\r\n\r\n".encode())

    def receive(self, timeout_s: float = DEADLINE_S) -> Message:
        """The next message in order."""
        return self.backlog.popleft() if self.backlog else self._read(time.monotonic() + timeout_s)

    def wait_for(self, wanted: Callable[[Message], bool], timeout_s: float = DEADLINE_S) -> Message:
        """The next message of that kind; others stay for `receive`, in order."""
        for message in self.backlog:
            if wanted(message):
                self.backlog.remove(message)
                return message
        end = time.monotonic() + timeout_s
        while not wanted(message := self._read(end)):
            self.backlog.append(message)
        return message

    def reply(self, msgid: str, timeout_s: float = DEADLINE_S) -> Message:
        return self.wait_for(lambda message: message.msgid == msgid, timeout_s)

    def wait_for_push(self, address: str) -> Message:
        """The next message of a tracker in which that broker stands."""
        return self.wait_for(lambda message: message.status == 0 and address in message.json()["brokerTable"])

    def until_closed(self, timeout_s: float = DEADLINE_S) -> list[Message]:
        """What came until the server closed the connection."""
        end = time.monotonic() + timeout_s
        with suppress(ClosedByServer):
            while True:
                self.backlog.append(self._read(end))
        assert not self._received, f"closed in the middle of a message: {bytes(self._received[:200])!r}"
        return list(self.backlog)

    def settled(self, token: str = "") -> list[Message]:
        """Everything that the server had sent before it acknowledged one more message; empties the backlog."""
        self.synchronise(token)
        earlier = list(self.backlog)
        self.backlog.clear()
        return earlier

    def synchronise(self, token: str = "") -> None:
        """Returns when the server has handled all that was sent here so far; messages stay for `receive`."""
        if self.ask("produce", mq=_FENCE).status == 404:
            self.create(_FENCE, token=token)

    # ---- commands ----------------------------------------------------------------------------------------------------

    def ask(self, cmd: str, body: bytes | str = b"", **keys: str) -> Message:
        """A command and the reply to it."""
        msgid = keys.pop("msgid", "") or new_id()
        self.send(cmd, body, msgid=msgid, **keys)
        return self.reply(msgid)

    def admin(self, method: str, body: bytes | str = b"", **keys: str) -> Message:
        return self.ask("admin", body, method=method, **keys)

    def create(self, mq: str = "", mode: int = MQ, access_token: str = "", token: str = "") -> str:
        """A queue; its name."""
        mq = mq or fresh_name()
        document = {"mqName": mq, "mqMode": str(mode), "accessToken": access_token}
        reply = self.admin("create_mq", json.dumps(document), **({"token": token} if token else {}))
        assert (reply.status, bool(TIME_MS.fullmatch(reply.body))) == (200, True), reply
        return mq

    def data(self) -> Any:
        """The `data` document."""
        reply = self.admin("data")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json"), reply
        return reply.json()

    def produce(self, mq: str, body: bytes | str = b"", **keys: str) -> str:
        """Stored and acknowledged; the id."""
        reply = self.ask("produce", body, mq=mq, **keys)
        assert (reply.status, bool(TIME_MS.fullmatch(reply.body))) == (200, True), reply
        return str(reply.msgid)

    def arm(self, mq: str, **keys: str) -> str:
        """Start to wait for a message; the id under which it will come. The server has seen it."""
        msgid = keys.pop("msgid", "") or new_id()
        self.send("consume", mq=mq, msgid=msgid, **keys)
        self.synchronise()
        return msgid

    def take(self, mq: str, **keys: str) -> Message:
        """The next message of a queue."""
        delivery = self.ask("consume", mq=mq, **keys)
        assert delivery.headers["mq"] == mq, delivery
        return delivery

    def request(self, mq: str, body: bytes | str = b"", **keys: str) -> str:
        """Ask a service; the id under which the answer will come."""
        msgid = keys.pop("msgid", "") or new_id()
        self.send("request", body, mq=mq, msgid=msgid, **keys)
        return msgid

    def answer(self, delivery: Message, body: bytes | str = b"", **keys: str) -> None:
        """As services do: to the queue and under the id that the request names, without wanting an acknowledgement."""
        keys = {"mq": delivery.headers["mq-reply"], "msgid": str(delivery.raw_id), "ack": "0"} | keys
        self.send("produce", body, **keys)

    def serve_one(self, mq: str, body: bytes | str = b"", **keys: str) -> Message:
        """Take one request and answer it."""
        delivery = self.take(mq)
        self.answer(delivery, body, **keys)
        return delivery

    # ---- bytes -------------------------------------------------------------------------------------------------------

    def _read(self, end: float) -> Message:
        head = self._take_head(end).decode()
        first, *lines = head.split("\r\n")
        pairs = [line.partition(":") for line in lines]
        headers = {name: value.strip(" ") for name, _, value in pairs}
        assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", "".join([first, *lines])), f"control characters in {head!r}"
        assert len(headers) == len(lines), f"a header twice: {head!r}"
        assert all(separator and re.fullmatch(r"[!-9;-@\[-~]+", name) for name, separator, _ in pairs), head
        is_continue = first.startswith("HTTP/1.1 100 ")
        assert is_continue or "content-length" in headers, head
        assert _STATUS_LINE.fullmatch(first) or first == _PUSH_LINE, head
        return Message(first, headers, self._take(0 if is_continue else int(headers["content-length"]), end))

    def _take_head(self, end: float) -> bytes:
        searched = 0
        while (at := self._received.find(b"\r\n\r\n", searched)) < 0:
            searched = max(0, len(self._received) - 3)
            self._fill(end)
        return self._take(at + 4, end)[:-4]

    def _take(self, count: int, end: float) -> bytes:
        while len(self._received) < count:
            self._fill(end)
        taken = bytes(memoryview(self._received)[:count])
        del self._received[:count]
        return taken

    def _fill(self, end: float) -> None:
        self.socket.settimeout(max(end - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ClosedByServer
        self._received += data


# Opens one more connection.
Dial = Callable[[], Client]


def zbus_port(server: Server) -> int:
    return server.port_base + ZBUS


def broker_address(server: Server) -> str:
    """What the server says of itself in the key `broker`."""
    return f"127.0.0.1:{zbus_port(server)}"


def dial_server(server: Server) -> Client:
    return Client(zbus_port(server))
