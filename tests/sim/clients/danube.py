"""Clients of the Danube wire, over gRPC: producers and consumers. The h2 library reads HTTP/2 strictly."""

from __future__ import annotations

import random
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from raceway.wires.danube.codec.pb import danube_api_pb2 as pb
from tests.sim.clients.client import TOPICS, Client
from tests.sim.messages import Broken, Message
from tests.sim.receivers import Durable, Stream

SUBSCRIPTIONS = (("orders", 1), ("audit", 0), ("keyed", 3), ("spare", 2))
# Routing keys of messages, in turn; some have none.
_KEYS = ("k1", "k2", "k1", "", "k3")
# Statuses of gRPC that mean: the disk does not or did not take it, or the bus is going away.
_UNAVAILABLE = ("8", "13", "14")


class DanubeClient(Client):
    wire, port = "danube", 2
    # How long the bus may still send to a connection that has ended here.
    _heard_after_s = 0.0

    def reset_state(self) -> None:
        # What it sends itself is not looked at again; what it reads is.
        settings = h2.config.H2Configuration(
            client_side=True, header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self._h2 = h2.connection.H2Connection(settings)
        # Calls by stream, with the times of their beginning.
        self._calls: dict[int, tuple[str, Any, type[Proto], float]] = {}
        self._bodies: dict[int, bytes] = {}
        self._input, self._is_ending = b"", False
        # Topics to ids of producers; consumers by stream.
        self._producers: dict[str, int] = {}
        self._streams: dict[int, tuple[Durable, Stream]] = {}
        self._subscribed: set[str] = set()
        self.in_hand: list[tuple[Durable, Any]] = []

    @property
    def _is_patient(self) -> bool:
        """Whether it acknowledges messages in order, and publishes to topics that it consumes."""
        return "patient" in self.history.plan.habits

    def begin(self) -> None:
        self._h2.initiate_connection()
        self._flush()

    # ---- HTTP/2 ------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._input += data
        # Frame by frame: h2 takes a connection for closed after GOAWAY, but its open calls go on (RFC 9113, 6.8).
        while len(self._input) >= 9 and len(self._input) >= (size := 9 + int.from_bytes(self._input[:3], "big")):
            frame, self._input = self._input[:size], self._input[size:]
            try:
                events = self._h2.receive_data(frame)
            except h2.exceptions.ProtocolError as error:
                raise Broken(f"{self.name} got malformed HTTP/2: {type(error).__name__} {error}") from error
            for event in events:
                self._event(event)
        self._flush()

    def _event(self, event: Any) -> None:
        if isinstance(event, h2.events.DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self._bodies[event.stream_id] = self._bodies.get(event.stream_id, b"") + event.data
            self.take_body(event.stream_id)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            headers: dict[Any, Any] = dict(event.headers)
            status = headers.get("grpc-status")
            if status is not None:
                self._ended(event.stream_id, status)
        elif isinstance(event, h2.events.StreamReset):
            self._ended(event.stream_id, "14")
        elif isinstance(event, h2.events.ConnectionTerminated):
            if event.error_code != h2.errors.ErrorCodes.NO_ERROR:
                raise Broken(f"{self.name} is sent GOAWAY {event.error_code}: {event.additional_data!r}")
            self._is_ending = True
            self._h2.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN

    def _flush(self, calls: int = 0) -> None:
        self.send(self._h2.data_to_send(), calls)

    def _messages(self, stream: int) -> list[bytes]:
        """Whole messages of gRPC that have come on a stream."""
        body, found = self._bodies.get(stream, b""), []
        while len(body) >= 5 and len(body) >= 5 + (size := int.from_bytes(body[1:5], "big")):
            if body[0] != 0:
                raise Broken(f"{self.name} got a compressed message it did not ask for")
            found.append(body[5 : 5 + size])
            body = body[5 + size :]
        self._bodies[stream] = body
        return found

    def _call(self, method: str, request: Proto, kind: str, what: Any, answer: type[Proto]) -> None:
        if self._is_ending:
            self.leave("close")
            return
        try:
            stream = self._h2.get_next_available_stream_id()
            data = request.SerializeToString()
            self._h2.send_headers(
                stream,
                [
                    (":method", "POST"), (":scheme", "http"), (":path", f"/{method}"), (":authority", "bus"),
                    ("te", "trailers"), ("content-type", "application/grpc"),
                    *([("authorization", f"Bearer {self.token}")] if self.history.is_secure and self.token else []),
                ],
            )  # fmt: skip
            self._h2.send_data(stream, b"\0" + len(data).to_bytes(4, "big") + data, end_stream=True)
        except h2.exceptions.ProtocolError as error:
            raise AssertionError(f"{self.name} cannot call {method}") from error
        self._calls[stream] = (kind, what, answer, self.world.now)
        self._flush(1)

    def _ended(self, stream: int, status: str) -> None:
        kind, what, answer, began = self._calls.pop(stream, ("", None, None, 0.0))
        if stream in self._streams:
            durable, over = self._streams.pop(stream)
            over.ended = self.world.now
            self.in_hand = [each for each in self.in_hand if each[0] is not durable]
            self._subscribed.discard(durable.name)
            self.say(f"its stream of {durable.name} ends: {status}")
        elif kind:
            bodies = self._messages(stream)
            try:
                reply = answer.FromString(bodies[0]) if status == "0" and answer is not None else None
            except (DecodeError, IndexError) as error:
                raise Broken(f"{self.name}: the answer to {kind} is malformed: {error!r}") from error
            self._answered(kind, what, status, reply, began)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _answered(self, kind: str, what: Any, status: str, reply: Any, began: float) -> None:
        if kind == "send":
            self._sent(what, status)
        elif status != "0":
            self.say(f"{kind} is refused: {status}")
            if kind == "subscribe":
                self._subscribed.discard(what[0])
        elif not self.may_use(_topic_of(kind, what), began):
            raise Broken(f"{self.name}: {kind} of {_topic_of(kind, what)} is answered and not permitted")
        elif kind == "producer":
            self._producers[what] = reply.producer_id
        elif kind == "subscribe":
            name, topic = what
            durable = self.model.add_durable(name, topic, is_keyed=name.startswith("keyed "))
            durable.has_letters = name in self.history.with_letters
            self._receive(durable, reply.consumer_id)
        elif kind == "ack":
            durable, token = what
            durable.note_acknowledged(token, began)

    def _sent(self, message: Message, status: str) -> None:
        if status == "0":
            self.model.note(message, "acknowledged")
        elif status in _UNAVAILABLE:
            self.model.note(message, "failed")
        elif status in ("3", "5", "7", "9", "16"):
            self.model.note(message, "refused")
            self._producers.pop(message.topic, None)
        else:
            raise Broken(f"{self.name}: {message.token} is answered with status {status}")

    def take_body(self, stream: int) -> None:
        """Take what has come on a stream of deliveries; the body of an answer waits for its end."""
        if stream in self._streams:
            self._deliveries(stream)

    def _deliveries(self, stream: int) -> None:
        durable, on = self._streams[stream]
        for body in self._messages(stream):
            delivered = pb.StreamMessage.FromString(body)
            token = self.token_of(delivered.payload)
            if delivered.msg_id.topic_name != f"/default/{durable.topic}":
                raise Broken(f"{self.name} got {token} under the topic {delivered.msg_id.topic_name}")
            if delivered.routing_key != self.model.messages[token].key:
                raise Broken(f"{self.name} got {token} under the key {delivered.routing_key!r}")
            durable.take(token, delivered.payload, delivered.msg_id.topic_offset, on)
            self.in_hand.append((durable, delivered))

    # ---- doing -------------------------------------------------------------------------------------------------------

    def do(self, dice: random.Random) -> None:
        choice = dice.random()
        if self.in_hand and choice < 0.5:
            for _ in range(dice.choice((1, 1, 3, 10))):
                if self.in_hand and self.line is not None:
                    self._settle_one(dice)
        elif choice < 0.8:
            self.produce(dice)
        else:
            self._subscribe(dice)

    def produce(self, dice: random.Random) -> None:
        self.send_to(dice.choice(TOPICS[:2] if self._is_patient else TOPICS), dice, pb.Reliable)

    def send_to(self, topic: str, dice: random.Random, strategy: Any) -> None:
        """Send some messages to a topic, or make a producer of it first."""
        if topic not in self._producers:
            self.say(f"makes a producer of {topic}")
            request = pb.ProducerRequest(
                request_id=1, producer_name=f"p{self.slot}-{self.number}", topic_name=f"/default/{topic}",
                dispatch_strategy=strategy,
            )  # fmt: skip
            self._call("danube.ProducerService/CreateProducer", request, "producer", topic, pb.ProducerResponse)
            return
        for _ in range(dice.choice((1, 1, 2, 4))):
            if self.line is None:
                return
            message = self.new_message(topic, size=dice.choice((0, 10, 400)))
            message.key = _KEYS[self.model.made % len(_KEYS)]
            self.say(f"sends {message.token} to {topic}")
            body = pb.StreamMessage(
                request_id=2, payload=message.payload, publish_time=1,
                msg_id=pb.MsgID(producer_id=self._producers[topic], topic_name=f"/default/{topic}"),
                routing_key=message.key or None,
            )  # fmt: skip
            self._call("danube.ProducerService/SendMessage", body, "send", message, pb.MessageResponse)

    def _subscribe(self, dice: random.Random) -> None:
        label, kind = dice.choice(SUBSCRIPTIONS)
        topic = dice.choice(TOPICS[:2])
        if self.history.with_letters and dice.random() < 0.5:
            (label, kind), topic = SUBSCRIPTIONS[0], TOPICS[0]
        self.subscribe(topic, label, kind)

    def subscribe(self, topic: str, label: str, kind: int) -> None:
        name = f"{label} on {topic}"
        if name in self._subscribed:
            return
        self._subscribed.add(name)
        self.say(f"subscribes as {name}")
        request = pb.ConsumerRequest(
            topic_name=f"/default/{topic}", consumer_name=self._consumer_name(), subscription=label,
            subscription_type=kind, create_topic=True,  # type: ignore[arg-type]  # enums are numbers
        )  # fmt: skip
        self._call("danube.ConsumerService/Subscribe", request, "subscribe", (name, topic), pb.ConsumerResponse)

    def _consumer_name(self) -> str:
        """Come back under the name of the last connection, mostly: what that had is given to it."""
        return f"c{self.slot}" if self.number % 3 else f"c{self.slot}-{self.number}"

    def _receive(self, durable: Durable, consumer: int) -> None:
        request = pb.ReceiveRequest(request_id=3, consumer_id=consumer)
        stream = self._h2.get_next_available_stream_id()
        self._call("danube.ConsumerService/ReceiveMessages", request, "stream", durable, pb.StreamMessage)
        if self.line is not None:
            self._streams[stream] = (durable, durable.open_stream())

    def _settle_one(self, dice: random.Random) -> None:
        """Acknowledge a message, mostly the oldest; refuse one; or keep it."""
        at = 0 if dice.random() < 0.7 or self._is_patient else dice.randrange(len(self.in_hand))
        durable, delivered = self.in_hand.pop(at)
        token = self.token_of(delivered.payload)
        choice = 0.0 if self._is_patient else dice.random()
        # Where messages that fail become dead letters, many do.
        if choice < (0.4 if durable.has_letters else 0.85):
            self._acknowledge(durable, delivered, token)
        elif choice < 0.92:
            self.say(f"refuses {token} of {durable.name}")
            request = pb.NackRequest(
                request_id=5, msg_id=delivered.msg_id, subscription_name=delivered.subscription_name, delay_ms=10
            )
            self._call("danube.ConsumerService/Nack", request, "nack", (durable, token), pb.NackResponse)
        else:
            self.say(f"keeps {token} of {durable.name}")

    def _acknowledge(self, durable: Durable, delivered: Any, token: str) -> None:
        self.say(f"acknowledges {token} of {durable.name}")
        durable.settled.add(token)
        request = pb.AckRequest(request_id=4, msg_id=delivered.msg_id, subscription_name=delivered.subscription_name)
        self._call("danube.ConsumerService/Ack", request, "ack", (durable, token), pb.AckResponse)

    def acknowledge_all(self) -> None:
        while self.in_hand and self.line is not None:
            durable, delivered = self.in_hand.pop(0)
            self._acknowledge(durable, delivered, self.token_of(delivered.payload))

    def settle(self) -> None:
        super().settle()
        self.acknowledge_all()

    def leave(self, how: str) -> None:
        # Nobody tells the bus that a peer has vanished; of others it hears soon, unless it stands still.
        self._heard_after_s = float("inf") if how == "vanishe" else 10.0
        super().leave(how)

    def ended(self, error: Exception | None) -> None:
        self._heard_after_s = 0.0
        super().ended(error)

    def unanswered(self) -> list[str]:
        return [kind for kind, *_ in self._calls.values() if kind != "stream"]

    def lost(self) -> None:
        for _, stream in self._streams.values():
            stream.ended = self.world.now + self._heard_after_s
        self._calls, self._streams, self.in_hand = {}, {}, []
        self._subscribed.clear()


def _topic_of(kind: str, what: Any) -> str:
    """The topic that a call is about."""
    if kind == "producer":
        return str(what)
    return str(what[1] if kind == "subscribe" else what[0].topic)
