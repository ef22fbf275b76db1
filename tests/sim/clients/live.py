"""Clients that get only what is published while they are there: publish/subscribe queues of zbus, and topics of Danube
that are not reliable."""

from __future__ import annotations

import json
import random
from typing import Any

from raceway.wires.danube.codec.pb import danube_api_pb2 as pb
from tests.sim.clients.danube import DanubeClient
from tests.sim.clients.zbus import Reply, ZbusClient
from tests.sim.messages import Broken, Message
from tests.sim.receivers import LiveReader

# A publish/subscribe queue and subjects on it; a topic that is not reliable.
PUBSUB, SUBJECTS, UNRELIABLE = "p.a", ("news", "sport", "weather"), "n.a"
# More than a history has.
_ALL = 100_000


class PubSubClient(ZbusClient):
    """Subscribes with its first consume; between two of them messages wait for it."""

    wire = "pubsub"

    def reset_state(self) -> None:
        super().reset_state()
        self._readers: dict[str, LiveReader] = {}
        # Of the consume that is open: its id and how many it asks for.
        self._asked, self._window = "", 0
        self._subjects: set[str] = set()
        self._is_made = False

    def do(self, dice: random.Random) -> None:
        choice = dice.random()
        if not self._is_made:
            self._make()
        if choice < 0.5:
            self._publish(dice)
        else:
            self._subscribe(dice.choice(SUBJECTS), dice.choice((1, 1, 3, 20)))

    def _make(self) -> None:
        msgid = self._new_id()
        self.open[msgid] = ("made", PUBSUB)
        self._is_made = True
        self.say(f"makes the publish/subscribe queue {PUBSUB}")
        body = json.dumps({"mqName": PUBSUB, "mqMode": "2", "accessToken": ""}).encode()
        self._write({"cmd": "admin", "method": "create_mq", "msgid": msgid, **self._guarded()}, body)

    def _publish(self, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 2, 5))):
            message = self.new_message(PUBSUB, size=dice.choice((0, 10, 400)))
            message.subject = dice.choice(SUBJECTS)
            msgid = self._new_id()
            self.open[msgid] = ("produce", message)
            self.say(f"publishes {message.token} on {message.subject}")
            keys = {"cmd": "produce", "mq": PUBSUB, "topic": message.subject, "msgid": msgid}
            self._write(keys, message.payload)

    def _subscribe(self, subject: str, window: int) -> None:
        """Ask for messages. Behind it goes what is refused at once, so that its answer tells that this was heard."""
        msgid, check = self._new_id(), self._new_id()
        self.open[check] = ("heard", (subject, msgid))
        self._asked, self._window = msgid, window
        self._subjects.add(subject)
        self.say(f"asks for {window} on {subject}")
        self._write({"cmd": "consume", "mq": PUBSUB, "topic": subject, "window": str(window), "msgid": msgid})
        self._write({"cmd": "consume", "mq": "nowhere", "msgid": check})

    def _take(self, reply: Reply) -> None:
        msgid = reply.headers.get("msgid", "")
        kind, what = self.open.get(msgid, ("", None))
        if kind == "heard":
            del self.open[msgid]
            self._heard(what[0])
        elif not kind and reply.status == 200 and reply.headers.get("mq") == PUBSUB:
            self._copy(reply)
        elif not kind and reply.status in (403, 404):
            self._asked = ""  # the queue could not be made, or it may not consume
        else:
            super()._take(reply)

    def _heard(self, subject: str) -> None:
        """The subscription is there, unless the queue is not, or it may not consume."""
        if self._asked and subject not in self._readers:
            name = f"{self.name} on {PUBSUB}/{subject}"
            reader = self.model.add_live(name, lambda message: (message.topic, message.subject) == (PUBSUB, subject))
            self._readers[subject] = reader

    def _copy(self, reply: Reply) -> None:
        token = self.token_of(reply.body)
        message = self.model.messages[token]
        if message.subject not in self._subjects:
            raise Broken(f"{self.name} got {token} on {message.subject} and has not subscribed to it")
        if reply.headers.get("topic") != message.subject:
            raise Broken(f"{self.name} got {token} under the subject {reply.headers.get('topic')}")
        if reply.headers.get("msgid") == self._asked:
            self._window -= 1
            if self._window < 0:
                raise Broken(f"{self.name} got {token}, which is more than it asked for")
        self.model.check_copy(token, PUBSUB, reply.body, self.name)
        if reader := self._readers.get(message.subject):
            reader.take(token, PUBSUB, reply.body)

    def settle(self) -> None:
        super().settle()
        if self.line is not None and self._asked and self._window < _ALL // 2:
            self._subscribe(sorted(self._subjects)[0], _ALL)

    def unanswered(self) -> list[str]:
        return [kind for kind, _ in self.open.values()]

    def lost(self) -> None:
        for reader in self._readers.values():
            reader.is_open = False
        self._readers = {}
        super().lost()


