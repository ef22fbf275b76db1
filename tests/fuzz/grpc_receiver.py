"""Fuzz target of the gRPC codec with HTTP/2 under it. The tests run it on damaged conversations; more of it by

    python -m tests.fuzz grpc_receiver -max_len=1500 -max_total_time=600

Whatever the bytes are: read whole, byte by byte and cut in two they give the same requests and the same words in
return; what gRPC makes of them raises nothing, is whole frames, and nothing is kept of calls that are over. (Its
refusals depend on the cut: calls of one read are looked at when all of it has been taken apart.)
"""

from __future__ import annotations

from typing import Any

from raceway.net.codec.grpc import GrpcConnection, GrpcLimits
from raceway.net.codec.http2 import Http2Connection, Http2Limits
from raceway.net.codec.http2_frames import CANCEL
from raceway.net.codec.http2_heads import RequestHead
from tests.rigs.http2 import GREETING, METHODS, frames

# Small, so that short inputs reach them.
LIMITS = GrpcLimits(
    message_bytes=300, buffer_bytes=500, http2=Http2Limits(max_streams=6, header_bytes=600, flood_burst=60)
)


def check(data: bytes) -> None:
    """Raises if anything is amiss. The first byte says where to cut."""
    cut, data = data[0] if data else 0, data[1:]
    bytewise = [data[at : at + 1] for at in range(len(data))]
    for pieces in (bytewise, [data[:cut], data[cut:]]):
        assert _requests(pieces) == _requests([data])
        _check_calls(pieces)
    _check_calls([data])


def _requests(pieces: list[bytes]) -> tuple[Any, ...]:
    written: list[bytes] = []
    connection = Http2Connection(LIMITS.http2, _admit)
    connection.start(written.append)
    events = connection.receive_data(GREETING)
    for piece in pieces:
        events += connection.receive_data(piece)
    told = [(stream, head and head.fields, body, ended) for stream, head, body, ended in events]
    fault = connection.fault and (connection.fault.error, connection.fault.reason)
    frames(b"".join(written))
    return told, b"".join(written), fault, connection.pending, sorted(connection.streams)


def _admit(head: RequestHead) -> None:
    head.whole = head.path == b"/test.Echo/Say"


def _check_calls(pieces: list[bytes]) -> None:
    written: list[bytes] = []
    connection = GrpcConnection(LIMITS, METHODS)
    connection.start(written.append)
    for piece in (GREETING, *pieces):
        for arrivals in connection.receive_data(piece):
            assert all(len(body) <= LIMITS.message_bytes for _, body, _ in arrivals.calls)
    streams = connection.http2.streams
    assert len(streams) <= LIMITS.http2.max_streams
    connection.answer_many([(stream, b"answer") for stream in streams])
    for stream in list(streams):
        connection.out.reset(stream, CANCEL)
    assert not streams
    assert connection.out.waiting == 0
    frames(b"".join(written))
