"""Real npm Seneca through the bus: each kind of client calls services hosted by each kind of listener, and by
`raceway.client`. L is Seneca's default HTTP, W its newer web transport, T its TCP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from raceway.client import ActionMessage
from raceway.client.sync import connect
from tests.rigs.node_peers import DIALECTS, PACKAGES, Dialect, NodePeers, Outcome, node_peers
from tests.rigs.ports import free_port_base
from tests.rigs.seneca_math import math_service
from tests.rigs.seneca_wire import attached, fresh_word, journal_end, now_ms, wait_for_rows
from tests.rigs.server import Server, running_server, wait_until

HOSTS = (*DIALECTS, "python")
UNICODE = 'Größe 尺寸 \U0001f6eb \u2028 "\\'
CALLS = 200


class Host(NamedTuple):
    """Where services are: under which role, and how to see what reached them."""

    kind: str
    role: str
    node: NodePeers | None
    kept: list[ActionMessage]

    def seen(self, data: Any) -> list[dict[str, Any]]:
        """Echoes of `data` that reached the service: message, id, sync, custom."""
        if self.node is None:
            return [
                {"message": m.data, "id": f"{m.mid}/{m.cid}", "sync": m.sync, "custom": m.custom}
                for m in self.kept
                if m.get("data") == data
            ]
        return [kept._asdict() for kept in self.node.kept(f"host-{self.kind}") if kept.message.get("data") == data]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_SENECA__RETRY_MS=100, RACEWAY_SENECA__RETRY_MAX_MS=200) as server:
        yield server


@pytest.fixture(scope="module")
def clients(server: Server, callers: NodePeers) -> Iterator[dict[str, str]]:
    """One client of each dialect, connected to the bus."""
    for dialect in DIALECTS:
        port = server.port("seneca_tcp" if dialect == "T" else "seneca")
        callers.client(f"caller-{dialect}", dialect, port)
    yield {dialect: f"caller-{dialect}" for dialect in DIALECTS}
    for dialect in DIALECTS:
        callers.close_instance(f"caller-{dialect}")


@pytest.fixture(scope="module")
def services(server: Server, hosts: NodePeers) -> Iterator[dict[str, Host]]:
    """One listener of each kind, attached to the bus under a role of its own."""
    base = free_port_base()
    found: dict[str, Host] = {}
    with ExitStack() as stack:
        for offset, dialect in enumerate(DIALECTS):
            host = Host(dialect, f"math{dialect}", hosts, [])
            hosts.listen(f"host-{dialect}", dialect, base + offset, role=host.role)
            stack.enter_context(attached(server, f"role:{host.role},cmd:*", place(dialect, base + offset), dialect))
            found[dialect] = host
        python = Host("python", "mathPython", None, [])
        bus = stack.enter_context(connect(bus_url(server), wire="seneca", console=console_url(server)))
        stack.enter_context(bus.host(math_service(python.role, python.kept)))
        found["python"] = python
        yield found
    for dialect in DIALECTS:
        hosts.close_instance(f"host-{dialect}")


def place(dialect: Dialect, port: int) -> str:
    return f"tcp://127.0.0.1:{port}" if dialect == "T" else f"http://127.0.0.1:{port}/act"


def bus_url(server: Server) -> str:
    return f"seneca://127.0.0.1:{server.port('seneca')}"


def console_url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port('console')}"


class Pair:
    """One kind of caller and one kind of host."""

    def __init__(self, caller: Dialect, name: str, callers: NodePeers, host: Host) -> None:
        self.caller, self.host = caller, host
        self.name, self.callers = name, callers

    def act(self, cmd: str, **data: Any) -> Outcome:
        return self.callers.act(self.name, role=self.host.role, cmd=cmd, **data)


@pytest.fixture(params=[f"{caller}-{host}" for caller in DIALECTS for host in HOSTS])
def pair(
    request: pytest.FixtureRequest, clients: dict[str, str], callers: NodePeers, services: dict[str, Host]
) -> Pair:
    caller, _, host = request.param.partition("-")
    return Pair(caller, clients[caller], callers, services[host])


# ---- what a call gives ----------------------------------------------------------------------------------------------


def test_a_call_is_answered(pair: Pair) -> None:
    assert pair.act("sum", a=1, b=2).result == {"sum": 3}


def test_a_message_without_callback_reaches_the_service(pair: Pair) -> None:
    data = fresh_word()
    pair.callers.post(pair.name, role=pair.host.role, cmd="echo", data=data)
    (seen,) = wait_until(lambda: pair.host.seen(data), 10, "the message at the service")
    assert seen["message"] == {"role": pair.host.role, "cmd": "echo", "data": data}
    if pair.host.kind in ("W", "python"):
        # An L client's asynchronous call looks exactly like a synchronous one, on the wire and so for us.
        assert seen["sync"] is (pair.caller == "L")


def test_a_failure_brings_its_code_its_words_and_its_details(pair: Pair) -> None:
    error = pair.act("div", a=1, b=0).error
    assert error is not None
    if pair.caller == "W":
        assert (error["code"], error["message"]) == ("div_zero", "division by zero")
        assert error["details"]["a"] == 1
        return
    # L's client hides our object behind a sentence of its own; T's hands it out.
    told = error["payload"] if pair.caller == "L" else error
    assert error["code"] == "act_execute"
    # The action's own pattern, or that by which its service is attached.
    patterns = [f"cmd:{cmd},role:{pair.host.role}" for cmd in ("div", "*")]
    assert told["message"] in [f"seneca: Action {pattern} failed: division by zero." for pattern in patterns]
    assert told["details"]["message"] == "division by zero"
    assert told["details"]["orig$"]["code"] == "div_zero"
    assert told["details"]["a"] == 1


def test_no_failure_shows_where_files_are(pair: Pair) -> None:
    shown = json.dumps(pair.act("div", a=1, b=0).error)
    assert "peers.js" not in shown
    assert "node_modules" not in shown


def test_custom_data_reaches_the_action_and_comes_back_changed_where_both_can_say_it(pair: Pair) -> None:
    outcome = pair.act("custom", **{"custom$": {"tenant": "t1", "deep": {"n": [1, None]}}})
    assert outcome.result == {"got": {"tenant": "t1", "deep": {"n": [1, None]}}}
    changes = pair.caller == "W" and pair.host.kind in ("W", "python")
    expected = {"tenant": "t1", "deep": {"n": [1, None]}} | ({"region": "eu"} if changes else {})
    assert outcome.custom == expected


def test_a_list_comes_back_as_a_list(pair: Pair) -> None:
    assert pair.act("range", count=3).result == [0, 1, 2]
    assert pair.act("range", count=0).result == []


def test_no_result_is_no_error(pair: Pair) -> None:
    assert pair.act("nothing") == Outcome(None, {}, None)


@pytest.mark.parametrize(
    "data",
    [UNICODE, "\x00\x1f", {"nested": {"ключ": [None, True, 1.5, -0.25, "", {}, []]}}, 2**53, -1e-7],
    ids=["letters", "controls", "nested", "large", "small"],
)
def test_values_come_back_as_they_went(pair: Pair, data: Any) -> None:
    assert pair.act("echo", data=data).result == {"data": data}


def test_a_hundred_kilobytes_pass_both_ways(pair: Pair) -> None:
    data = ("0123456789é" * 10_000)[:100_000]
    assert pair.act("echo", data=data).result == {"data": data}


def test_two_hundred_calls_at_once_get_their_own_answers(pair: Pair) -> None:
    messages = [{"role": pair.host.role, "cmd": "echo", "data": number} for number in range(CALLS)]
    outcomes = pair.callers.together(pair.name, messages)
    assert [outcome.result for outcome in outcomes] == [{"data": number} for number in range(CALLS)]


def test_slow_and_quick_calls_do_not_wait_for_each_other(pair: Pair) -> None:
    began = time.monotonic()
    slow = pair.callers.start_act(pair.name, role=pair.host.role, cmd="slow", ms=600)
    assert pair.act("sum", a=1, b=1).result == {"sum": 2}
    assert not slow.done(), "the quick call waited for the slow one"
    assert slow.result(20)["result"] == {"waited": 600}
    assert time.monotonic() - began < 10


# ---- what nobody serves, and what dies ------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", DIALECTS)
def test_what_matches_no_pattern_is_refused_as_seneca_does(
    caller: Dialect, clients: dict[str, str], callers: NodePeers
) -> None:
    error = callers.act(clients[caller], role="nobody", cmd="x").error
    assert error is not None
    told = error["payload"] if caller == "L" else error
    assert told["code"] == "act_not_found"
    assert told["message"].startswith("seneca: No matching action pattern found for")


@pytest.mark.parametrize("caller", DIALECTS)
def test_what_is_inside_a_listener_stays_there(
    caller: Dialect, server: Server, callers: NodePeers, services: dict[str, Host]
) -> None:
    # A client would answer this itself; a pin sends it out.
    port = server.port("seneca_tcp" if caller == "T" else "seneca")
    name = f"inner-{fresh_word()}"
    callers.client(name, caller, port, pin="role:seneca,cmd:stats")
    try:
        error = callers.act(name, role="seneca", cmd="stats").error
    finally:
        callers.close_instance(name)
    assert error is not None
    told = error["payload"] if caller == "L" else error
    assert told["code"] == "act_not_found"


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_service_killed_in_the_middle_of_calls_costs_those_calls_and_no_other(
    kind: Dialect, server: Server, clients: dict[str, str], callers: NodePeers, hosts: NodePeers
) -> None:
    role, base = fresh_word(), free_port_base()
    hosts.listen(role, kind, base, role=role)
    with node_peers() as doomed:
        doomed.listen("doomed", kind, base + 1, role=role)
        with attached(server, f"role:{role},cmd:*", place(kind, base + 1), kind):
            slow = [callers.start_act(name, role=role, cmd="slow", ms=30_000) for name in clients.values()]
            wait_until(lambda: len(doomed.kept("doomed")) == 3, 10, "the calls at the service")
            with attached(server, f"role:{role},cmd:*", place(kind, base), kind):
                began = time.monotonic()
                doomed.process.send_signal(signal.SIGKILL)
                for call in slow:
                    assert "error" in call.result(20), "a call whose service is dead has no result"
                assert time.monotonic() - began < 4, "the callers were told late"
                doomed.process.wait(10)
                # While a process ends its port may still take a connection. From now on it is skipped: every further
                # call is answered by the one that lives.
                for name in clients.values():
                    outcomes = [callers.act(name, role=role, cmd="sum", a=n, b=1) for n in range(6)]
                    assert [outcome.result or outcome for outcome in outcomes] == [{"sum": n + 1} for n in range(6)]
    hosts.close_instance(role)


def test_a_python_service_killed_in_the_middle_of_calls_costs_those_calls_and_no_other(
    server: Server, clients: dict[str, str], callers: NodePeers
) -> None:
    role = fresh_word()
    command = [sys.executable, "-m", "tests.rigs.seneca_math", role, bus_url(server), console_url(server)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as doomed,
        connect(bus_url(server), wire="seneca", console=console_url(server)) as bus,
    ):
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == b"ready\n"
        since = journal_end(server)
        slow = [callers.start_act(name, role=role, cmd="slow", ms=30_000) for name in clients.values()]
        wait_for_rows(server, 3, since, topic=f"{role}.slow", kind="request")
        with bus.host(math_service(role)):
            doomed.kill()
            for call in slow:
                assert "error" in call.result(20), "a call whose service is dead has no result"
            doomed.wait(10)
            for name in clients.values():
                outcomes = [callers.act(name, role=role, cmd="sum", a=n, b=1) for n in range(6)]
                assert [outcome.result or outcome for outcome in outcomes] == [{"sum": n + 1} for n in range(6)]


def test_a_service_that_comes_back_is_called_again(
    server: Server, clients: dict[str, str], callers: NodePeers, hosts: NodePeers
) -> None:
    role, port = fresh_word(), free_port_base()
    with attached(server, f"role:{role},cmd:*", place("W", port), "W"):
        assert callers.act(clients["W"], role=role, cmd="sum", a=1, b=1).error is not None
        hosts.listen(role, "W", port, role=role)
        outcome = wait_until(
            lambda: callers.act(clients["W"], role=role, cmd="sum", a=1, b=1).result, 10, "an answer of the service"
        )
        assert outcome == {"sum": 2}
    hosts.close_instance(role)


def test_calls_go_to_services_of_one_pin_in_turn(
    server: Server, clients: dict[str, str], callers: NodePeers, hosts: NodePeers
) -> None:
    role, base = fresh_word(), free_port_base()
    with ExitStack() as stack:
        for number, kind in enumerate(DIALECTS):
            hosts.listen(f"{role}{kind}", kind, base + number, role=role)
            stack.enter_context(attached(server, f"role:{role},cmd:*", place(kind, base + number), kind))
        for number in range(9):
            assert callers.act(clients["W"], role=role, cmd="sum", a=number, b=0).result == {"sum": number}
        assert [len(hosts.kept(f"{role}{kind}")) for kind in DIALECTS] == [3, 3, 3]
        # A message that nobody has to answer goes to every one of them.
        callers.post(clients["W"], role=role, cmd="echo", data="all")
        for kind in DIALECTS:
            wait_until(lambda kind=kind: len(hosts.kept(f"{role}{kind}")) == 4, 10, f"the message at {kind}")  # type: ignore[misc]
    for kind in DIALECTS:
        hosts.close_instance(f"{role}{kind}")


def test_the_dialect_of_a_service_is_found_out(
    server: Server, clients: dict[str, str], callers: NodePeers, hosts: NodePeers
) -> None:
    base = free_port_base()
    for number, kind in enumerate(DIALECTS):
        role = fresh_word()
        hosts.listen(role, kind, base + number, role=role)
        with attached(server, f"role:{role},cmd:*", place(kind, base + number)):
            assert callers.act(clients["W"], role=role, cmd="sum", a=1, b=2).result == {"sum": 3}
            error = callers.act(clients["W"], role=role, cmd="div", a=1, b=0).error
            assert error is not None
            assert error["code"] == "div_zero"
            assert callers.act(clients["W"], role=role, cmd="nothing").error is None
        hosts.close_instance(role)


# ---- the journal ----------------------------------------------------------------------------------------------------


def test_every_call_and_answer_is_in_the_journal_with_its_hop(pair: Pair, server: Server) -> None:
    word, began, since = fresh_word(), now_ms(), journal_end(server)
    assert pair.act("echo", data=word).result == {"data": word}
    (request,) = wait_for_rows(server, 1, since, topic=f"{pair.host.role}.echo", kind="request")
    (answer,) = wait_for_rows(server, 1, since, answers=request["sequence"])
    assert (request["wire"], answer["wire"], answer["kind"]) == ("seneca", "seneca", "response")
    assert json.loads(request["payload"]) == {"role": pair.host.role, "cmd": "echo", "data": word}
    assert json.loads(answer["payload"]) == {"data": word}
    assert answer["message_id"] == request["message_id"]
    assert answer["correlation_id"] == request["correlation_id"]
    (hop,) = [hop for hop in answer["hops"] if hop["mid"] == request["message_id"]]
    assert hop["sid"] == request["producer"]
    assert hop["rid"]
    assert len(hop["tms"]) == 3
    assert began <= hop["tms"][1] <= hop["tms"][2] <= now_ms()
    if pair.caller == "W":
        assert hop["tms"][0] is not None


def test_an_asynchronous_message_is_a_publish(
    server: Server, clients: dict[str, str], callers: NodePeers, services: dict[str, Host]
) -> None:
    for dialect in ("W", "T"):
        word, since = fresh_word(), journal_end(server)
        callers.post(clients[dialect], role="mathW", cmd="echo", data=word)
        (row,) = wait_for_rows(server, 1, since, kind="publish")
        assert json.loads(row["payload"])["data"] == word


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_chain_of_real_services_is_one_flow(
    kind: Dialect, server: Server, clients: dict[str, str], callers: NodePeers, hosts: NodePeers
) -> None:
    """A calls B, and B calls C while it works, both through the bus."""
    word, base, since = fresh_word(), free_port_base(), journal_end(server)
    port = server.port("seneca_tcp" if kind == "T" else "seneca")
    far = {f"role:{word},cmd:inner": {"y": 1}}
    near = {f"role:{word},cmd:outer": {"ask": {"role": word, "cmd": "inner"}, "result": {"x": 2}}}
    through = {"dialect": kind, "port": port, "pin": f"role:{word},cmd:inner"}
    hosts.listen(f"C{word}", kind, base, extra=far)
    hosts.listen(f"B{word}", kind, base + 1, extra=near, clients=[through])
    with (
        attached(server, f"role:{word},cmd:inner", place(kind, base), kind),
        attached(server, f"role:{word},cmd:outer", place(kind, base + 1), kind),
    ):
        outcome = callers.act(clients[kind], role=word, cmd="outer", **{"custom$": {"tenant": "t1"}})
        assert outcome.result == {"x": 2, "inner": {"y": 1}}
        (at_b,), (at_c,) = hosts.kept(f"B{word}"), hosts.kept(f"C{word}")
        assert at_b.cid == at_c.cid
        assert at_b.mid != at_c.mid
        assert at_b.custom == at_c.custom == {"tenant": "t1"}
        flow = wait_for_rows(server, 4, since, correlation_id=at_b.cid)
    assert sorted((row["kind"], row["message_id"]) for row in flow) == sorted(
        [("request", at_b.mid), ("response", at_b.mid), ("request", at_c.mid), ("response", at_c.mid)]
    )
    if kind == "W":
        # Only this dialect tells who called the caller.
        (inner,) = [row for row in flow if row["kind"] == "request" and row["message_id"] == at_c.mid]
        assert inner["parent_id"] == at_b.mid
    for name in (f"B{word}", f"C{word}"):
        hosts.close_instance(name)


def test_five_megabytes_pass_both_ways(
    server: Server, clients: dict[str, str], callers: NodePeers, services: dict[str, Host]
) -> None:
    data = "0123456789" * 500_000
    for dialect in DIALECTS:
        outcome = callers.act(clients[dialect], role=services[dialect].role, cmd="echo", data=data)
        assert outcome.error is None
        assert outcome.result["data"] == data


# ---- the packages ---------------------------------------------------------------------------------------------------


def test_the_lock_file_has_exact_versions_and_hashes_and_no_addresses() -> None:
    lock = json.loads((PACKAGES / "package-lock.json").read_text("utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages["node_modules/seneca"]["version"] == "3.38.0"
    assert [name for name, package in packages.items() if not package.get("integrity", "").startswith("sha512-")] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
