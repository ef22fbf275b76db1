"""Two standard gRPC services: health checking (`grpc.health.v1`) and server reflection (`v1` and `v1alpha`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.grpc import ArrivedCall, GrpcSession, Methods, ServerStream
from raceway.wires.danube.codec.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from raceway.wires.danube.codec.pb.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

HEALTH = "grpc.health.v1.Health"
# Older tools call v1alpha; its messages are the same.
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_SERVING, _NOT_SERVING, _UNKNOWN = (
    HealthCheckResponse(status=status).SerializeToString()
    for status in (HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING, HealthCheckResponse.SERVICE_UNKNOWN)
)


class HealthBoard:
    """Health of each service, and the open Watch streams. The name "" stands for the whole server."""

    def __init__(self) -> None:
        self._well: dict[str, bool] = {}
        self._watchers: dict[str, set[_Watcher]] = {}

    def set(self, service: str, well: bool) -> None:
        if self._well.get(service) is not well:
            self._well[service] = well
            for watcher in list(self._watchers.get(service, ())):
                watcher.tell(self.state(service))

    def stop_serving(self) -> None:
        for service in list(self._well):
            self.set(service, False)

    def state(self, service: str) -> bytes:
        """Return the encoded HealthCheckResponse of a service."""
        well = self._well.get(service)
        return _UNKNOWN if well is None else _SERVING if well else _NOT_SERVING

    def watch(self, service: str, session: GrpcSession, stream: int) -> None:
        watcher = _Watcher(session, stream, lambda: self._leave(service, watcher))
        self._watchers.setdefault(service, set()).add(watcher)
        watcher.tell(self.state(service))

    def _leave(self, service: str, watcher: _Watcher) -> None:
        watchers = self._watchers[service]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[service]


class _Watcher:
    """A Watch stream. A slow reader gets the latest state only."""

    def __init__(self, session: GrpcSession, stream: int, on_closed: Callable[[], None]) -> None:
        self._stream: ServerStream = session.open_stream(stream, on_closed, self._has_room)
        self._waiting: bytes | None = None

    def tell(self, state: bytes) -> None:
        if self._stream.room > 0:
            self._stream.send([state])
        else:
            self._waiting = state

    def _has_room(self) -> None:
        state, self._waiting = self._waiting, None
        if state is not None:
            self.tell(state)


def add_health(methods: Methods, board: HealthBoard) -> None:
    """Register `grpc.health.v1.Health`. All services become NOT_SERVING when the shutdown starts."""

    def check(session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, service in _services(session, calls):
            state = board.state(service)
            if state is _UNKNOWN:
                session.refuse(stream, Status.NOT_FOUND, f"unknown service {service}")
            else:
                session.answer_many([(stream, state)])

    def watch(session: GrpcSession, calls: list[ArrivedCall]) -> None:
        # Health checking protocol: Watch of an unknown service answers SERVICE_UNKNOWN and stays open; Check fails.
        for stream, service in _services(session, calls):
            board.watch(service, session, stream)

    methods.unary(f"/{HEALTH}/Check", check)
    methods.unary(f"/{HEALTH}/Watch", watch)
    methods.drains.append(board.stop_serving)


def _services(session: GrpcSession, calls: list[ArrivedCall]) -> list[tuple[int, str]]:
    """Decode the service name of each call; refuse malformed calls."""
    found = []
    for stream, message, _ in calls:
        try:
            found.append((stream, HealthCheckRequest.FromString(message).service))
        except DecodeError:
            session.refuse(stream, Status.INVALID_ARGUMENT, "malformed HealthCheckRequest")
    return found


class PoolFiles:
    """The files of a descriptor pool, plus the reflection file under its v1alpha name."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._older = _older_reflection(pool)

    def file_by_name(self, name: str) -> bytes | None:
        if name == self._older.name:
            return self._older.SerializeToString()
        return self._maybe_file(self._pool.FindFileByName, name)

    def file_containing(self, symbol: str) -> bytes | None:
        if symbol.startswith(f"{self._older.package}."):
            return self._older.SerializeToString()
        return self._maybe_file(self._pool.FindFileContainingSymbol, symbol) or self._maybe_file(self._method, symbol)

    def _method(self, symbol: str) -> object:
        """Return the file of a method's service: the pool does not find methods by name. Raises KeyError."""
        service, _, name = symbol.rpartition(".")
        return self._pool.FindServiceByName(service).methods_by_name[name].containing_service.file

    def _maybe_file(self, find: Callable[[str], object], name: str) -> bytes | None:
        try:
            return bytes(find(name).serialized_pb)  # type: ignore[attr-defined]  # both finders return a FileDescriptor
        except (KeyError, UnicodeError):
            return None


