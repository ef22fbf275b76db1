from __future__ import annotations

from typing import Any

import pytest

from raceway.link.codec.bodies import CopiesBody, LeaveBody
from raceway.link.codec.frames import FrameReader, FrameType, encode_frame
from raceway.link.codec.parts import BodyDecoder, encode_body
from raceway.link.connection import LinkConnection
from raceway.net.turn import Turn
from tests.rigs.doubles import ManualLoop, RecordingTransport

LEAVE = encode_frame(FrameType.LEAVE, encode_body(LeaveBody(1)))


class End:
    """A connection over a transport that writes down, with what its owner was told."""

    def __init__(self, **how: Any) -> None:
        self.loop = ManualLoop()
        self.transport = RecordingTransport()
        self.connection = LinkConnection(Turn(self.loop.call_soon), 100, **how)
        self.left: list[LeaveBody] = []
        self.lost: list[str] = []
        self.connection.handlers = {FrameType.LEAVE: self.left.append}
        self.connection.lost = self.lost.append
        self.connection.connection_made(self.transport)


def test_frames_of_a_turn_are_written_together() -> None:
    end = End()
    end.connection.send(FrameType.LEAVE, LeaveBody(1))
    end.connection.send(FrameType.LEAVE, LeaveBody(2))
    assert end.transport.writes == []
    end.loop.settle()
    assert len(end.transport.writes) == 1
    assert len(FrameReader(100).receive_data(end.transport.written)) == 2


def test_copies_of_one_run_are_one_frame_and_keep_their_place() -> None:
    end, run, other = End(), b"run", b"other"
    for peer, each in ((1, run), (2, run), (1, other)):
        end.connection.copy(peer, each)
    end.connection.send(FrameType.LEAVE, LeaveBody(1))
    end.connection.copy(2, other)
    end.loop.settle()
    frames = FrameReader(100).receive_data(end.transport.written)
    decode = BodyDecoder(CopiesBody)
    copies = [decode(frame.body) for frame in frames if frame.type is FrameType.COPIES]
    assert copies == [CopiesBody([1, 2], run), CopiesBody([1], other), CopiesBody([2], other)]
    assert [frame.type for frame in frames].index(FrameType.LEAVE) == 2


def test_a_closed_connection_sends_nothing() -> None:
    end = End()
    end.connection.connection_lost(None)
    end.connection.send(FrameType.LEAVE, LeaveBody(1))
    end.connection.copy(1, b"run")
    end.loop.settle()
    assert end.transport.writes == []
    assert end.lost == ["closed by the other end"]


def test_what_was_sent_before_a_close_is_written() -> None:
    end = End()
    end.connection.send(FrameType.LEAVE, LeaveBody(1))
    end.connection.close("done")
    assert end.transport.written == LEAVE
    assert end.transport.closed
    end.connection.connection_lost(None)
    assert end.lost == ["done"]


def test_an_end_that_does_not_read_is_cut() -> None:
    end = End(most_unsent=1000)
    end.transport.waiting = 1000
    end.connection.send(FrameType.LEAVE, LeaveBody(1))
    end.loop.settle()
    assert not end.transport.aborted
    end.transport.waiting = 1001
    end.connection.send(FrameType.LEAVE, LeaveBody(1))
    end.loop.settle()
    assert end.transport.aborted
    assert end.lost == ["the other end does not read"]


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_patient_end_reads_nothing_while_it_cannot_write(is_patient: bool) -> None:
    end = End(is_patient=is_patient)
    end.connection.pause_writing()
    assert end.transport.reading is not is_patient
    end.connection.hold(True)
    end.connection.resume_writing()
    assert not end.transport.reading
    end.connection.hold(False)
    assert end.transport.reading


def test_nothing_is_handled_behind_a_frame_that_ends_the_connection() -> None:
    end = End()
    end.connection.data_received(LEAVE + encode_frame(FrameType.WELCOME, b"") + LEAVE)
    assert end.left == [LeaveBody(1)]
    assert end.transport.aborted
    assert end.lost == ["frame WELCOME from the wrong end"]


def test_a_handler_that_fails_ends_the_connection() -> None:
    end = End()
    end.connection.handlers = {FrameType.LEAVE: lambda body: 1 / 0}  # type: ignore[dict-item]
    end.connection.data_received(LEAVE)
    assert end.lost == ["a frame could not be handled"]
