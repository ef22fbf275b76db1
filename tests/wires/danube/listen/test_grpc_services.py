from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from raceway.net.codec import http2_frames as h2
from raceway.net.grpc import Methods
from raceway.wires.danube.codec import pb as danube_pb
from raceway.wires.danube.codec.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from raceway.wires.danube.codec.pb.reflection_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)
from raceway.wires.danube.listen.grpc_services import HealthBoard, PoolFiles, add_health, add_reflection
from tests.rigs.grpc_desk import Caller, GrpcDesk
from tests.rigs.http2 import CALL, data, headers, message

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3


def desk() -> tuple[GrpcDesk, HealthBoard, Caller]:
    methods, board = Methods(), HealthBoard()
    board.set("", True)
    board.set("danube.Discovery", True)
    add_health(methods, board)
    add_reflection(methods, ["danube.Discovery"], PoolFiles(danube_pb.POOL))
    made = GrpcDesk(methods)
    return made, board, made.caller()


def head(path: str) -> tuple[tuple[str, str], ...]:
    return tuple({**dict(CALL), ":path": path}.items())


def health(stream: int, method: str, body: bytes) -> bytes:
    return headers(stream, *head(f"/grpc.health.v1.Health/{method}")) + data(stream, message(body))


def messages(body: bytes) -> list[bytes]:
    found = []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        found.append(body[5:end])
        body = body[end:]
    return found


def said(caller: Caller, stream: int) -> list[bytes]:
    """Messages of a stream since the last time."""
    return messages(b"".join(each.body for each in caller.heard() if each.kind == h2.DATA and each.stream == stream))


def state(answer: bytes) -> int:
    return HealthCheckResponse.FromString(answer).status


def asking(service: str) -> bytes:
    return HealthCheckRequest(service=service).SerializeToString()


@pytest.mark.parametrize("service", ["", "danube.Discovery"])
def test_health_of_a_service_and_of_the_whole_server(service: str) -> None:
    _, board, caller = desk()
    caller.send(health(1, "Check", asking(service)))
    assert state(caller.answers()[1][1][5:]) == SERVING
    board.set(service, False)
    caller.send(health(3, "Check", asking(service)))
    assert state(caller.answers()[3][1][5:]) == NOT_SERVING


def test_an_unknown_service_is_not_found() -> None:
    _, _, caller = desk()
    caller.send(health(1, "Check", asking("nobody")))
    assert caller.answers() == {1: (5, b"unknown service nobody")}


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_bytes_that_are_no_question_are_refused(method: str) -> None:
    _, _, caller = desk()
    caller.send(health(1, method, b"\xff\xff"))
    assert caller.answers()[1][0] == 3


def test_a_watcher_is_told_of_every_change() -> None:
    _, board, caller = desk()
    caller.send(health(1, "Watch", asking("danube.Discovery")))
    assert list(map(state, said(caller, 1))) == [SERVING]
    board.set("danube.Discovery", True)
    assert said(caller, 1) == [], "no change"
    board.set("danube.Discovery", False)
    board.set("", False)
    assert list(map(state, said(caller, 1))) == [NOT_SERVING]


def test_a_service_may_be_watched_before_it_is_there() -> None:
    _, board, caller = desk()
    caller.send(health(1, "Watch", asking("later")))
    assert list(map(state, said(caller, 1))) == [UNKNOWN]
    board.set("later", True)
    assert list(map(state, said(caller, 1))) == [SERVING]


def test_a_watcher_that_leaves_is_forgotten() -> None:
    _, board, caller = desk()
    caller.send(health(1, "Watch", asking("")))
    caller.send(h2.reset(1, h2.CANCEL))
    assert board._watchers == {}
    board.set("", False)


def test_a_watcher_that_is_behind_hears_the_latest_only() -> None:
    _, board, caller = desk()
    caller.send(health(1, "Watch", asking("")))
    said(caller, 1)
    caller.protocol.pause_writing()
    for well in (False, True, False):
        board.set("", well)
    assert said(caller, 1) == []
    caller.protocol.resume_writing()
    assert list(map(state, said(caller, 1))) == [NOT_SERVING]


