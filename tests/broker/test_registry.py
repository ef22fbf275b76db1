from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.registry import KEPT_READ, LARGE
from raceway.broker.schemas import Schemas
from raceway.errors import (
    BusyError,
    ReadOnlyError,
    SchemaIncompatibleError,
    SchemaInvalidError,
    SchemaReferenceError,
    UnknownSchemaError,
)
from raceway.schema.reading import read_definition
from tests.doubles import Bench

V1 = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}).encode()
V2 = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}).encode()
OTHER = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}).encode()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def restarted(bench: Bench) -> Broker:
    """Another broker over what the journal kept."""
    bench.loop.settle()
    return Broker(config.Broker(linger_ms=0), bench.journal, bench.loop, bench.clock_us)


def register(bench: Bench, subject: str, definition: bytes = V1, **notes: Any) -> tuple[int, int, bool]:
    version, is_new = bench.broker.schemas.register(subject, "json_schema", definition, **notes)
    return version.schema_id, version.version, is_new


def test_a_subject_has_one_id_and_versions_from_one_on(bench: Bench) -> None:
    assert register(bench, "orders") == (1, 1, True)
    assert register(bench, "orders", V2) == (1, 2, True)
    assert register(bench, "users") == (2, 1, True)


def test_every_version_has_a_number_of_its_own_in_the_rest_form(bench: Bench) -> None:
    for subject, definition in (("orders", V1), ("orders", V2), ("users", V1)):
        register(bench, subject, definition)
    found = [bench.broker.schemas.maybe_registered(number) for number in (1, 2, 3, 4)]
    assert [each and (each.subject, each.version) for each in found] == [
        ("orders", 1),
        ("orders", 2),
        ("users", 1),
        None,
    ]


def test_the_same_schema_is_not_registered_again(bench: Bench) -> None:
    register(bench, "orders")
    register(bench, "orders", V2)
    laid_out = json.dumps(json.loads(V1), indent=4).encode()
    assert register(bench, "orders", laid_out) == (1, 1, False)


def test_everything_about_a_version_is_kept_and_the_definition_unchanged(bench: Bench) -> None:
    text = b'{ "type":  "string" }'
    register(bench, "s", text, description="first", created_by="ada", tags=("x", "y"))
    found = bench.broker.schemas.latest("s")
    assert (found.definition, found.description, found.created_by, found.tags) == (text, "first", "ada", ("x", "y"))
    assert found.created_at_ms == bench.clock_us() // 1000
    assert found.fingerprint.startswith("sha256:")


def test_the_latest_version_decides_what_may_follow(bench: Bench) -> None:
    register(bench, "orders")
    with pytest.raises(SchemaIncompatibleError) as refused:
        register(bench, "orders", OTHER)
    assert (refused.value.version, refused.value.mode) == (1, "backward")
    bench.broker.schemas.set_mode("orders", "NONE")
    assert register(bench, "orders", OTHER) == (1, 2, True)


def test_a_deleted_version_is_gone_and_its_number_is_not_used_again(bench: Bench) -> None:
    register(bench, "orders")
    register(bench, "orders", V2)
    bench.broker.schemas.delete_version("orders", 2)
    assert bench.broker.schemas.latest("orders").version == 1
    assert bench.broker.schemas.maybe_registered(2) is None
    with pytest.raises(UnknownSchemaError):
        bench.broker.schemas.find("orders", 2)
    assert register(bench, "orders", V2) == (1, 3, True)
    assert bench.broker.schemas.latest("orders").registry_id == 3


def test_without_versions_a_subject_is_unknown_but_its_id_stays_taken(bench: Bench) -> None:
    register(bench, "orders")
    bench.broker.schemas.delete_version("orders", 1)
    asked: list[Callable[[Schemas], Any]] = [
        lambda s: s.latest("orders"), lambda s: s.versions("orders"), lambda s: s.get(1)
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(UnknownSchemaError):
            ask(bench.broker.schemas)
    assert bench.broker.schemas.subjects() == []
    assert register(bench, "users") == (2, 1, True)
    assert register(bench, "orders") == (1, 2, True)


def test_a_check_changes_nothing(bench: Bench) -> None:
    register(bench, "orders")
    assert bench.broker.schemas.check("orders", "json_schema", V2) == []
    assert bench.broker.schemas.check("orders", "json_schema", OTHER)
    assert bench.broker.schemas.check("orders", "json_schema", OTHER, "none") == []
    assert [each.version for each in bench.broker.schemas.versions("orders")] == [1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.latest("x"), lambda s: s.get(9), lambda s: s.versions("x"), lambda s: s.find("x", 1),
        lambda s: s.check("x", "json", b"{}"), lambda s: s.set_mode("x", "full"), lambda s: s.delete_version("x", 1),
    ],
)  # fmt: skip
def test_what_nobody_registered_is_not_found(bench: Bench, ask: Any) -> None:
    with pytest.raises(UnknownSchemaError):
        ask(bench.broker.schemas)


