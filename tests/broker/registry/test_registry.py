from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.registry.references import MAX_DEPTH
from raceway.broker.registry.registry import KEPT_READ, LARGE
from raceway.broker.registry.schemas import Schemas
from raceway.errors import (
    BusyError,
    ReadOnlyError,
    SchemaDeletionError,
    SchemaIncompatibleError,
    SchemaInUseError,
    SchemaInvalidError,
    SchemaReadOnlyError,
    SchemaReferenceError,
    UnknownSchemaError,
)
from raceway.model.intents.schemas import CheckSchema, RegisterSchema
from raceway.model.schemas import SchemaReference
from raceway.schema.reading import read_definition
from tests.rigs.doubles import Bench

V1 = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}).encode()
V2 = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}).encode()
OTHER = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}).encode()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def restarted(bench: Bench) -> Broker:
    """Another broker over what the journal kept."""
    bench.loop.settle()
    return Broker(config.BrokerSettings(linger_ms=0), bench.journal, bench.loop, bench.clock_us)


def register(bench: Bench, subject: str, definition: bytes = V1, **notes: Any) -> tuple[int, int, bool]:
    version, is_new = bench.broker.schemas.register(RegisterSchema(subject, "json_schema", definition, **notes))
    return version.schema_id, version.version, is_new


def test_a_subject_has_one_id_and_versions_from_one_on(bench: Bench) -> None:
    assert register(bench, "orders") == (1, 1, True)
    assert register(bench, "orders", V2) == (1, 2, True)
    assert register(bench, "users") == (2, 1, True)


def test_every_definition_has_one_number_in_the_rest_form(bench: Bench) -> None:
    for subject, definition in (("orders", V1), ("orders", V2), ("users", V1), ("users", OTHER)):
        bench.broker.schemas.prepare_mode(subject, "none")
        register(bench, subject, definition)
    found = [bench.broker.schemas.registered(number) for number in (1, 2, 3, 4)]
    assert [[(each.subject, each.version) for each in versions] for versions in found] == [
        [("orders", 1), ("users", 1)],
        [("orders", 2)],
        [("users", 2)],
        [],
    ]
    one = bench.broker.schemas.known.maybe_registered(1, "users")
    assert one is not None
    assert one.subject == "users"


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
    schemas = bench.broker.schemas
    schemas.delete_version("orders", 2)
    assert schemas.latest("orders").version == 1
    with pytest.raises(UnknownSchemaError):
        schemas.find("orders", 2)
    assert schemas.find("orders", 2, deleted=True).deleted
    assert [each.definition for each in schemas.registered(2, deleted=True)] == [V2]
    assert register(bench, "orders", V2) == (1, 3, True)
    assert schemas.latest("orders").registry_id == 2
    assert [each.version for each in schemas.versions("orders", deleted=True)] == [1, 3]


def test_deleting_for_good_frees_the_version_and_the_number_stays_taken(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "orders")
    register(bench, "orders", V2)
    with pytest.raises(SchemaDeletionError):
        schemas.delete_version("orders", 2, permanent=True)
    schemas.delete_version("orders", 2)
    with pytest.raises(SchemaDeletionError):
        schemas.delete_version("orders", 2)
    schemas.delete_version("orders", 2, permanent=True)
    assert schemas.known.maybe_registered(2) is None
    again = restarted(bench).schemas
    version, _ = again.register(RegisterSchema("orders", "json", V2))
    assert (version.version, version.registry_id) == (2, 3)


def test_a_subject_is_deleted_whole_with_what_was_set_for_it(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "orders")
    register(bench, "orders", V2)
    schemas.set_mode("orders", "full")
    assert schemas.delete_subject("orders") == [1, 2]
    assert schemas.own_mode("orders") is None
    assert [row.subject for row in schemas.subjects()] == []
    assert [(row.subject, row.deleted) for row in schemas.subjects(deleted=True)] == [("orders", True)]
    with pytest.raises(SchemaDeletionError):
        schemas.delete_subject("orders")
    assert schemas.delete_subject("orders", permanent=True) == [1, 2]
    with pytest.raises(UnknownSchemaError):
        schemas.delete_subject("orders", permanent=True)


def test_subjects_that_share_a_definition_are_kept_and_deleted_each_for_itself(bench: Bench) -> None:
    for subject in ("a", "b", "c"):
        register(bench, subject)
    schemas = bench.broker.schemas
    schemas.delete_subject("a")
    schemas.delete_subject("a", permanent=True)
    register(bench, "d")
    again = restarted(bench).schemas
    assert [each.subject for each in again.registered(1)] == ["b", "c", "d"]
    again.delete_subject("b")
    again.delete_subject("b", permanent=True)
    bench.loop.settle()
    assert [each.subject for each in restarted(bench).schemas.registered(1, deleted=True)] == ["c", "d"]