def _older_reflection(pool: DescriptorPool) -> FileDescriptorProto:
    newer, older = (name.rpartition(".")[0] for name in REFLECTIONS)
    file = FileDescriptorProto.FromString(pool.FindFileContainingSymbol(REFLECTIONS[0]).serialized_pb)
    file.name, file.package = f"v1alpha/{file.name}", older
    for method in file.service[0].method:
        method.input_type = method.input_type.replace(newer, older)
        method.output_type = method.output_type.replace(newer, older)
    for kind in file.message_type:
        for field in kind.field:
            field.type_name = field.type_name.replace(newer, older)
    return file


def add_reflection(methods: Methods, services: Sequence[str], files: PoolFiles) -> None:
    def begin(session: GrpcSession, stream: int, head: CallHead) -> _Reflection:
        return _Reflection(session, stream, services, files)

    for name in REFLECTIONS:
        methods.bidi(f"/{name}/ServerReflectionInfo", begin)


class _Reflection:
    """A ServerReflectionInfo call: answers requests in order. Refused if the peer does not read its answers."""

    # Requests that may wait while the peer does not read answers.
    WAITING = 100

    def __init__(self, session: GrpcSession, stream: int, services: Sequence[str], files: PoolFiles) -> None:
        self._services = services
        self._files = files
        self._stream = session.open_stream(stream, self.close, self._go_on)
        self._questions: deque[bytes] = deque()
        self._finished = False

    def take(self, message: bytes) -> None:
        self._questions.append(message)
        if len(self._questions) > self.WAITING:
            self._stream.end(Status.RESOURCE_EXHAUSTED, "too many unread answers")
        self._go_on()

    def finish(self) -> None:
        self._finished = True
        self._go_on()

    def close(self) -> None:
        self._questions.clear()

    def _go_on(self) -> None:
        while self._questions and self._stream.room > 0:
            try:
                question = ServerReflectionRequest.FromString(self._questions.popleft())
            except DecodeError:
                self._stream.end(Status.INVALID_ARGUMENT, "malformed ServerReflectionRequest")
                return
            self._stream.send([self._answer(question).SerializeToString()])
        if self._finished and not self._questions:
            self._stream.end()

    def _answer(self, question: ServerReflectionRequest) -> ServerReflectionResponse:
        answer = ServerReflectionResponse(valid_host=question.host, original_request=question)
        kind = question.WhichOneof("message_request")
        if kind == "list_services":
            for name in sorted([*self._services, HEALTH, *REFLECTIONS]):
                answer.list_services_response.service.add(name=name)
        elif kind in ("file_by_filename", "file_containing_symbol"):
            find = self._files.file_by_name if kind == "file_by_filename" else self._files.file_containing
            self._describe(answer, find(getattr(question, kind)))
        elif kind in ("file_containing_extension", "all_extension_numbers_of_type"):
            self._refuse(answer, Status.NOT_FOUND, "no extensions are defined")
        else:
            self._refuse(answer, Status.UNIMPLEMENTED, "unknown kind of reflection request")
        return answer

    def _describe(self, answer: ServerReflectionResponse, file: bytes | None) -> None:
        """Add the file and all its transitive dependencies to the answer."""
        if file is None:
            self._refuse(answer, Status.NOT_FOUND, "no such file or symbol")
            return
        wanted, known = [file], set[str]()
        while wanted:
            data = wanted.pop()
            answer.file_descriptor_response.file_descriptor_proto.append(data)
            for name in FileDescriptorProto.FromString(data).dependency:
                below = self._files.file_by_name(name) if name not in known else None
                known.add(name)
                if below is not None:
                    wanted.append(below)

    def _refuse(self, answer: ServerReflectionResponse, status: Status, text: str) -> None:
        answer.error_response.error_code = status
        answer.error_response.error_message = text