@pytest.mark.parametrize(
    ("subject", "schema_type", "definition"),
    [("", "json", b"{}"), ("x" * 256, "json", b"{}"), ("a\nb", "json", b"{}"), ("s", "xml", b"{}"),
     ("s", "json", b"nope"), ("s", "json", b"[" + b"1," * 600_000 + b"1]")],
)  # fmt: skip
def test_what_cannot_be_a_schema_is_refused(bench: Bench, subject: str, schema_type: str, definition: bytes) -> None:
    with pytest.raises(SchemaInvalidError):
        bench.broker.schemas.register(subject, schema_type, definition)
    assert bench.broker.schemas.subjects() == []


def test_all_definitions_together_are_bounded() -> None:
    bench = Bench(schemas=config.Schemas(total_bytes=10 * len(V1) + 20_000))
    register(bench, "a", V1 + b" " * 10_000)
    register(bench, "b")
    with pytest.raises(BusyError):
        register(bench, "c", V1 + b" " * 10_000)
    bench.broker.schemas.delete_version("a", 1)
    assert register(bench, "c", V1 + b" " * 10_000)[2]


@pytest.mark.parametrize("add", [
    lambda s, name: s.register(name, "string", b""), lambda s, name: s.prepare_mode(name, "full"),
])  # fmt: skip
def test_what_is_next_to_nothing_is_bounded_too(add: Any) -> None:
    bench = Bench(schemas=config.Schemas(total_bytes=100_000))
    numbers = iter(range(1000))

    def add_all() -> None:
        for number in numbers:
            add(bench.broker.schemas, f"s{number}")

    with pytest.raises(BusyError):
        add_all()
    assert next(numbers) < 250


def test_registering_and_deleting_again_and_again_grows_nothing() -> None:
    bench = Bench(schemas=config.Schemas(total_bytes=100_000))
    for _ in range(2000):
        version = register(bench, "a")[1]
        bench.broker.schemas.delete_version("a", version)
    assert register(bench, "a") == (1, 2001, True)
    assert len(bench.broker.schemas.deleted("a")) <= 1000


def test_a_refused_registration_uses_no_number(bench: Bench) -> None:
    register(bench, "orders")
    for definition in (OTHER, b"nope"):
        with pytest.raises((SchemaIncompatibleError, SchemaInvalidError)):
            register(bench, "orders", definition)
    assert register(bench, "orders", V2) == (1, 2, True)
    assert bench.broker.schemas.latest("orders").registry_id == 2


def test_a_journal_that_takes_nothing_leaves_everything_as_it_was(bench: Bench) -> None:
    register(bench, "orders")
    bench.journal.refuse_writes()
    changes: list[Callable[[Schemas], Any]] = [
        lambda s: s.register("orders", "json", V2),
        lambda s: s.register("new", "json", V1),
        lambda s: s.delete_version("orders", 1),
        lambda s: s.set_mode("orders", "full"),
        lambda s: s.set_default_mode("full"),
    ]
    for change in changes:
        with pytest.raises(ReadOnlyError):
            change(bench.broker.schemas)
    bench.journal.take_writes()
    assert bench.broker.schemas.latest("orders").version == 1
    assert bench.broker.schemas.mode("orders") == "backward"
    assert register(bench, "new") == (2, 1, True)


def test_everything_survives_a_restart(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "orders", description="first", tags=("x",))
    register(bench, "orders", V2)
    register(bench, "gone")
    schemas.register("raw", "bytes", b"\xff\x00")
    schemas.delete_version("gone", 1)
    schemas.set_mode("orders", "full")
    schemas.set_default_mode("forward")
    topic = bench.broker.topics.spelled(b"Orders", folds_case=False)
    schemas.configure(topic, "orders", "enforce", True)
    again = restarted(bench).schemas
    assert again.versions("orders") == schemas.versions("orders")
    assert again.subjects() == schemas.subjects()
    assert again.latest("raw").definition == b"\xff\x00"
    assert (again.mode("orders"), again.mode("raw"), again.default_mode) == ("full", "forward", "forward")
    with pytest.raises(UnknownSchemaError):
        again.latest("gone")
    fresh, _ = again.register("fresh", "string", b"")
    assert (fresh.schema_id, fresh.registry_id) == (4, 5)
    back, _ = again.register("gone", "json", V1)
    assert (back.schema_id, back.version) == (2, 2)


