"""What a client reads."""

from __future__ import annotations

import pytest

from raceway.errors import TooLargeError
from raceway.wires.mb.codec.header import MbHeader
from raceway.wires.mb.codec.inbox import MbInbox
from tests.rigs.vectors.mb import I, P, frame

ID, PARENT = I.encode(), P.encode()
SAMPLES: list[tuple[bytes, MbHeader, bytes]] = [
    (b"publish:system.initialize:1.0.0\n{}", MbHeader(b"publish", b"system.initialize", b"1.0.0"), b"{}"),
    (b"response:a:1.0.0:%b:%b\nx\ny" % (ID, ID), MbHeader(b"response", b"a", b"1.0.0", ID, ID), b"x\ny"),
    (b"RESPONSE:a:1.0.0::%b:7:more\n" % PARENT, MbHeader(b"response", b"a", b"1.0.0", None, PARENT), b""),
]


@pytest.mark.parametrize(("message", "head", "payload"), SAMPLES)
def test_sample_is_read_whole_bytewise_and_with_a_tail(message: bytes, head: MbHeader, payload: bytes) -> None:
    data = frame(message)
    assert MbInbox().receive_data(data) == [(head, payload)]
    bytewise = MbInbox()
    assert [got for at in range(len(data)) for got in bytewise.receive_data(data[at : at + 1])] == [(head, payload)]
    with_tail = MbInbox()
    assert with_tail.receive_data(data + data[:9]) == [(head, payload)]
    assert with_tail.receive_data(data[9:]) == [(head, payload)]
    assert MbInbox.receive_messages([message, message]) == [(head, payload)] * 2


@pytest.mark.parametrize("message", [b"", b"\n", b"publish:a\nx", b"no newline"])
def test_what_has_no_header_is_ignored(message: bytes) -> None:
    good = b"publish:a:1.0.0\n"
    assert [payload for _, payload in MbInbox().receive_data(frame(message) + frame(good))] == [b""]
    assert len(MbInbox.receive_messages([message, good])) == 1


def test_frames_larger_than_a_client_may_send_are_read() -> None:
    payload = b"x" * 1_000_000
    assert MbInbox().receive_data(frame(b"publish:a:1.0.0\n" + payload))[0][1] == payload


def test_what_is_beyond_its_own_limit_is_refused_from_the_length_word() -> None:
    with pytest.raises(TooLargeError) as caught:
        MbInbox(frame_limit=100).receive_data(b"\0\0\0\x65")
    assert (caught.value.size, caught.value.limit) == (101, 100)
