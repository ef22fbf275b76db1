from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError, UnavailableError
from raceway.link.codec.bodies import BODIES, DECODERS, CommittedBody, PerformBody, RunBody, decode_run
from raceway.link.codec.frames import FrameType
from raceway.link.codec.parts import encode_body, sendable
from raceway.model.envelope import Batch


def test_every_type_of_frame_has_a_body() -> None:
    assert set(BODIES) == set(DECODERS) == set(FrameType)


def test_bodies_arrive_as_they_were() -> None:
    asked = PerformBody(7, 1, ("user", "ann"), "Heartbeat", False, b"\x80")
    assert DECODERS[FrameType.PERFORM](encode_body(asked)) == asked
    told = DECODERS[FrameType.COMMITTED](encode_body(CommittedBody(7, sendable(UnavailableError("no disk")))))
    assert (told.number, str(told.error)) == (7, "no disk")
    run = decode_run(encode_body(RunBody("a", "a", b"a", b"A", [b"1"], Batch(1, payload=[b"x"]))))
    assert (run.topic, run.sent, run.ids, run.batch.payload) == ("a", b"A", [b"1"], [b"x"])


@given(st.sampled_from(FrameType), st.binary(max_size=60))
def test_noise_is_refused_or_is_a_body(kind: FrameType, noise: bytes) -> None:
    with contextlib.suppress(MalformedError):
        assert isinstance(DECODERS[kind](noise), BODIES[kind])


def test_a_body_that_ends_early_is_refused() -> None:
    data = encode_body(PerformBody(7, 1, ("user", "ann"), "Heartbeat", False, b"\x80"))
    for size in range(len(data)):
        with pytest.raises(MalformedError):
            DECODERS[FrameType.PERFORM](data[:size])
