"""The Danube wire over a real broker, with outcomes that come when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from raceway import config
from raceway.broker.door import Door
from raceway.net.connection import MAX_UNANSWERED
from raceway.wires.danube.codec.pb import POOL
from raceway.wires.danube.codec.pb import danube_admin_pb2 as admin_pb
from raceway.wires.danube.codec.pb import danube_api_pb2 as pb
from raceway.wires.danube.listen.gate import SERVICES, DanubeGate
from tests.rigs.doubles import Bench
from tests.rigs.grpc_desk import Caller
from tests.rigs.http2 import data, headers, message, with_fields

# Would move a topic to another broker.
NOT_SERVED = {"/danube_admin.TopicAdmin/UnloadTopic"}


class HeldDoor(Door):
    """Keeps outcomes until `release`."""

    held: list[Callable[[], None]]

    def perform(self, peer: Any, intent: Any, done: Any = None, committed: Any = None) -> None:
        super().perform(peer, intent, lambda told: self.held.append(lambda: done(told)), committed)

    def release(self) -> None:
        held, self.held = self.held, []
        for call in held:
            call()


class Desk(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.door = HeldDoor(self.broker)
        self.door.held = []
        self.gate = DanubeGate(self.door, config.Listen(), 6650)

    def caller(self) -> Caller:
        return Caller(self)  # type: ignore[arg-type]  # has a gate and a loop


def call(stream: int, method: str, request: Message) -> bytes:
    body = message(request.SerializeToString())
    return headers(stream, *with_fields(path=f"/{method}")) + data(stream, body)


def test_every_call_of_every_service_has_a_handler() -> None:
    described = {
        f"/{name}/{method.name}" for name in SERVICES for method in POOL.FindServiceByName(name).methods
    } - NOT_SERVED
    served = {path for path in Desk().gate.methods.handlers if path.startswith("/danube")}
    assert served == described


def test_calls_without_an_outcome_stop_the_reading_until_all_have_theirs() -> None:
    desk = Desk()
    caller = desk.caller()
    request = pb.HealthCheckRequest(client=pb.HealthCheckRequest.Producer, id=1)
    streams = range(1, 2 * MAX_UNANSWERED, 2)
    calls = [call(stream, "danube.HealthCheck/HealthCheck", request) for stream in streams]
    caller.send(*calls)
    assert caller.transport.reading
    caller.send(call(streams[-1] + 2, "danube.HealthCheck/HealthCheck", request))
    assert not caller.transport.reading
    assert caller.answers() == {}
    desk.door.release()
    assert {status for status, _ in caller.answers().values()} == {0}
    assert caller.transport.reading


def test_batches_and_streams_are_counted_until_their_outcome_comes() -> None:
    desk = Desk()
    caller = desk.caller()
    identity = pb.MsgID(producer_id=1, topic_name="/default/t")
    caller.send(
        call(1, "danube.ProducerService/SendMessage", pb.StreamMessage(request_id=1, msg_id=identity)),
        call(3, "danube.ConsumerService/Ack", pb.AckRequest(request_id=1, msg_id=identity, subscription_name="s")),
        call(5, "danube.ConsumerService/Nack", pb.NackRequest(request_id=1, msg_id=identity, subscription_name="s")),
        call(7, "danube.ConsumerService/ReceiveMessages", pb.ReceiveRequest(consumer_id=1)),
    )
    answered: list[bool] = []
    caller.session.when_answered(lambda: answered.append(True))
    assert len(desk.door.held) == 4
    assert not answered
    desk.door.release()
    assert answered == [True]


def test_an_intent_of_a_handler_is_confirmed_with_the_answer_of_its_call() -> None:
    desk = Desk()
    caller = desk.caller()
    caller.send(call(1, "danube_admin.NamespaceAdmin/CreateNamespace", admin_pb.NamespaceRequest(name="n")))
    for _ in range(3):
        desk.loop.settle()
        desk.door.release()
    status, body = caller.answers()[1]
    assert (status, admin_pb.NamespaceResponse.FromString(body[5:])) == (0, admin_pb.NamespaceResponse(success=True))
    caller.send(call(3, "danube_admin.NamespaceAdmin/CreateNamespace", admin_pb.NamespaceRequest(name="n")))
    desk.door.release()
    assert caller.answers()[3][0] == 6, "ALREADY_EXISTS"