def test_journals_of_former_releases_have_two_numbers_for_one_definition_and_keep_them(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "orders")
    row = msgspec.to_builtins(schemas.latest("orders"))
    for key in ("references", "deleted"):
        del row[key]
    old = row | {"subject": "users", "schema_id": 2, "registry_id": 2}
    bench.broker.set_state("schemas", "1", row)
    bench.broker.set_state("schemas", "2", old)
    bench.broker.set_state("subjects", "users", {"schema_id": 2, "next_version": 2, "deleted": []})
    bench.broker.set_state("registry", "counters", {"schema_id": 2, "registry_id": 2})
    again = restarted(bench).schemas
    assert [[each.subject for each in again.registered(number)] for number in (1, 2)] == [["orders"], ["users"]]
    assert again.register(RegisterSchema("third", "json", V1))[0].registry_id == 1
    again.delete_version("users", 1)
    assert [each.subject for each in restarted(bench).schemas.registered(2, deleted=True)] == ["users"]


# ---- references -----------------------------------------------------------------------------------------------------


def ref(name: str, subject: str, version: int = 1) -> SchemaReference:
    return SchemaReference(name, subject, version)


def using(*names: str) -> bytes:
    return json.dumps({"type": "object", "properties": {name: {"$ref": name} for name in names}}).encode()


def test_a_definition_uses_others_and_those_cannot_be_deleted(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "leaf", b'{"type": "integer"}')
    register(bench, "middle", using("leaf.json"), references=(ref("leaf.json", "leaf"),))
    top, _ = schemas.register(
        RegisterSchema("top", "json", using("middle.json"), references=(ref("middle.json", "middle", -1),))
    )
    assert top.references == (ref("middle.json", "middle", 1),)
    for registry in (schemas, restarted(bench).schemas):
        check = registry.known.ready(registry.latest("top"))
        assert check.maybe_fault(b'{"middle.json": {"leaf.json": 1}}') is None
        assert check.maybe_fault(b'{"middle.json": {"leaf.json": "x"}}') is not None
        with pytest.raises(SchemaInUseError):
            registry.delete_version("leaf", 1)
    schemas.delete_subject("top")
    schemas.delete_subject("middle")
    with pytest.raises(SchemaInUseError):  # `top` is deleted, but what was written with it can still be read
        schemas.delete_subject("middle", permanent=True)
    assert schemas.known.ready(schemas.find("top", 1, deleted=True)).maybe_fault(b'{"middle.json": {"leaf.json": "x"}}')
    schemas.delete_subject("top", permanent=True)
    assert schemas.delete_subject("middle", permanent=True) == [1]


def test_references_are_part_of_what_a_definition_is(bench: Bench) -> None:
    register(bench, "a", b'{"type": "integer"}')
    register(bench, "b", b'{"type": "string"}')
    first, _ = bench.broker.schemas.register(RegisterSchema("s", "json", using("x"), references=(ref("x", "a"),)))
    same, is_new = bench.broker.schemas.register(RegisterSchema("s", "json", using("x"), references=(ref("x", "a"),)))
    assert (same.registry_id, is_new) == (first.registry_id, False)
    with pytest.raises(SchemaIncompatibleError):
        bench.broker.schemas.register(RegisterSchema("s", "json", using("x"), references=(ref("x", "b"),)))
    other, is_new = bench.broker.schemas.register(
        RegisterSchema("other", "json", using("x"), references=(ref("x", "b"),))
    )
    assert (other.registry_id != first.registry_id, is_new) == (True, True)


def test_a_version_that_deleted_ones_refer_to_comes_back_under_its_number(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "leaf")
    schemas.register(RegisterSchema("top", "json", using("x"), references=(ref("x", "leaf"),)))
    schemas.delete_subject("top")
    schemas.delete_subject("leaf")
    with pytest.raises(SchemaInvalidError):
        schemas.register(RegisterSchema("other", "json", using("x"), references=(ref("x", "leaf"),)))
    assert register(bench, "leaf") == (1, 1, True)