class UnreliableClient(DanubeClient):
    """Sends to a topic that is not reliable, and has a stream of a subscription of its own."""

    wire = "unreliable"

    def reset_state(self) -> None:
        super().reset_state()
        self._reader: LiveReader | None = None
        self._stream = 0
        self._is_asked = False

    def do(self, dice: random.Random) -> None:
        if dice.random() < 0.3 and not self._is_asked:
            self._is_asked = True
            self.say(f"subscribes to {UNRELIABLE}")
            request = pb.ConsumerRequest(
                topic_name=f"/default/{UNRELIABLE}", consumer_name=f"u{self.slot}-{self.number}",
                subscription=f"live-{self.slot}-{self.number}", create_topic=True,
            )  # fmt: skip
            self._call("danube.ConsumerService/Subscribe", request, "listen", UNRELIABLE, pb.ConsumerResponse)
        else:
            self.send_to(UNRELIABLE, dice, pb.NonReliable)

    def _answered(self, kind: str, what: Any, status: str, reply: Any, began: float) -> None:
        if kind == "listen" and status == "0":
            if not self.may_use(UNRELIABLE):
                raise Broken(f"{self.name} subscribes to {UNRELIABLE}, and it is not permitted")
            self._receive_live(reply.consumer_id)
        elif kind == "heard":
            self._is_heard(status)
        else:
            super()._answered(kind, what, status, reply, began)

    def _receive_live(self, consumer: int) -> None:
        """Open the stream. The answer to the call behind it tells that it is open."""
        request = pb.ReceiveRequest(request_id=3, consumer_id=consumer)
        stream = self._h2.get_next_available_stream_id()
        self._call("danube.ConsumerService/ReceiveMessages", request, "live", UNRELIABLE, pb.StreamMessage)
        if self.line is None:
            return
        self._stream = stream
        again = pb.ProducerRequest(
            request_id=1, producer_name=f"p{self.slot}-{self.number}", topic_name=f"/default/{UNRELIABLE}",
            dispatch_strategy=pb.NonReliable,
        )  # fmt: skip
        self._call("danube.ProducerService/CreateProducer", again, "heard", UNRELIABLE, pb.ProducerResponse)

    def _is_heard(self, status: str) -> None:
        if self._stream and status == "0":
            name = f"{self.name} on {UNRELIABLE}"
            self._reader = self.model.add_live(name, lambda message: message.topic == UNRELIABLE)

    def _sent(self, message: Message, status: str) -> None:
        """It is answered at once: that is no promise."""
        if status == "0":
            self.model.note(message, "stored")
        else:
            super()._sent(message, status)

    def take_body(self, stream: int) -> None:
        if stream != self._stream:
            super().take_body(stream)
            return
        for body in self._messages(stream):
            delivered = pb.StreamMessage.FromString(body)
            token = self.token_of(delivered.payload)
            self.model.check_copy(token, UNRELIABLE, delivered.payload, self.name)
            if self._reader is not None:
                self._reader.take(token, UNRELIABLE, delivered.payload, delivered.msg_id.topic_offset)

    def _ended(self, stream: int, status: str) -> None:
        if stream == self._stream:
            self._close_reader()
        super()._ended(stream, status)

    def _close_reader(self) -> None:
        self._stream = 0
        if self._reader is not None:
            self._reader.is_open = False
        self._reader = None

    def unanswered(self) -> list[str]:
        return [kind for kind in super().unanswered() if kind != "live"]

    def lost(self) -> None:
        self._close_reader()
        super().lost()
