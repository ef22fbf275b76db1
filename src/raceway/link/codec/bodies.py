"""What each type of frame carries. `peer` is the number that the caller has given to one of its peers."""

from __future__ import annotations

import msgspec

from raceway.errors import RacewayError
from raceway.link.codec.frames import FrameType
from raceway.link.codec.parts import BodyDecoder
from raceway.model.envelope import Batch
from raceway.model.intents.peers import SubscriptionKind

# Changes when an end of before could not read what this one sends.
LINK_VERSION = 1


class _Body(msgspec.Struct, array_like=True, frozen=True):
    """Base of bodies: fields in order, without their names."""


class HelloBody(_Body, frozen=True):
    """First frame of a caller. `incarnation` names the caller's process: its older connection ends."""

    version: int
    incarnation: bytes


class WelcomeBody(_Body, frozen=True):
    """First frame of a lane. `window`: how many bytes of intents may be unanswered."""

    version: int
    lane: int
    window: int


class PeerBody(_Body, frozen=True):
    """A peer of the caller: see `broker.peers.Peer`. `subscriptions` are those it had before the link was lost."""

    peer: int
    id: str
    sid: str
    wire: bytes
    producer: bytes
    name: str
    description: str
    host: str
    network: str
    address: str
    connected_us: int
    request_timeout_ms: int | None
    folds_case: bool
    names_schema: bool
    by_content: bool
    keeps_refused: bool
    waits_in_queues: bool
    subscriptions: list[tuple[SubscriptionKind, str, float]]


class LeaveBody(_Body, frozen=True):
    """The peer has disconnected."""

    peer: int


class PerformBody(_Body, frozen=True):
    """An intent. `commits`: its commit is told too. `principal` is that of the peer for this intent."""

    number: int
    peer: int
    principal: tuple[str, str]
    name: str
    commits: bool
    intent: bytes


class WrittenBody(_Body, frozen=True):
    """Bytes of copies that the peer has taken."""

    peer: int
    size: int


class AfterCommitBody(_Body, frozen=True):
    """Tell when everything that was performed so far is committed."""

    number: int


class OutcomeBody(_Body, frozen=True):
    """The outcome of an intent, or the error if no part of it was done."""

    number: int
    error: RacewayError | None
    outcome: bytes


class CommittedBody(_Body, frozen=True):
    """The rows of an intent, or of all before an `AFTER_COMMIT`, are committed, or the commit has failed."""

    number: int
    error: RacewayError | None


class RunBody(_Body, frozen=True):
    """Publishes of one topic: see `broker.topics.Topic`. `sent`: its name, as the sender spelled it."""

    topic: str
    public: str
    spoken: bytes
    sent: bytes
    ids: list[bytes]
    batch: Batch


class CopiesBody(_Body, frozen=True):
    """Copies for these peers: `run` is a `RunBody`, encoded once for all."""

    peers: list[int]
    run: bytes


class RequestBody(_Body, frozen=True):
    """An open request: see `broker.peers.Pending`."""

    topic: str
    sent: bytes
    version: bytes | None
    message_id: bytes
    forwarded_id: bytes
    correlation_id: bytes
    accepted_us: int
    handed_us: int
    requester_id: str
    responder_id: str
    sid: str


class RequestsBody(_Body, frozen=True):
    """Requests for a peer to answer, or answers to requests of a peer: a row of the batch for each."""

    peer: int
    requests: list[RequestBody]
    batch: Batch


class FailureBody(_Body, frozen=True):
    """A request of a peer that will not be answered."""

    peer: int
    request: RequestBody
    error: RacewayError


class HangUpBody(_Body, frozen=True):
    """Close the connection of a peer."""

    peer: int
    reason: str


class AnnounceBody(_Body, frozen=True):
    """A message of the broker itself for a peer."""

    peer: int
    topic: str
    payload: bytes


BODIES: dict[FrameType, type[_Body]] = {
    FrameType.HELLO: HelloBody, FrameType.CONNECT: PeerBody, FrameType.LEAVE: LeaveBody,
    FrameType.PERFORM: PerformBody, FrameType.WRITTEN: WrittenBody, FrameType.WELCOME: WelcomeBody,
    FrameType.OUTCOME: OutcomeBody, FrameType.COMMITTED: CommittedBody, FrameType.COPIES: CopiesBody,
    FrameType.FORWARDS: RequestsBody, FrameType.ANSWERS: RequestsBody, FrameType.FAILURE: FailureBody,
    FrameType.AFTER_COMMIT: AfterCommitBody, FrameType.HANG_UP: HangUpBody, FrameType.ANNOUNCE: AnnounceBody,
}  # fmt: skip
DECODERS = {kind: BodyDecoder(body) for kind, body in BODIES.items()}
decode_run = BodyDecoder(RunBody)