@pytest.mark.parametrize(
    ("references", "words"),
    [
        ((ref("x", "nobody"),), "not registered"),
        ((ref("x", "leaf", 9),), "not registered"),
        ((ref("x", "leaf"), ref("x", "leaf", 2)), "and version 2"),
        (tuple(ref(f"n{number}", "leaf") for number in range(300)), "exceed"),
    ],
)
def test_references_that_cannot_be_followed_are_refused(
    bench: Bench, references: tuple[SchemaReference, ...], words: str
) -> None:
    register(bench, "leaf")
    register(bench, "leaf", V2)
    with pytest.raises(SchemaInvalidError, match=words):
        bench.broker.schemas.register(RegisterSchema("s", "json", b"{}", references=references))


def test_how_far_references_lead_and_how_much_they_bring_along_is_bounded() -> None:
    bench = Bench(schemas=config.SchemaSettings(referenced_bytes=4000))
    register(bench, "s0", b'{"type": "integer"}')

    def add(number: int, size: int = 0) -> None:
        definition = using(f"n{number - 1}") + b" " * size
        register(bench, f"s{number}", definition, references=(ref(f"n{number - 1}", f"s{number - 1}"),))

    for number in range(1, MAX_DEPTH + 1):
        add(number)
    with pytest.raises(SchemaInvalidError, match="nested more than"):
        add(MAX_DEPTH + 1)
    register(bench, "large", b"{}" + b" " * 4000)
    with pytest.raises(SchemaInvalidError, match="referenced_bytes"):
        bench.broker.schemas.register(RegisterSchema("s", "json", using("l"), references=(ref("l", "large"),)))


# ---- levels and modes -----------------------------------------------------------------------------------------------


def test_a_transitive_mode_looks_at_every_version(bench: Bench) -> None:
    def members(**types: str) -> bytes:
        return json.dumps({"type": "object", "properties": {k: {"type": t} for k, t in types.items()}}).encode()

    schemas = bench.broker.schemas
    register(bench, "s", members(a="integer"))
    register(bench, "s", members())
    assert schemas.check(CheckSchema("s", "json", members(a="string"))) == []
    assert schemas.check(CheckSchema("s", "json", members(a="string"), mode="backward_transitive")) != []
    schemas.set_mode("s", "backward_transitive")
    with pytest.raises(SchemaIncompatibleError) as refused:
        register(bench, "s", members(a="string"))
    assert (refused.value.version, refused.value.mode) == (1, "backward_transitive")
    schemas.delete_version("s", 1)
    assert register(bench, "s", members(a="string"))[2]


def test_read_only_subjects_take_no_changes_and_can_be_read(bench: Bench) -> None:
    schemas = bench.broker.schemas
    register(bench, "s")
    schemas.set_access("s", "READONLY")
    again = restarted(bench).schemas
    for registry in (schemas, again):
        changes: list[Callable[[Schemas], Any]] = [
            lambda s: s.register(RegisterSchema("s", "json", V2)),
            lambda s: s.delete_version("s", 1), lambda s: s.delete_subject("s"),
            lambda s: s.set_mode("s", "full"),
        ]  # fmt: skip
        for change in changes:
            with pytest.raises(SchemaReadOnlyError):
                change(registry)
        assert registry.register(RegisterSchema("s", "json", V1))[1] is False
        assert registry.register(RegisterSchema("other", "json", V1))[1]
    schemas.set_access(None, "READONLY")
    with pytest.raises(SchemaReadOnlyError):
        schemas.register(RegisterSchema("third", "json", V1))
    schemas.set_access("s", "READWRITE")
    assert register(bench, "s", V2) == (1, 2, True)