def test_before_the_end_nothing_is_well_any_more() -> None:
    desk_, _, caller = desk()
    caller.send(health(1, "Watch", asking("")))
    said(caller, 1)
    desk_.gate.drain()
    assert list(map(state, said(caller, 1))) == [NOT_SERVING]


def reflect(caller: Caller, **question: object) -> ServerReflectionResponse:
    """One question on a stream of its own."""
    stream = caller._next
    caller._next += 2
    asked = ServerReflectionRequest(host="here", **question)  # type: ignore[arg-type]
    caller.send(headers(stream, *head(REFLECTION)), data(stream, message(asked.SerializeToString())))
    status, body = caller.answers()[stream]
    assert status == 0
    (answer,) = messages(body)
    found = ServerReflectionResponse.FromString(answer)
    assert (found.valid_host, found.original_request) == ("here", asked)
    return found


def files(answer: ServerReflectionResponse) -> list[FileDescriptorProto]:
    return [FileDescriptorProto.FromString(file) for file in answer.file_descriptor_response.file_descriptor_proto]


def test_reflection_lists_all_services() -> None:
    found = reflect(desk()[2], list_services="")
    assert [service.name for service in found.list_services_response.service] == [
        "danube.Discovery", "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "symbol",
    [
        "grpc.health.v1.Health", "grpc.health.v1.HealthCheckRequest", "grpc.health.v1.Health.Check",
        "grpc.reflection.v1.ServerReflection",
    ],
)  # fmt: skip
def test_reflection_finds_the_file_of_a_symbol(symbol: str) -> None:
    found = files(reflect(desk()[2], file_containing_symbol=symbol))
    assert symbol.startswith(found[0].package)


def test_reflection_gives_a_file_by_its_name() -> None:
    name = files(reflect(desk()[2], file_containing_symbol="grpc.health.v1.Health"))[0].name
    assert files(reflect(desk()[2], file_by_filename=name))[0].package == "grpc.health.v1"


def test_the_older_reflection_describes_itself_by_its_own_name() -> None:
    symbol = "grpc.reflection.v1alpha.ServerReflection"
    (found,) = files(reflect(desk()[2], file_containing_symbol=symbol))
    assert found.package == "grpc.reflection.v1alpha"
    assert found.service[0].method[0].input_type == ".grpc.reflection.v1alpha.ServerReflectionRequest"
    assert files(reflect(desk()[2], file_by_filename=found.name)) == [found]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"file_by_filename": "none.proto"}, 5),
        ({"file_containing_symbol": "no.Such"}, 5),
        ({"all_extension_numbers_of_type": "danube.MsgID"}, 5),
        ({"file_containing_extension": ExtensionRequest(containing_type="x", extension_number=1)}, 5),
        ({}, 12),
    ],
)
def test_what_reflection_cannot_tell(question: dict[str, object], code: int) -> None:
    assert reflect(desk()[2], **question).error_response.error_code == code


def test_several_questions_are_answered_in_order_while_the_stream_is_open() -> None:
    _, _, caller = desk()
    asked = [ServerReflectionRequest(file_containing_symbol="danube.MsgID"), ServerReflectionRequest(list_services="")]
    caller.send(headers(1, *head(REFLECTION)))
    for question in asked:
        caller.send(data(1, message(question.SerializeToString()), end=False))
        (answer,) = said(caller, 1)
        assert ServerReflectionResponse.FromString(answer).original_request == question


def test_a_question_that_is_none_ends_the_conversation() -> None:
    _, _, caller = desk()
    caller.send(headers(1, *head(REFLECTION)), data(1, message(b"\xff\xff"), end=False))
    assert caller.answers()[1][0] == 3


def test_who_reads_no_answers_is_given_up() -> None:
    _, _, caller = desk()
    question = message(ServerReflectionRequest(list_services="").SerializeToString())
    caller.send(headers(1, *head(REFLECTION)))
    caller.protocol.pause_writing()
    for _ in range(110):
        caller.protocol.data_received(data(1, question, end=False))
    assert caller.answers()[1][0] == 8
