"""A small client of the MB wire for black-box tests, written apart from the product's own codec.

A `Peer` is one connected service with blocking calls that all have a deadline. To prove that something was *not* sent,
call `settled()`: it asks for a heartbeat and returns whatever came before the answer, so no test has to wait and hope.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_websocket

from tests.rigs.server import Server
from tests.rigs.vectors.mb import frame

Transport = Literal["tcp", "websocket", "tls", "wss"]
DEADLINE_S = 10.0
GREETING = b"publish:system.initialize:1.0.0\n{}"
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# Largest message a client may send: 16384 bytes of payload and 367 of header.
LARGEST = 16_751
SUCCESS, FAILURE = b'{"status":"success"}', b'{"status":"failure"}'


class PeerClosed(Exception):  # noqa: N818 - an event of the wire, not always an error
    """The server ended the connection; `code` is WebSocket's close code, None on TCP."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class Message(NamedTuple):
    """What the server sent."""

    header: str
    payload: bytes

    @property
    def fields(self) -> list[str]:
        return self.header.split(":")

    @property
    def action(self) -> str:
        return self.fields[0]

    @property
    def topic(self) -> str:
        return self.fields[1]

    @property
    def id(self) -> str | None:
        return self.fields[3] if len(self.fields) > 3 else None

    def json(self) -> Any:
        """The body of a message made by the broker: compact JSON without a line feed."""
        assert not re.search(rb"\s", re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', self.payload))
        return json.loads(self.payload)


def new_id() -> str:
    return str(uuid.uuid4())


def fresh_topic(levels: int = 2) -> str:
    """A topic that no other test uses."""
    return ".".join(["t" + uuid.uuid4().hex[:12], "b", "c", "d", "e"][:levels])


def reply_header(topic: str, message_id: str, version: str = "1.0.0") -> str:
    """A response carries the id it answers twice: as request id and as parent."""
    return f"response:{topic}:{version}:{message_id}:{message_id}"


def assert_error(message: Message, code: str, text: str, details: Any = None) -> None:
    """The exact error body; `details` None means there must be none."""
    body = message.json()
    assert list(body) == ["error"]
    error = body["error"]
    assert (error["code"], error["message"]) == (code, text)
    assert error.get("details") == details
    members = ["code", "message", "timestamp", "details"]
    assert list(error) == (members if "details" in error else members[:3])
    assert "details" not in error or details is not None
    assert TIMESTAMP.fullmatch(error["timestamp"])


class Peer:
    """One service. Subclasses carry whole messages over one transport."""

    def __init__(self) -> None:
        self.backlog: deque[Message] = deque()
        greeting = self.read_message(DEADLINE_S)
        assert greeting == GREETING, greeting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what a transport does -------------------------------------------------------------------------------------

    def write_messages(self, messages: Iterable[bytes]) -> None:
        raise NotImplementedError

    def read_message(self, timeout_s: float) -> bytes:
        """The next whole message; TimeoutError, or PeerClosed."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    # ---- what a service does ---------------------------------------------------------------------------------------

    def send(self, header: str, payload: bytes | str | dict[str, Any] | list[Any] = b"{}") -> None:
        self.write_messages([compose(header, payload)])

    def receive(self, timeout_s: float = DEADLINE_S) -> Message:
        """The next message in order."""
        return self.backlog.popleft() if self.backlog else self._read(timeout_s)

    def wait_for(self, wanted: Callable[[Message], bool], timeout_s: float = DEADLINE_S) -> Message:
        """The next message of that kind; others stay for `receive`, in order."""
        for message in self.backlog:
            if wanted(message):
                self.backlog.remove(message)
                return message
        end = time.monotonic() + timeout_s
        while not wanted(message := self._read(end - time.monotonic())):
            self.backlog.append(message)
        return message

    def reply(self, message_id: str, timeout_s: float = DEADLINE_S) -> Message:
        """The response to one's own message."""
        return self.wait_for(lambda message: message.action == "response" and message.id == message_id, timeout_s)

    def ask(self, topic: str, payload: Any = b"{}", timeout_ms: int | None = None, message_id: str = "") -> Message:
        """A request and its response."""
        message_id = message_id or new_id()
        timeout = "" if timeout_ms is None else f"::{timeout_ms}"
        self.send(f"request:{topic}:1.0.0:{message_id}{timeout}", payload)
        return self.reply(message_id)

    def subscribe(self, topic: str, action: str = "publish", priority: float | None = None) -> None:
        body: dict[str, Any] = {"action": action, "topic": topic}
        if priority is not None:
            body["priority"] = priority
        assert self.ask("system.topic.subscribe", body).payload == SUCCESS

    def unsubscribe(self, topic: str, action: str = "publish") -> None:
        assert self.ask("system.topic.unsubscribe", {"action": action, "topic": topic}).payload == SUCCESS

    def publish(self, topic: str, payload: Any = b"{}", **more: str) -> Message:
        """A publish with an id, and the answer to it."""
        message_id = more.get("message_id") or new_id()
        self.send(f"publish:{topic}:{more.get('version', '1.0.0')}:{message_id}", payload)
        return self.reply(message_id)

    def next_request(self, timeout_s: float = DEADLINE_S) -> Message:
        """The next request forwarded to this service."""
        return self.wait_for(lambda message: message.action == "request", timeout_s)

    def answer(self, request: Message, payload: Any = b"{}") -> None:
        """As clients do: the request's header with the action changed."""
        self.send(f"response:{request.header.removeprefix('request:')}", payload)

    def serve_one(self, payload: Any = b"{}") -> Message:
        request = self.next_request()
        self.answer(request, payload)
        return request

    def service_id(self) -> str:
        """The broker never tells a service its id; a subscription of its own shows it in the list."""
        topic = fresh_topic()
        self.subscribe(topic)
        rows = self.ask("system.topic.list").json()["topics"]
        self.unsubscribe(topic)
        return next(str(row["subscribers"][0]["serviceId"]) for row in rows if row["topic"] == topic)

    def register(self, name: str, description: str = "a test") -> None:
        assert self.ask("system.service.register", {"name": name, "description": description}).payload == SUCCESS

    def settled(self) -> list[Message]:
        """Everything that the server had sent before it answered a heartbeat; empties the backlog."""
        message_id = new_id()
        self.send(f"request:system.heartbeat:1.0.0:{message_id}")
        answer = self.reply(message_id)
        assert answer.payload == SUCCESS
        earlier = list(self.backlog)
        self.backlog.clear()
        return earlier

    def until_closed(self, timeout_s: float = DEADLINE_S) -> tuple[list[Message], int | None]:
        """What came until the server closed the connection, and the close code."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                self.backlog.append(self._read(end - time.monotonic()))
            except PeerClosed as closed:
                return list(self.backlog), closed.code

    def _read(self, timeout_s: float) -> Message:
        header, separator, payload = self.read_message(max(timeout_s, 0.0)).partition(b"\n")
        assert separator, f"the server sent a message without a line feed: {header!r}"
        return Message(header.decode(), payload)


# Connects one more service.
Join = Callable[[], Peer]


def compose(header: str, payload: bytes | str | dict[str, Any] | list[Any] = b"{}") -> bytes:
    if isinstance(payload, dict | list):
        payload = json.dumps(payload)
    if isinstance(payload, str):
        payload = payload.encode()
    return header.encode("utf-8", "surrogateescape") + b"\n" + payload


class TcpPeer(Peer):
    """Frames with a length word over TCP, plain or TLS."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        try:
            super().__init__()
        except BaseException:
            self.close()
            raise

    def write_messages(self, messages: Iterable[bytes]) -> None:
        self.socket.settimeout(DEADLINE_S)
        self.socket.sendall(b"".join(map(frame, messages)))

    def write_bytes(self, data: bytes) -> None:
        self.socket.settimeout(DEADLINE_S)
        self.socket.sendall(data)

    def read_message(self, timeout_s: float) -> bytes:
        end = time.monotonic() + timeout_s
        (length,) = struct.unpack(">I", self._take(4, end))
        return self._take(length, end)

    def _take(self, count: int, end: float) -> bytes:
        while len(self._received) < count:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(1 << 18)
            except (ConnectionResetError, ssl.SSLEOFError):
                data = b""
            if not data:
                raise PeerClosed(None)
            self._received += data
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def close(self) -> None:
        self.socket.close()


class WebSocketPeer(Peer):
    """One message per WebSocket message; the client is the `websockets` library."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None, **options: Any) -> None:
        self._stack = ExitStack()
        self.websocket = self._stack.enter_context(
            connect_websocket(
                url,
                ssl=context,
                compression=None,
                max_size=None,
                ping_interval=None,
                proxy=None,
                close_timeout=1,
                **options,
            )
        )
        try:
            super().__init__()
        except BaseException:
            self.close()
            raise

    def write_messages(self, messages: Iterable[bytes]) -> None:
        try:
            for message in messages:
                self.websocket.send(_text_or_binary(message))
        except ConnectionClosed as closed:
            raise PeerClosed(closed.rcvd.code if closed.rcvd else None) from closed

    def read_message(self, timeout_s: float) -> bytes:
        try:
            data = self.websocket.recv(timeout_s)
        except ConnectionClosed as closed:
            raise PeerClosed(closed.rcvd.code if closed.rcvd else None) from closed
        assert isinstance(data, str), "the broker answers with text messages only"
        return data.encode()

    def close(self) -> None:
        self._stack.close()


def _text_or_binary(message: bytes) -> str | bytes:
    """Text where it can be: what browsers send. Bytes that are no text go as a binary message."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        return message


def connect(server: Server, transport: Transport, context: ssl.SSLContext | None = None) -> Peer:
    if transport in ("websocket", "wss"):
        scheme = "wss" if transport == "wss" else "ws"
        return WebSocketPeer(f"{scheme}://127.0.0.1:{server.port(transport)}/", context)
    return TcpPeer(connect_socket(server.port(transport), context))


def connect_socket(port: int, context: ssl.SSLContext | None = None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    return context.wrap_socket(connection, server_hostname="127.0.0.1") if context else connection


class Frame(NamedTuple):
    """One WebSocket frame from the server."""

    first_byte: int
    payload: bytes

    @property
    def opcode(self) -> int:
        return self.first_byte & 0x0F


class RawWebSocket:
    """WebSocket by hand, for what a well-behaved library refuses to send."""

    CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

    def __init__(self, port: int, target: str = "/", **headers: str) -> None:
        self.socket = connect_socket(port)
        self._file = self.socket.makefile("rb")
        lines = {
            "Host": f"127.0.0.1:{port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        lines.update({name.replace("_", "-"): value for name, value in headers.items()})
        request = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.socket.sendall(f"GET {target} HTTP/1.1\r\n{request}\r\n".encode())
        self.status, self.headers = self._read_head()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def _read_head(self) -> tuple[int, dict[str, str]]:
        status_line = self._file.readline()
        status = int(status_line.split()[1]) if status_line else 0
        headers = {}
        while (line := self._file.readline().strip().decode("latin-1")) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def greeted(self) -> Self:
        """Takes the greeting off the stream."""
        assert self.status == 101
        assert self.receive_frame() == Frame(0x80 | self.TEXT, GREETING)
        return self

    def send_frame(
        self, opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, rsv: int = 0
    ) -> None:
        first = (0x80 if fin else 0) | rsv << 4 | opcode
        mask_bit = 0x80 if masked else 0
        if len(payload) < 126:
            head = struct.pack(">BB", first, mask_bit | len(payload))
        else:
            head = struct.pack(">BBH", first, mask_bit | 126, len(payload))
        if masked:
            mask = os.urandom(4)
            head += mask
            payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        self.socket.sendall(head + payload)

    def receive_frame(self) -> Frame:
        """The next frame; PeerClosed at the end of the stream. A server's frames are never masked."""
        try:
            head = self._file.read(2)
        except ConnectionResetError:
            head = b""
        if len(head) < 2:
            raise PeerClosed(None)
        first, length = head
        assert length < 0x80, "a server must not mask its frames"
        if length >= 126:
            length = int.from_bytes(self._file.read(2 if length == 126 else 8), "big")
        return Frame(first, self._file.read(length))

    def close_code(self) -> int | None:
        """Reads on until the server closes: the code of its close frame, None if there was none."""
        code = None
        try:
            while True:
                received = self.receive_frame()
                if received.opcode == self.CLOSE:
                    code = int.from_bytes(received.payload[:2], "big")
        except PeerClosed:
            return code
