"""What each type of frame carries. `peer` is the number that the caller has given to one of its peers."""

from __future__ import annotations

import msgspec

from raceway.errors import RacewayError
from raceway.link.codec.frames import FrameType
from raceway.link.codec.parts import BodyDecoder
from raceway.model.envelope import Batch
from raceway.model.intents.peers import SubscriptionKind, WatchLog
from raceway.model.intents.queues import Arm

# Changes when an end of before could not read what this one sends.
LINK_VERSION = 2


# The reply queue and the id under which a queue has delivered a request.
AnswerKey = tuple[bytes, bytes]


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
    """A peer of the caller: see `broker.peers.Peer`.

    `subscriptions`, `armed` and `watched` are what it had before the link was lost: its patterns, what it still waits
    for in queues, and its filter of the log.
    """

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
    principal: tuple[str, str]
    request_timeout_ms: int | None
    folds_case: bool
    names_schema: bool
    by_content: bool
    keeps_refused: bool
    waits_in_queues: bool
    subscriptions: list[tuple[SubscriptionKind, str, float]]
    armed: list[Arm]
    watched: WatchLog | None


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


class StartStreamBody(_Body, frozen=True):
    """Deliver the opened stream: see `model.intents.subscriptions.Sink`. `stream` is the number of the intent that has
    opened it. `allowed`: how many bytes of `HANDOVER` it may be sent in all."""

    peer: int
    stream: int
    wire: bytes
    largest: int
    allowed: int


class RoomBody(_Body, frozen=True):
    """The stream may be sent so many bytes of `HANDOVER` in all."""

    peer: int
    stream: int
    allowed: int


class CloseStreamBody(_Body, frozen=True):
    """Deliver no more to the stream. `lost`: the connection of its consumer broke."""

    peer: int
    stream: int
    lost: bool


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
    name: AnswerKey | None


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


class HandoverBody(_Body, frozen=True):
    """Messages for a consumer: see `model.intents.subscriptions.Handover`."""

    topic: str
    subscription: bytes
    batch: Batch


class HandedOverBody(_Body, frozen=True):
    """Messages for a stream: `handover` is a `HandoverBody`, whose length counts."""

    peer: int
    stream: int
    handover: bytes


class StreamEndedBody(_Body, frozen=True):
    """A stream has ended: replaced by a newer one (None), or with an error."""

    peer: int
    stream: int
    error: RacewayError | None


class EntriesBody(_Body, frozen=True):
    """Rows of a queue for one of its consumers. Without `offsets` they are copies. `requests`: those that are open."""

    peer: int
    queue: str
    ticket: bytes
    offsets: list[int] | None
    requests: list[RequestBody | None] | None
    batch: Batch


class QueueAnswerBody(_Body, frozen=True):
    """An answer from a reply queue: a batch of one row."""

    peer: int
    ticket: bytes
    message_id: bytes
    batch: Batch


class DismissedBody(_Body, frozen=True):
    """A consumer has lost its permission on a queue."""

    peer: int
    queue: str
    ticket: bytes
    error: RacewayError


class LogBody(_Body, frozen=True):
    """A record of the log that matches the filter of a peer."""

    peer: int
    level: str
    message: str
    time_us: int
    extra: dict[str, str]


BODIES: dict[FrameType, type[_Body]] = {
    FrameType.HELLO: HelloBody, FrameType.CONNECT: PeerBody, FrameType.LEAVE: LeaveBody,
    FrameType.PERFORM: PerformBody, FrameType.WRITTEN: WrittenBody, FrameType.WELCOME: WelcomeBody,
    FrameType.OUTCOME: OutcomeBody, FrameType.COMMITTED: CommittedBody, FrameType.COPIES: CopiesBody,
    FrameType.FORWARDS: RequestsBody, FrameType.ANSWERS: RequestsBody, FrameType.FAILURE: FailureBody,
    FrameType.AFTER_COMMIT: AfterCommitBody, FrameType.HANG_UP: HangUpBody, FrameType.ANNOUNCE: AnnounceBody,
    FrameType.START_STREAM: StartStreamBody, FrameType.ROOM: RoomBody, FrameType.CLOSE_STREAM: CloseStreamBody,
    FrameType.HANDOVER: HandedOverBody, FrameType.STREAM_ENDED: StreamEndedBody,
    FrameType.ENTRIES: EntriesBody, FrameType.QUEUE_ANSWER: QueueAnswerBody, FrameType.DISMISSED: DismissedBody,
    FrameType.LOG: LogBody,
}  # fmt: skip
DECODERS = {kind: BodyDecoder(body) for kind, body in BODIES.items()}
decode_run = BodyDecoder(RunBody)
decode_handover = BodyDecoder(HandoverBody)