def test_bindings_survive_a_restart_and_hold_at_once(bench: Bench) -> None:
    register(bench, "orders")
    topic = bench.broker.topics.spelled(b"Orders", folds_case=False)
    bench.broker.schemas.configure(topic, "orders", "enforce", True)
    broker = restarted(bench)
    found = broker.topics.maybe_exact("Orders")
    assert found is not None
    assert found.contract is not None
    assert broker.schemas.topic_schema(found) == bench.broker.schemas.topic_schema(topic)


# ---- topics ---------------------------------------------------------------------------------------------------------


def test_the_first_producer_binds_and_another_subject_is_refused(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "orders")
    register(bench, "users")
    schemas.check_reference(None, "orders")
    topic = bench.broker.topics.spelled(b"t", folds_case=False)
    schemas.check_reference(topic, "orders")
    schemas.bind(topic, "orders")
    schemas.bind(topic, "users")
    assert schemas.topic_schema(topic).subject == "orders"
    assert schemas.topic_schema(topic).policy == "none"
    assert topic.contract is None
    with pytest.raises(SchemaReferenceError):
        schemas.check_reference(topic, "users")
    schemas.configure(topic, "users", "warn", False)
    schemas.check_reference(topic, "users")


@pytest.mark.parametrize(
    ("subject", "wanted"), [("nobody", {}), ("orders", {"version": 2}), ("orders", {"min_version": 2})]
)
def test_a_reference_to_what_is_not_there_is_refused(bench: Bench, subject: str, wanted: dict[str, int]) -> None:
    register(bench, "orders")
    bench.broker.schemas.check_reference(None, "orders", version=1, min_version=1)
    with pytest.raises(SchemaReferenceError):
        bench.broker.schemas.check_reference(None, subject, **wanted)


def test_a_policy_wants_a_subject(bench: Bench) -> None:
    topic = bench.broker.topics.spelled(b"t", folds_case=False)
    with pytest.raises(SchemaReferenceError):
        bench.broker.schemas.update_policy(topic, "warn", True)
    with pytest.raises(UnknownSchemaError):
        bench.broker.schemas.configure(topic, "nobody", "warn", True)
    with pytest.raises(SchemaInvalidError):
        bench.broker.schemas.configure(topic, None, "strict", True)
    register(bench, "orders")
    bench.broker.schemas.configure(topic, "orders", "none", False)
    bench.broker.schemas.update_policy(topic, "Enforce", True)
    found = bench.broker.schemas.topic_schema(topic)
    assert (found.policy, found.validate_payload, found.schema_id) == ("enforce", True, 1)


def test_a_forgotten_topic_has_no_contract_any_more(bench: Bench) -> None:
    register(bench, "orders")
    topic = bench.broker.topics.spelled(b"t", folds_case=False)
    bench.broker.schemas.configure(topic, "orders", "enforce", True)
    bench.broker.schemas.forget(topic)
    assert topic.contract is None
    assert restarted(bench).schemas.topic_schema(topic).subject is None


# ---- large definitions -----------------------------------------------------------------------------------------------


def large(size: int) -> bytes:
    return json.dumps({"type": "object", "description": "x" * size}).encode()


def test_a_large_definition_is_read_by_a_thread_and_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def read(schema_type: Any, definition: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return read_definition(schema_type, definition)

    monkeypatch.setattr("raceway.broker.registry.read_definition", read)
    schemas, definition = bench.broker.schemas, large(LARGE)
    reading = schemas.maybe_read_aside("json_schema", definition)
    assert reading is not None
    reading.result(10)
    assert register(bench, "orders", definition) == (1, 1, True)
    assert [name.partition("_")[0] for name in threads] == ["raceway-schemas"]
    assert register(bench, "orders", definition) == (1, 1, False), "what was read aside is for one call"
    assert threads[1:] == [threading.current_thread().name]


def test_what_is_wrong_with_a_large_definition_is_told_to_who_registers_it(bench: Bench) -> None:
    definition = large(LARGE)[:-1]
    reading = bench.broker.schemas.maybe_read_aside("json_schema", definition)
    assert reading is not None
    assert reading.result(10) is None
    with pytest.raises(SchemaInvalidError):
        register(bench, "orders", definition)


@pytest.mark.parametrize("size", [0, config.Schemas().definition_bytes])
def test_small_and_too_large_definitions_occupy_no_thread(bench: Bench, size: int) -> None:
    assert bench.broker.schemas.maybe_read_aside("json_schema", large(size)) is None


def test_what_nobody_asks_for_is_forgotten(bench: Bench) -> None:
    schemas = bench.broker.schemas
    for number in range(KEPT_READ + 1):
        reading = schemas.maybe_read_aside("json_schema", large(LARGE + number))
        assert reading is not None
        reading.result(10)
    assert len(schemas._read_aside) == 1