@pytest.mark.parametrize("subject", [":.ctx:orders", ":.:orders"])
def test_names_of_other_contexts_are_refused(bench: Bench, subject: str) -> None:
    with pytest.raises(SchemaInvalidError, match="context"):
        register(bench, subject)


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
    assert bench.broker.schemas.check(CheckSchema("orders", "json_schema", V2)) == []
    assert bench.broker.schemas.check(CheckSchema("orders", "json_schema", OTHER))
    assert bench.broker.schemas.check(CheckSchema("orders", "json_schema", OTHER, mode="none")) == []
    assert [each.version for each in bench.broker.schemas.versions("orders")] == [1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.latest("x"), lambda s: s.get(9), lambda s: s.versions("x"), lambda s: s.find("x", 1),
        lambda s: s.check(CheckSchema("x", "json", b"{}")), lambda s: s.set_mode("x", "full"),
        lambda s: s.delete_version("x", 1),
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
        bench.broker.schemas.register(RegisterSchema(subject, schema_type, definition))
    assert bench.broker.schemas.subjects() == []


def test_all_definitions_together_are_bounded() -> None:
    bench = Bench(schemas=config.SchemaSettings(total_bytes=10 * len(V1) + 20_000))
    register(bench, "a", V1 + b" " * 10_000)
    register(bench, "b")
    with pytest.raises(BusyError):
        register(bench, "c", V1 + b" " * 10_000)
    bench.broker.schemas.delete_version("a", 1)
    with pytest.raises(BusyError):  # it can still be read
        register(bench, "c", V1 + b" " * 10_000)
    bench.broker.schemas.delete_version("a", 1, permanent=True)
    assert register(bench, "c", V1 + b" " * 10_000)[2]


@pytest.mark.parametrize("add", [
    lambda s, name: s.register(RegisterSchema(name, "string", b"")), lambda s, name: s.prepare_mode(name, "full"),
])  # fmt: skip
def test_what_is_next_to_nothing_is_bounded_too(add: Any) -> None:
    bench = Bench(schemas=config.SchemaSettings(total_bytes=100_000))
    numbers = iter(range(1000))

    def add_all() -> None:
        for number in numbers:
            add(bench.broker.schemas, f"s{number}")

    with pytest.raises(BusyError):
        add_all()
    assert next(numbers) < 250


def test_registering_and_deleting_again_and_again_grows_nothing() -> None:
    bench = Bench(schemas=config.SchemaSettings(total_bytes=100_000))
    for _ in range(2000):
        version = register(bench, "a")[1]
        bench.broker.schemas.delete_version("a", version)
    assert register(bench, "a") == (1, 2001, True)
    assert [each.version for each in bench.broker.schemas.versions("a", deleted=True)] == [2001]


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
        lambda s: s.register(RegisterSchema("orders", "json", V2)),
        lambda s: s.register(RegisterSchema("new", "json", V1)),
        lambda s: s.delete_version("orders", 1),
        lambda s: s.set_mode("orders", "full"),
        lambda s: s.prepare_mode(None, "full"),
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
    schemas.register(RegisterSchema("raw", "bytes", b"\xff\x00"))
    schemas.delete_version("gone", 1)
    schemas.set_mode("orders", "full")
    schemas.prepare_mode(None, "forward")
    topic = bench.broker.topics.spelled(b"Orders", folds_case=False)
    schemas.configure(topic, "orders", "enforce", True)
    again = restarted(bench).schemas
    assert again.versions("orders") == schemas.versions("orders")
    assert again.subjects() == schemas.subjects()
    assert again.latest("raw").definition == b"\xff\x00"
    assert (again.mode("orders"), again.mode("raw"), again.default_mode) == ("full", "forward", "forward")
    with pytest.raises(UnknownSchemaError):
        again.latest("gone")
    fresh, _ = again.register(RegisterSchema("fresh", "string", b""))
    assert (fresh.schema_id, fresh.registry_id) == (4, 4)
    back, _ = again.register(RegisterSchema("gone", "json", V1))
    assert (back.schema_id, back.version) == (2, 2)


def test_what_is_lost_with_a_file_is_restored_from_versions_or_does_not_matter(bench: Bench) -> None:
    register(bench, "orders")
    register(bench, "orders", V2)
    register(bench, "users", OTHER)
    bench.broker.schemas.configure(bench.broker.topics.own("t"), "orders", "enforce", True)
    for section in ("subjects", "registry"):
        for key in list(bench.journal.state.section(section)):
            bench.journal.set_state(section, key, None)
    schemas = restarted(bench).schemas
    assert schemas.latest("orders").version == 2
    assert schemas.topic_schema(bench.broker.topics.own("t")).schema_id == 1
    third, is_new = schemas.register(RegisterSchema("orders", "json_schema", V1.replace(b"a", b"c")))
    assert (third.schema_id, third.version, third.registry_id, is_new) == (1, 3, 4, True)


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

    def read(schema_type: Any, definition: bytes, references: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read_definition(schema_type, definition, references)

    monkeypatch.setattr("raceway.broker.registry.registry.read_definition", read)
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


@pytest.mark.parametrize("size", [0, config.SchemaSettings().definition_bytes])
def test_small_and_too_large_definitions_occupy_no_thread(bench: Bench, size: int) -> None:
    assert bench.broker.schemas.maybe_read_aside("json_schema", large(size)) is None


def test_what_nobody_asks_for_is_forgotten(bench: Bench) -> None:
    schemas = bench.broker.schemas
    for number in range(KEPT_READ + 1):
        reading = schemas.maybe_read_aside("json_schema", large(LARGE + number))
        assert reading is not None
        reading.result(10)
    assert len(schemas._read_aside) == 1
