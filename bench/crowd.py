"""Loads with many connections: one process for all that send, one for all that receive, the same for every system.

A sender repeats a block of frames made beforehand. Its messages have random lengths from a fixed seed (lognormal, 40 to
4,000 bytes, the form of JSON), and carry the number of their lane and of themselves; every `PROBE_EVERY`th has a mark
by which its arrival is timed. Nothing is parsed while the clock runs, except in the first, short turn: then every
receiver and every asker keeps its bytes, and they are compared with what was sent to it, message by message and in
order.
"""

from __future__ import annotations

import random
import select
import socket
import time
from array import array
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from bench.crowd_wires import MARK, TAIL, CountReplies, CrowdPublishing
from bench.load import READ_BYTES, Work, answer_all, connect, wait_for_go
from bench.wires import PAYLOAD_BYTES, TIMEOUT_S, Wire

SEED = 15
SHORTEST, LONGEST, MEDIAN, SPREAD = 40, 4000, 220, 0.9
# Lengths of requests: as many as a responder can replace by simple means.
REQUEST_LENGTHS = 16
# For the report.
LENGTHS = f"lognormal with a median of {MEDIAN} bytes, {SHORTEST} to {LONGEST:,}; seed {SEED}"
# Distinct messages of all lanes together.
DISTINCT = 40_000
PROBE, PROBE_EVERY = b'["^', 40
PROBE_BYTES = 10


def length(chosen: random.Random) -> int:
    return max(SHORTEST, min(LONGEST, round(chosen.lognormvariate(0, SPREAD) * MEDIAN)))


