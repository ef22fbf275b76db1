from __future__ import annotations

from functools import partial

import pytest

from raceway import config
from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.codec.http2_frames import frame
from raceway.net.connection import HIGH_WATER
from raceway.net.grpc import KEEPALIVE, ArrivedCall, GrpcSession, GrpcTcp, Methods, ServerStream
from tests.rigs.doubles import RecordingTransport
from tests.rigs.grpc_desk import Caller, GrpcDesk
from tests.rigs.http2 import data, headers, message, with_fields

SLOW = "/test.Echo/Slow"


class Service:
    """Writes down what it is called with. Say answers at once, Slow when told, Open opens a stream."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[bytes]]] = []
        self.held: list[tuple[GrpcSession, int]] = []
        self.streams: list[ServerStream] = []
        self.closed: list[int] = []
        self.rooms: list[int] = []
        self.heads: list[CallHead] = []
        self.chats: list[Chat] = []
        self.methods = Methods()
        self.methods.unary("/test.Echo/Say", self.say)
        self.methods.unary("/test.Echo/Also", self.say)
        self.methods.unary(SLOW, self.hold)
        self.methods.unary("/test.Echo/Break", self.broken)
        self.methods.unary("/test.Echo/Open", self.open)
        self.methods.unary("/test.Echo/Live", self.open)
        self.methods.bidi("/test.Echo/Chat", self.chat)

    def say(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        self.batches.append((calls[0][2].path, [body for _, body, _ in calls]))
        self.heads += [head for _, _, head in calls]
        session.answer_many([(stream, body) for stream, body, _ in calls])

    def hold(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        self.held += [(session, stream) for stream, _, _ in calls]

    def broken(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        session.answer_many([(calls[0][0], b"the first")])
        raise ValueError("as the test wants it")

    def open(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, _, head in calls:
            told, room = partial(self.closed.append, stream), partial(self.rooms.append, stream)
            is_live = head.path.endswith("Live")
            self.streams.append(session.open_stream(stream, told, room, is_live=is_live))

    def chat(self, session: GrpcSession, stream: int, head: CallHead) -> Chat:
        self.chats.append(Chat())
        if head.get("x-broken"):
            raise ValueError("as the test wants it")
        return self.chats[-1]


class Chat:
    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def take(self, message: bytes) -> None:
        self.told.append(message)
        if message == b"break":
            raise ValueError("as the test wants it")

    def finish(self) -> None:
        self.told.append("finished")

    def close(self) -> None:
        self.told.append("closed")


def desk(**grpc: int) -> tuple[GrpcDesk, Service, Caller]:
    service = Service()
    made = GrpcDesk(service.methods, None, **grpc)
    return made, service, made.caller()


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_calls_of_one_read_come_in_one_batch_for_each_method() -> None:
    _, service, caller = desk()
    calls = [caller.calling("Also" if number % 5 == 3 else "Say", b"%d" % number) for number in range(10)]
    caller.send(*calls)
    assert service.batches == [
        ("/test.Echo/Say", [b"%d" % number for number in range(10) if number % 5 != 3]),
        ("/test.Echo/Also", [b"3", b"8"]),
    ]
    assert {body for status, body in caller.answers().values() if status == 0} == {
        message(b"%d" % number) for number in range(10)
    }


def test_answers_of_one_turn_leave_in_one_write() -> None:
    _, _, caller = desk()
    before = len(caller.transport.writes)
    caller.send(*(caller.calling("Say") for _ in range(100)))
    caller.heard()
    assert len(caller.transport.writes) == before + 1


def test_equal_heads_are_one_object() -> None:
    _, service, caller = desk()
    caller.send(caller.calling("Say", authorization="me"), caller.calling("Say", authorization="me"))
    caller.send(caller.calling("Say", authorization="me"), caller.calling("Say", authorization="you"))
    first, second, third, fourth = service.heads
    assert first is second is third
    assert (first.get("authorization"), fourth.get("authorization")) == ("me", "you")


def test_answers_may_come_later_and_in_any_order() -> None:
    desk_, service, caller = desk()
    caller.send(*(caller.calling("Slow") for _ in range(3)))
    desk_.loop.advance(60)
    assert caller.answers() == {}
    (session, first), (_, second), (_, third) = service.held
    session.answer_many([(third, b"3"), (first, b"1")])
    session.refuse(second, Status.ABORTED, "no")
    assert caller.answers() == {1: (0, message(b"1")), 3: (10, b"no"), 5: (0, message(b"3"))}


def test_answers_to_calls_that_are_gone_are_swallowed() -> None:
    _, service, caller = desk()
    caller.send(caller.calling("Slow"), caller.calling("Slow"), h2.reset(1, h2.CANCEL))
    (session, first), (_, second) = service.held
    session.answer_many([(first, b"1"), (second, b"2")])
    session.answer_many([(second, b"again")])
    session.refuse_many([first, second], Status.INTERNAL, "no")
    assert caller.answers() == {3: (0, message(b"2"))}
    caller.protocol.connection_lost(None)
    session.answer_many([(second, b"much later")])
    session.refuse(second, Status.INTERNAL, "no")


def test_a_handler_that_raises_fails_its_calls_only() -> None:
    _, _, caller = desk()
    caller.send(caller.calling("Break"), caller.calling("Break"), caller.calling("Say", b"x"))
    assert caller.answers() == {
        1: (0, message(b"the first")), 3: (13, b"internal error"), 5: (0, message(b"x")),
    }  # fmt: skip
    assert not caller.transport.is_closing()


def test_a_refusal_may_wait() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Slow"), caller.calling("Slow"))
    for session, stream in service.held:
        session.refuse(stream, Status.NOT_FOUND, "no", after_s=2.0)
    desk_.loop.advance(1.9)
    assert caller.answers() == {}
    caller.send(h2.reset(3, h2.CANCEL))
    desk_.loop.advance(0.2)
    assert caller.answers() == {1: (5, b"no")}


def test_who_may_not_come_in_is_refused_before_any_handler() -> None:
    desk_, service, caller = desk()
    asked: list[CallHead] = []

    def authorize(session: GrpcSession, head: CallHead) -> tuple[Status, str] | None:
        asked.append(head)
        return None if head.get("authorization") else (Status.UNAUTHENTICATED, "who are you?")

    desk_.gate.authorize = authorize
    caller.send(*(caller.calling("Say", b"x", authorization="me") for _ in range(3)), caller.calling("Say", b"y"))
    assert caller.answers() == {**dict.fromkeys((1, 3, 5), (0, message(b"x"))), 7: (16, b"who are you?")}
    assert len(asked) == 2, "once for each head"
    caller.send(headers(9, *with_fields(path="/test.Echo/Chat")))
    assert caller.answers() == {9: (16, b"who are you?")}
    assert service.chats == []


def test_when_nobody_can_tell_who_may_come_in_nobody_may() -> None:
    desk_, service, caller = desk()
    desk_.gate.authorize = lambda session, head: 1 / 0  # type: ignore[assignment,return-value]
    caller.send(caller.calling("Say"))
    assert caller.answers() == {1: (13, b"internal error")}
    assert service.batches == []


# ---- deadlines -------------------------------------------------------------------------------------------------------


def test_a_call_that_is_not_answered_in_time_is_given_up() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Slow", grpc_timeout="100m"), caller.calling("Slow", grpc_timeout="10S"))
    desk_.loop.advance(0.09)
    assert caller.answers() == {}
    desk_.loop.advance(0.05)
    assert caller.answers() == {1: (4, b"deadline exceeded")}
    session, second = service.held[1]
    session.answer_many([(second, b"in time")])
    desk_.loop.advance(20)
    assert caller.answers() == {3: (0, message(b"in time"))}


def test_a_stream_has_a_deadline_too() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Open", grpc_timeout="1S"))
    desk_.loop.advance(1.1)
    assert caller.answers() == {1: (4, b"deadline exceeded")}
    assert service.closed == [1]


def test_deadlines_of_answered_calls_do_not_pile_up() -> None:
    _, service, caller = desk(max_streams=100)
    for _ in range(1000):
        caller.send(caller.calling("Say", grpc_timeout="1H"))
    assert len(caller.session._deadlines) <= 201
    assert len(service.batches) == 1000


def test_nothing_ticks_when_no_call_has_a_deadline() -> None:
    desk_, _, caller = desk()
    caller.send(caller.calling("Slow"))
    caller.heard()
    assert not desk_.loop.waits
    caller.send(caller.calling("Say", grpc_timeout="1m"))
    desk_.loop.advance(1)
    assert not desk_.loop.waits


# ---- server streams --------------------------------------------------------------------------------------------------


def test_a_server_stream_sends_many_messages_and_ends_with_a_status() -> None:
    _, service, caller = desk()
    caller.send(caller.calling("Open"))
    (stream,) = service.streams
    assert stream.open
    stream.send([b"one", b"two"])
    stream.send([b"three"])
    stream.end(Status.UNAVAILABLE, "enough")
    assert caller.answers() == {1: (14, message(b"one") + message(b"two") + message(b"three"))}
    stream.send([b"four"])
    stream.end()
    assert (stream.open, stream.room, service.closed, caller.heard()) == (False, 0, [], [])


def test_the_owner_is_told_when_the_peer_leaves() -> None:
    _, service, caller = desk()
    caller.send(caller.calling("Open"), caller.calling("Open"))
    caller.send(h2.reset(1, h2.CANCEL))
    assert service.closed == [1]
    assert not service.streams[0].open
    caller.protocol.connection_lost(None)
    assert service.closed == [1, 3]


def test_a_stream_opened_and_left_in_one_read_is_closed() -> None:
    _, service, caller = desk()
    caller.send(caller.calling("Open"), h2.reset(1, h2.CANCEL))
    caller.heard()
    assert (service.closed, service.streams[0].open) == ([1], False)


def test_a_stream_opened_long_after_its_caller_left_is_closed() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Slow"), h2.reset(1, h2.CANCEL))
    session, stream = service.held[0]
    service.open(session, [(stream, b"", CallHead("", False, None, b"", []))])
    desk_.loop.settle()
    assert service.closed == [1]


def test_room_ends_with_the_window_of_the_stream_and_comes_again() -> None:
    _, service, caller = desk(stream_bytes=1000)
    caller.send(caller.calling("Open"))
    (stream,) = service.streams
    assert stream.room == 1000
    stream.send([bytes(65_000)])
    assert stream.room == 1000, "all of it has left"
    stream.send([bytes(1000)])
    assert stream.room == 1000 - (65_005 + 1005 - 65_535)
    stream.send([bytes(2000)])
    assert stream.room < 0, "one message may exceed it"
    caller.heard()
    assert service.rooms == []
    caller.send(h2.window_update(1, 10_000))
    assert service.rooms == [], "the connection's window is still closed"
    caller.send(h2.window_update(0, 1_000))
    assert service.rooms == []
    caller.send(h2.window_update(0, 1_000))
    assert (service.rooms, stream.room > 0) == ([1], True)
    caller.send(h2.window_update(0, 1_000))
    assert service.rooms == [1], "told once"


def test_room_ends_with_the_socket_and_comes_again() -> None:
    _, service, caller = desk()
    caller.send(caller.calling("Open"))
    (stream,) = service.streams
    caller.protocol.pause_writing()
    assert stream.room == 0
    caller.heard()
    assert service.rooms == []
    caller.protocol.resume_writing()
    assert (service.rooms, stream.room > 0) == ([1], True)


def test_what_is_written_in_one_turn_is_bounded() -> None:
    _, service, caller = desk(stream_bytes=1 << 30)
    caller.send(h2.settings([(h2.INITIAL_WINDOW_SIZE, 2**31 - 1)]), h2.window_update(0, 2**30), caller.calling("Open"))
    (stream,) = service.streams
    sent = 0
    while stream.room > 0:
        stream.send([bytes(10_000)])
        sent += 10_000
    assert sent < HIGH_WATER + 20_000
    assert service.rooms == []
    caller.heard()
    assert (service.rooms, stream.room > 0) == ([1], True)


def test_who_finds_no_room_because_of_others_is_told_too() -> None:
    _, service, caller = desk()
    caller.send(h2.settings([(h2.INITIAL_WINDOW_SIZE, 2**31 - 1)]), h2.window_update(0, 2**30))
    caller.send(caller.calling("Open"), caller.calling("Open"), caller.calling("Open"))
    caller.heard()
    greedy, patient, uninterested = service.streams
    while greedy.room > 0:
        greedy.send([bytes(100_000)])
    assert patient.room <= 0
    caller.heard()
    assert sorted(service.rooms) == [greedy.id, patient.id]
    assert uninterested.room > 0


def test_streams_that_are_gone_wait_for_no_room() -> None:
    _, service, caller = desk(stream_bytes=1)
    caller.send(h2.settings([(h2.INITIAL_WINDOW_SIZE, 0)]), *(caller.calling("Open") for _ in range(3)))
    for stream in service.streams:
        stream.send([bytes(100)])
    service.streams[0].end()
    caller.send(h2.reset(3, h2.CANCEL))
    service.streams[2]._session.refuse(5, Status.ABORTED, "no")
    assert (caller.session._full, len(caller.session._held)) == (set(), 0)


def test_streams_that_always_have_something_to_say_take_turns() -> None:
    _, service, caller = desk(stream_bytes=1 << 30)
    caller.send(h2.settings([(h2.INITIAL_WINDOW_SIZE, 2**31 - 1)]), h2.window_update(0, 2**30))
    caller.send(*(caller.calling("Open") for _ in range(20)))
    caller.heard()
    sent = dict.fromkeys(range(20), 0)

    def talk(number: int) -> None:
        """Uses all the room there is."""
        while service.streams[number].room > 0:
            service.streams[number].send([bytes(100_000)])
            sent[number] += 1

    for number, stream in enumerate(service.streams):
        stream.on_room = lambda number=number: talk(number)  # type: ignore[misc]
        talk(number)
    for _ in range(100):
        caller._desk.loop.turn()
    assert max(sent.values()) - min(sent.values()) <= 20
    assert min(sent.values()) > 20


def test_all_streams_of_a_connection_share_its_output() -> None:
    service = Service()
    desk_ = GrpcDesk(service.methods, config.Listen(output_bytes=10_000))
    caller = desk_.caller()
    caller.send(h2.settings([(h2.INITIAL_WINDOW_SIZE, 0)]), caller.calling("Open"), caller.calling("Open"))
    first, second = service.streams
    first.send([bytes(9000)])
    assert 0 < second.room < 1000
    first.send([bytes(9000)])
    assert second.room < 0


def test_a_peer_that_lets_answers_wait_for_ever_is_cut_off() -> None:
    service = Service()
    desk_ = GrpcDesk(service.methods, config.Listen(output_bytes=10_000))
    caller = desk_.caller()
    caller.send(h2.settings([(h2.INITIAL_WINDOW_SIZE, 0)]))
    for _ in range(25):
        if not caller.transport.aborted:
            caller.send(caller.calling("Say", bytes(1000)))
            caller.heard()
    assert caller.transport.aborted
    assert desk_.counted("bus.slow_closed") == 1


def test_callbacks_that_raise_end_nothing_else() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Slow"), caller.calling("Open"))
    session, stream = service.held[0]
    session.open_stream(stream, lambda: 1 / 0, lambda: 1 / 0)  # type: ignore[arg-type]
    caller.protocol.pause_writing()
    assert [each.room for each in session.streams.values()] == [0, 0]
    caller.protocol.resume_writing()
    assert service.rooms == [3]
    caller.protocol.connection_lost(None)
    assert service.closed == [3]
    assert len(desk_.gate.sessions) == 0


# ---- both directions -------------------------------------------------------------------------------------------------


def test_requests_that_are_a_stream_are_handed_over_one_by_one() -> None:
    _, service, caller = desk()
    caller.send(headers(1, *with_fields(path="/test.Echo/Chat")), data(1, message(b"a") + message(b"b"), end=False))
    (chat,) = service.chats
    assert chat.told == [b"a", b"b"]
    caller.send(data(1, message(b"c")))
    assert chat.told == [b"a", b"b", b"c", "finished"]


@pytest.mark.parametrize("how", ["reset", "lost", "deadline"])
def test_a_chat_is_told_that_it_is_over(how: str) -> None:
    desk_, service, caller = desk()
    caller.send(headers(1, *with_fields(path="/test.Echo/Chat", grpc_timeout="1S")))
    if how == "reset":
        caller.send(h2.reset(1, h2.CANCEL))
    elif how == "lost":
        caller.protocol.connection_lost(None)
    else:
        desk_.loop.advance(2)
    assert service.chats[0].told == ["closed"]


def test_a_chat_that_raises_ends_with_a_status() -> None:
    _, _, caller = desk()
    caller.send(headers(1, *with_fields(path="/test.Echo/Chat")), data(1, message(b"break"), end=False))
    assert caller.answers() == {1: (13, b"internal error")}
    caller.send(headers(3, *with_fields(path="/test.Echo/Chat"), ("x-broken", "1")))
    assert caller.answers() == {3: (13, b"internal error")}


# ---- life and death --------------------------------------------------------------------------------------------------


def test_a_silent_peer_is_pinged_and_lives_if_it_answers() -> None:
    desk_, _, caller = desk()
    for _ in range(5):
        desk_.sweep_for(11)
        assert [(each.kind, each.body) for each in caller.heard()] == [(h2.PING, KEEPALIVE)]
        caller.send(frame(h2.PING, h2.ACK, 0, KEEPALIVE))
    assert not caller.transport.is_closing()


def test_a_dead_peer_is_cut_off() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Open"))
    desk_.sweep_for(19)
    assert not caller.transport.is_closing()
    desk_.sweep_for(2)
    assert caller.transport.aborted
    assert (service.closed, desk_.counted("bus.silent_closed")) == ([1], 1)


def test_a_busy_peer_is_not_pinged() -> None:
    desk_, _, caller = desk()
    for _ in range(5):
        caller.send(h2.window_update(0, 1))
        desk_.sweep_for(9)
    assert caller.heard() == []


def test_a_peer_that_takes_bytes_lives_though_it_is_not_heard() -> None:
    desk_, _, caller = desk()
    caller.protocol.pause_writing()
    for waiting in range(40):
        caller.transport.waiting = 1_000_000 - waiting
        desk_.sweep_for(2)
    assert not caller.transport.is_closing()
    desk_.sweep_for(58)
    assert not caller.transport.is_closing()
    desk_.sweep_for(4)
    assert caller.transport.aborted, "and dies when it takes no more"
    assert desk_.counted("bus.slow_closed") == 1


# ---- live streams ----------------------------------------------------------------------------------------------------

SHUT = bytes(70_000)  # more than the first window of a stream


def test_a_live_stream_of_which_nothing_is_taken_is_reset_and_its_connection_lives() -> None:
    desk_, service, caller = desk(keepalive_ms=10**9)
    caller.send(caller.calling("Live"), caller.calling("Live"), h2.window_update(0, 1_000_000))
    shut, open_ = service.streams
    shut.send([SHUT])
    for _ in range(29):  # it reads from the connection all the time
        desk_.sweep_for(2)
        open_.send([b"x"])
        caller.send(frame(h2.PING, 0, 0, bytes(8)))
    assert service.closed == []
    caller.heard()
    desk_.sweep_for(4)
    assert [(each.stream, each.body) for each in caller.heard() if each.kind == h2.RST_STREAM] == [
        (shut.id, h2.ENHANCE_YOUR_CALM.to_bytes(4, "big"))
    ]
    assert (service.closed, shut.open, open_.open) == ([shut.id], False, True)
    assert desk_.counted("bus.slow_closed") == 1
    caller.send(caller.calling("Say", b"still here"))
    assert list(caller.answers().values()) == [(0, message(b"still here"))]
    assert caller.session._codec.out.waiting == 0


def test_a_live_stream_that_takes_single_bytes_lives() -> None:
    desk_, service, caller = desk(keepalive_ms=10**9)
    caller.send(caller.calling("Live"), h2.window_update(0, 1_000_000))
    service.streams[0].send([SHUT])
    for _ in range(10):
        desk_.sweep_for(50)
        caller.send(h2.window_update(1, 1))
    assert service.streams[0].open
    desk_.sweep_for(62)
    assert service.closed == [1]


def test_other_streams_may_hold_a_stream_up_by_the_window_of_the_connection() -> None:
    desk_, service, caller = desk(keepalive_ms=10**9)
    caller.send(caller.calling("Live"), caller.calling("Open"))
    live, slow = service.streams
    slow.send([SHUT])  # takes the whole window of the connection
    live.send([b"x"])
    for _ in range(10):  # the other one is slow, and reads
        desk_.sweep_for(50)
        caller.send(h2.window_update(0, 1), h2.window_update(slow.id, 1))
    assert live.open


def test_a_stream_that_is_not_live_may_wait_for_its_window() -> None:
    desk_, service, caller = desk(keepalive_ms=10**9)
    caller.send(caller.calling("Open"), h2.window_update(0, 1_000_000))
    service.streams[0].send([SHUT])
    for _ in range(50):
        desk_.sweep_for(5)
        caller.send(frame(h2.PING, 0, 0, bytes(8)))
    assert service.streams[0].open
    assert desk_.counted("bus.slow_closed") == 0


@pytest.mark.parametrize("whose", ["connection", "gate"])
def test_time_in_which_a_peer_is_not_read_from_does_not_count(whose: str) -> None:
    desk_, service, caller = desk(keepalive_ms=10**9)
    caller.send(caller.calling("Live"), h2.window_update(0, 1_000_000))
    service.streams[0].send([SHUT])
    desk_.sweep_for(50)
    pause = caller.session.pause if whose == "connection" else lambda: desk_.gate.pause(True)
    resume = caller.session.resume if whose == "connection" else lambda: desk_.gate.pause(False)
    pause()
    desk_.sweep_for(100)
    resume()
    desk_.sweep_for(20)  # its window update was in the socket, say
    assert service.streams[0].open
    caller.send(frame(h2.PING, 0, 0, bytes(8)))
    desk_.sweep_for(45)
    assert service.closed == [1]


@pytest.mark.parametrize("said", [b"", b"PRI * HT", b"\0\0\x05"])
def test_a_peer_that_does_not_finish_its_sentence_is_cut_off(said: bytes) -> None:
    desk_, _, caller = desk()
    if said[:3] != b"\0\0\x05":
        caller.protocol.connection_lost(None)
        caller.protocol, caller.transport = GrpcTcp(desk_.gate), RecordingTransport()
        caller.protocol.connection_made(caller.transport)
    if said:
        caller.send(said)
    desk_.sweep_for(9)
    assert not caller.transport.is_closing()
    desk_.sweep_for(2)
    assert caller.transport.aborted
    assert desk_.counted("bus.stalled_closed") == 1


def test_a_head_that_is_dripped_is_a_sentence_too() -> None:
    desk_, _, caller = desk()
    caller.send(headers(1, flags=0))
    for _ in range(12):
        desk_.sweep_for(1)
        if not caller.transport.is_closing():
            caller.send(frame(h2.CONTINUATION, 0, 1, b"\0\1a\1b"))
    assert caller.transport.aborted


def test_a_large_message_may_take_its_time_as_long_as_frames_come() -> None:
    desk_, service, caller = desk()
    body = message(bytes(60_000))
    caller.send(headers(1, *with_fields(path="/test.Echo/Say")))
    whole = b"".join(data(1, body[at : at + 1000], end=at + 1000 >= len(body)) for at in range(0, len(body), 1000))
    for at in range(0, len(whole), 1009):
        caller.send(whole[at : at + 1009])
        desk_.sweep_for(1)
    assert [len(bodies[0]) for _, bodies in service.batches] == [60_000]


def test_a_broken_peer_is_told_why_and_closed() -> None:
    desk_, service, caller = desk()
    caller.send(caller.calling("Open"))
    caller.heard()
    caller.send(caller.calling("Say", b"before"), frame(h2.PING, 0, 1, bytes(8)))
    assert service.batches == [("/test.Echo/Say", [b"before"])]
    last = caller.heard()[-1]
    assert (last.kind, last.body[4:]) == (h2.GOAWAY, h2.U32.pack(h2.PROTOCOL_ERROR) + b"PING on a non-zero stream")
    assert (caller.transport.closed, service.closed, len(desk_.broker.peers)) == (True, [1], 0)
    assert desk_.counted("connection.failed") == 1


def test_a_flood_is_forgiven_in_time() -> None:
    desk_, _, caller = desk(flood_burst=100, flood_rate=100)
    for _ in range(10):
        caller.send(frame(h2.PING, 0, 0, bytes(8)) * 90)
        desk_.sweep_for(1)
    assert not caller.transport.is_closing()
    caller.send(frame(h2.PING, 0, 0, bytes(8)) * 200)
    assert caller.transport.closed


def test_more_connections_than_allowed_are_closed_at_once() -> None:
    desk_, _, _ = desk(max_connections=1)
    transport = RecordingTransport()
    GrpcTcp(desk_.gate).connection_made(transport)
    assert (transport.closed, desk_.counted("connection.rejected")) == (True, 1)


def test_before_the_end_open_calls_are_answered_and_new_ones_refused() -> None:
    desk_, service, caller = desk()
    drained = []
    service.methods.drains.append(lambda: drained.append(True))
    caller.send(caller.calling("Slow"), caller.calling("Open"))
    caller.heard()
    desk_.gate.drain()
    assert drained == [True]
    (goodbye,) = caller.heard()
    assert (goodbye.kind, goodbye.body[:8]) == (h2.GOAWAY, b"\0\0\0\x03" + bytes(4))
    caller.send(caller.calling("Say"))
    assert [(each.kind, each.body) for each in caller.heard()] == [(h2.RST_STREAM, h2.U32.pack(h2.REFUSED_STREAM))]
    session, stream = service.held[0]
    session.answer_many([(stream, b"still")])
    assert caller.answers() == {1: (0, message(b"still"))}
    session.close("the bus stops")
    assert caller.answers() == {3: (14, b"the bus stops")}
    assert (caller.transport.closed, service.closed) == (True, [3])


def test_while_the_journal_is_behind_nobody_is_read_from_and_nobody_is_blamed() -> None:
    desk_, _, caller = desk()
    desk_.gate.pause(True)
    assert not caller.transport.reading
    desk_.sweep_for(60)
    desk_.gate.pause(False)
    desk_.sweep_for(5)
    assert caller.transport.reading
    assert not caller.transport.is_closing()