def request_lengths() -> list[int]:
    """Lengths at equal steps of the distribution, so that their mean is that of the messages."""
    chosen = random.Random(SEED)
    lengths = sorted(length(chosen) for _ in range(4096))
    return sorted({lengths[at] for at in range(128, 4096, 4096 // REQUEST_LENGTHS)})


@lru_cache(maxsize=8)
def payloads(lanes: int, sizes: str) -> list[list[bytes]]:
    """The payloads of each lane; `sizes` is `equal`, `mixed` or `request`."""
    chosen, few = random.Random(SEED), request_lengths()
    made: list[list[bytes]] = []
    for lane in range(lanes):
        texts = []
        for number in range(DISTINCT // lanes):
            size = PAYLOAD_BYTES if sizes == "equal" else chosen.choice(few) if sizes == "request" else length(chosen)
            mark = PROBE if number % PROBE_EVERY == 0 else b'["-'
            head = b'%b%02d%05d","' % (mark, lane, number)
            text = b"%x" % (chosen.getrandbits(4 * size) | 1 << (4 * size))
            texts.append(head + text[: size - len(head) - 3] + MARK)
        made.append(texts)
    return made


class Block:
    """Frames of a lane, one after the other, and where each ends. Sent again and again."""

    def __init__(self, frames: list[bytes]) -> None:
        self.data = b"".join(frames)
        self.ends = array("Q", [0] * len(frames))
        at = 0
        for number, frame in enumerate(frames):
            at += len(frame)
            self.ends[number] = at

    def end_of(self, messages: int) -> int:
        """Bytes of the first so many messages, over repeats of the block."""
        rounds, rest = divmod(messages, len(self.ends))
        return rounds * len(self.data) + (self.ends[rest - 1] if rest else 0)

    def numbered(self, wire: Any, messages: int, lane: int) -> Block:
        """Return a block of so many messages, each with a number of its own, on wires whose messages have such."""
        if not hasattr(wire, "numbered"):
            return self
        rounds, rest = divmod(messages, len(self.ends))
        ends = [turn * len(self.data) + end for turn in range(rounds + 1) for end in self.ends][:messages]
        data = bytearray(self.data * rounds + self.data[: self.ends[rest - 1] if rest else 0])
        wire.numbered(data, chain((0,), ends[:-1]), lane)
        return Block.made(bytes(data), ends)

    @classmethod
    def made(cls, data: bytes, ends: list[int]) -> Block:
        block = cls([])
        block.data, block.ends = data, array("Q", ends)
        return block

    def whole(self, size: int) -> int:
        """How many messages are complete after so many bytes."""
        rounds, rest = divmod(size, len(self.data))
        return rounds * len(self.ends) + bisect_right(self.ends, rest)


class CrowdWork(Work):
    """Also the times at which each lane had sent so many messages, or at which receivers saw the probes.

    `kept` has the bytes that each connection received.
    """

    sent: list[list[tuple[int, float]]] = msgspec.field(default_factory=list)
    seen: list[tuple[int, int, float]] = msgspec.field(default_factory=list)
    kept: list[bytes] = msgspec.field(default_factory=list)


class Lane:
    """A sending connection. `window`: messages without a reply; None if there are no replies. `keeps`: them, too."""

    def __init__(
        self, peer: socket.socket, block: Block, total: int, window: int | None, count: CountReplies | None, keeps: bool
    ) -> None:
        self.peer, self.block, self.total, self.window, self._count = peer, block, total, window, count
        self._view = memoryview(block.data)
        self.sent_bytes = self.sent = self.answered = 0
        self.log: list[tuple[int, float]] = []
        self._waiting: deque[tuple[int, float]] = deque()
        self.latencies: list[float] = []  # of the last message of each write
        self.kept: list[bytes] = []
        self._keeps = keeps
        self._into = bytearray(TAIL + READ_BYTES)
        self._read = memoryview(self._into)[TAIL:]

    @property
    def is_done(self) -> bool:
        return (self.sent if self._count is None else self.answered) >= self.total

    def send(self, now: float, paced: int) -> bool:
        """Send what window and pace allow. Return whether the socket took all of it."""
        allowed = self.total if self.window is None else min(self.total, self.answered + self.window)
        allowed = self.block.end_of(min(allowed, paced))
        size = len(self._view)
        while self.sent_bytes < allowed:
            at = self.sent_bytes % size
            try:
                taken = self.peer.send(self._view[at : min(size, at + allowed - self.sent_bytes)])
            except BlockingIOError:
                return False
            self.sent_bytes += taken
        whole = self.block.whole(self.sent_bytes)
        if whole > self.sent:
            self._waiting.append((whole, now))
            self.log.append((whole, now))
            self.sent = whole
        return True

    def receive(self) -> None:
        try:
            size = self.peer.recv_into(self._read)
        except BlockingIOError:
            return
        if not size:
            raise ConnectionError(f"closed by the server after {self.answered} replies")
        if self._count is None:
            return
        if not self.answered and b'"error"' in self._into[:size]:
            raise ConnectionError(self._into[: min(size, 300)].decode(errors="replace"))
        if self._keeps:
            self.kept.append(bytes(self._read[:size]))
        self.answered += self._count(self._into, TAIL + size)
        self._into[:TAIL] = self._into[size : size + TAIL]
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= self.answered:
            self.latencies.append(now - self._waiting.popleft()[1])
        if self.answered > self.total:
            raise ConnectionError(f"{self.answered - self.total} replies too many")


def _connections(first: socket.socket, wire: Wire, port: int, number: int) -> list[socket.socket]:
    return [first] + [connect(wire, port) for _ in range(number - 1)]


def send_all(
    pipe: Connection, first: socket.socket, wire: Any, port: int, blocks: list[Block], total: int, window: int | None,
    kind: str, pace: float, keeps: bool,
) -> CrowdWork:  # fmt: skip
    """Send `total` messages on each lane. `kind`: publish, acknowledge or ask. `pace`: messages a second in all, or 0.

    On a wire with `in_flight` each publish has a reply, too. Without replies the connections stay open until told, so
    that nothing is lost. `keeps`: return the bytes of replies.
    """
    lanes = []
    if kind == "publish":
        window = getattr(wire, "in_flight", None)
    for number, peer in enumerate(_connections(first, wire, port, len(blocks))):
        count: CountReplies | None = None
        if kind == "ask":
            count = wire.await_answers(peer, number)
        elif window is not None:
            count = wire.await_acknowledgements(peer, number)
        peer.setblocking(False)
        lanes.append(Lane(peer, blocks[number].numbered(wire, total, number), total, window, count, keeps))
    cpu = wait_for_go(pipe)
    began, ended = _drive(lanes, pace / len(lanes))
    work = CrowdWork(began, ended, time.process_time() - cpu, [], [lane.log for lane in lanes])
    work.latencies_us = _spread(lane.latencies for lane in lanes)
    work.kept = [b"".join(lane.kept) for lane in lanes]
    if kind == "publish":
        pipe.recv()
    return work


def _drive(lanes: list[Lane], pace: float) -> tuple[float, float]:
    """Send until every lane is done; return when that began and ended."""
    readable, both = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT
    by_number, open_lanes = {lane.peer.fileno(): lane for lane in lanes}, set(lanes)
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, both)
        began = now = time.monotonic()
        while open_lanes:
            events = poll.poll(0.0005 if pace else TIMEOUT_S)
            if not events and not pace:
                raise TimeoutError(f"{sum(lane.sent - lane.answered for lane in open_lanes)} replies missing")
            if pace and time.monotonic() - now > TIMEOUT_S:
                raise TimeoutError("replies missing")
            for number, event in events:
                lane = by_number[number]
                if event & ~select.EPOLLOUT:
                    lane.receive()
                if pace:
                    poll.modify(number, readable)
                    continue
                poll.modify(number, readable if lane.send(time.monotonic(), lane.total) else both)
                if lane.is_done:
                    open_lanes.discard(lane)
            if pace:
                now = time.monotonic() if events else now
                at = time.monotonic()
                for lane in list(open_lanes):
                    if not lane.send(at, int((at - began) * pace)):
                        poll.modify(lane.peer.fileno(), both)
                    if lane.is_done:
                        open_lanes.discard(lane)
                        now = at
    return began, time.monotonic()


def _spread(lanes: Iterable[list[float]]) -> list[float]:
    """Latencies in µs at 1,000 steps of their distribution."""
    found = sorted(seconds for latencies in lanes for seconds in latencies)
    if len(found) <= 1000:
        return [seconds * 1e6 for seconds in found]
    return [found[at * (len(found) - 1) // 999] * 1e6 for at in range(1000)]


def receive_all(
    pipe: Connection, first: socket.socket, wire: CrowdPublishing, port: int, topics: list[list[bytes]],
    expected: list[int], keeps: bool, times: bool,
) -> CrowdWork:  # fmt: skip
    """Subscribe each connection to its topics, and count until all have what they should. `keeps`: return the bytes."""
    acknowledging: Any = wire if hasattr(wire, "acknowledge_received") else None
    peers = _connections(first, wire, port, len(topics))
    for peer, wanted in zip(peers, topics, strict=True):
        wire.subscribe_all(peer, wanted)
    cpu = wait_for_go(pipe)
    into = bytearray(TAIL + READ_BYTES)
    view = memoryview(into)[TAIL:]
    tails = {peer.fileno(): bytearray(TAIL) for peer in peers}
    first_count = TAIL + 1 - len(MARK)
    left = {peer.fileno(): count for peer, count in zip(peers, expected, strict=True)}
    by_number = {peer.fileno(): peer for peer in peers}
    kept: dict[int, list[bytes]] = defaultdict(list)
    seen: list[tuple[int, int, float]] = []
    began = time.monotonic()
    open_peers = sum(count > 0 for count in left.values())
    with select.epoll() as poll:
        for number, peer in by_number.items():
            peer.setblocking(False)
            poll.register(number, select.EPOLLIN)
        while open_peers:
            events = poll.poll(TIMEOUT_S)
            if not events:
                raise TimeoutError(f"{sum(left.values()):,} of {sum(expected):,} messages missing")
            for number, _ in events:
                into[:TAIL] = tails[number]
                size = by_number[number].recv_into(view)
                if not size:
                    raise ConnectionError(f"closed with {left[number]:,} messages missing")
                if acknowledging is None:
                    found = into.count(MARK, first_count, TAIL + size)
                else:
                    found = acknowledging.acknowledge_received(by_number[number], bytes(view[:size]))
                before = left[number]
                left[number] = after = before - found
                tails[number] = into[size : size + TAIL]
                if after <= 0:
                    if after < 0:
                        raise ConnectionError(f"{-after} messages too many")
                    open_peers -= before > 0
                if keeps:
                    kept[number].append(bytes(view[:size]))
                if times:
                    _note_probes(into, TAIL + size, seen)
    work = CrowdWork(began, time.monotonic(), time.process_time() - cpu)
    work.seen = seen
    work.kept = [b"".join(kept[peer.fileno()]) for peer in peers] if keeps else []
    if acknowledging is not None:
        for peer in peers:
            peer.close()
        acknowledging.leave()
    return work


def _note_probes(data: bytearray, size: int, seen: list[tuple[int, int, float]]) -> None:
    now, at = time.monotonic(), data.find(PROBE, TAIL, size)
    while 0 <= at <= size - PROBE_BYTES:  # one cut by the end of the read is left out
        seen.append((int(data[at + 3 : at + 5]), int(data[at + 5 : at + PROBE_BYTES]), now))
        at = data.find(PROBE, at + 1, size)


def probe_latencies_us(sent: CrowdWork, received: CrowdWork, distinct: int) -> list[float]:
    """From sending to arrival of each probe; a number that was sent several times is the last one before."""
    numbers = [[upto for upto, _ in log] for log in sent.sent]
    found = []
    for lane, number, came in received.seen:
        best = None
        while number < numbers[lane][-1]:
            since = sent.sent[lane][bisect_right(numbers[lane], number)][1]
            if since > came:
                break
            best, number = since, number + distinct
        if best is not None:
            found.append((came - best) * 1e6)
    return found


def respond_all(pipe: Connection, peer: socket.socket, wire: Any) -> Work:
    """Answer requests of all lanes until stopped."""
    answers = wire.serve_lengths(peer, request_lengths())
    return answer_all(pipe, peer, answers, wire.request(0, MARK, 0), MARK)
