from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.broker import topics
from raceway.broker.topics import Topic, TopicTable
from raceway.errors import BusyError, NameInvalidError, NameReservedError, NameTakenError, RacewayError


def table(*names: str, limit: int = 1000) -> TopicTable:
    return TopicTable(names, limit)


def test_a_wire_that_disregards_case_makes_lower_case_names() -> None:
    topic = table().spelled(b"Orders.Created", folds_case=True)
    assert (topic.name, topic.encoded, topic.folded) == ("orders.created", b"orders.created", "orders.created")


def test_an_exact_wire_keeps_its_own_spelling() -> None:
    assert table().spelled(b"Orders.Created", folds_case=False).name == "Orders.Created"


def test_a_topic_keeps_the_spelling_of_its_first_user() -> None:
    names = table()
    first = names.spelled(b"Orders", folds_case=False)
    assert names.spelled(b"orders", folds_case=True) is first
    assert names.spelled(b"ORDERS", folds_case=True) is first
    assert [topic.name for topic in names] == ["Orders"]


def test_an_exact_wire_is_refused_a_name_that_differs_only_in_case() -> None:
    names = table()
    names.spelled(b"Orders", folds_case=False)
    with pytest.raises(NameTakenError) as caught:
        names.spelled(b"orders", folds_case=False)
    assert (caught.value.name, caught.value.existing) == ("orders", "Orders")
    assert len(names) == 1


def test_a_spelling_that_one_wire_may_use_does_not_open_it_to_an_exact_wire() -> None:
    """What MB looked up a moment ago is remembered; an exact wire must be refused all the same, each time."""
    names = table("Orders")
    names.spelled(b"ORDERS", folds_case=True)
    for _ in range(2):
        with pytest.raises(NameTakenError):
            names.spelled(b"ORDERS", folds_case=False)
        assert names.spelled(b"ORDERS", folds_case=True).name == "Orders"


def test_names_in_another_normal_form_are_the_same_topic() -> None:
    names = table()
    composed, decomposed = "Größe".encode(), "Gro\u0308ße".encode()
    first = names.spelled(composed, folds_case=False)
    assert first.name == "Größe"
    assert names.spelled(decomposed, folds_case=False) is first
    assert names.spelled(decomposed, folds_case=False) is first
    assert len(names) == 1


@pytest.mark.parametrize("sent", [b"system.message", b"System.Message", b"RACEWAY.rejected", b"raceway.x"])
@pytest.mark.parametrize("folds_case", [True, False])
def test_reserved_names_are_refused_and_not_made(sent: bytes, folds_case: bool) -> None:
    names = table()
    with pytest.raises(NameReservedError):
        names.spelled(sent, folds_case)
    assert len(names) == 0


def test_a_reserved_name_stays_refused_when_the_journal_has_rows_of_it() -> None:
    names = table("raceway.rejected")
    for _ in range(2):
        with pytest.raises(NameReservedError):
            names.spelled(b"raceway.rejected", folds_case=False)


@pytest.mark.parametrize("sent", [b"system", b"raceway", b"systems.x", b"a.system.b"])
def test_only_the_first_of_several_levels_is_reserved(sent: bytes) -> None:
    assert table().spelled(sent, folds_case=False).encoded == sent


@pytest.mark.parametrize("sent", [b"", b"a b", b"a/b", b"a.+", b"#", b"\xff\xfe", b"x" * 256])
def test_names_that_no_wire_can_spell_are_refused(sent: bytes) -> None:
    with pytest.raises(NameInvalidError):
        table().spelled(sent, folds_case=False)


def test_one_topic_too_many_is_refused_and_known_ones_still_work() -> None:
    names = table("a", limit=2)
    names.spelled(b"b", folds_case=True)
    with pytest.raises(BusyError, match=r"broker\.max_topics"):
        names.spelled(b"c", folds_case=True)
    assert names.spelled(b"a", folds_case=True).name == "a"
    assert names.spelled(b"B", folds_case=True).name == "b"
    assert len(names) == 2


def test_topics_of_the_journal_are_known_from_the_start() -> None:
    names = table("Orders", "other")
    found = names.maybe_get("oRDERS")
    assert found is not None
    assert found.name == "Orders"
    assert names.maybe_get("none") is None


@pytest.mark.parametrize(("sent", "folds_case"), [(b"Orders", True), (b"orders", True), (b"orders", False)])
def test_a_spelling_that_was_used_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, folds_case: bool
) -> None:
    names = table("orders")
    first = names.spelled(sent, folds_case)
    monkeypatch.setattr(topics, "canonical_name", None)
    assert names.spelled(sent, folds_case) is first


def test_remembered_spellings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "SPELLINGS", 4)
    names = table()
    for number in range(50):
        assert names.spelled(b"t%d" % number, folds_case=True).encoded == b"t%d" % number
    assert len(names._by_spelling) <= 4


spellings = st.sampled_from(["a", "A", "ab", "aB", "AB", "Ab", "é", "É", "e\u0301", "system.a", "System.a", "a b", ""])


@given(st.lists(st.tuples(spellings, st.booleans()), max_size=20))
def test_what_is_remembered_never_changes_the_answer(calls: list[tuple[str, bool]]) -> None:
    """The same calls on a table that remembers no spellings give the same topics and the same refusals."""
    quick, plain = table(limit=3), table(limit=3)
    for text, folds_case in calls:
        plain._by_spelling.clear()
        assert outcome(quick, text, folds_case) == outcome(plain, text, folds_case)
    assert [topic.name for topic in quick] == [topic.name for topic in plain]


def outcome(names: TopicTable, text: str, folds_case: bool) -> str | type[RacewayError]:
    try:
        found: Topic = names.spelled(text.encode(), folds_case)
    except RacewayError as error:
        return type(error)
    return found.name


# ---- namespaces, aliases ---------------------------------------------------------------------------------------------


def test_a_topic_of_another_namespace_has_no_public_name_unless_an_alias_is_set() -> None:
    names = TopicTable((), 10, {"shop.orders": "/shop/orders"})
    assert names.named("/shop/orders").public == "shop.orders"
    assert names.named("/shop/other").public == ""
    assert names.named("plain").public == "plain"


def test_an_alias_leads_to_its_topic_on_every_wire() -> None:
    names = TopicTable((), 10, {"shop.orders": "/shop/orders"})
    for sent, folds_case in ((b"shop.orders", False), (b"Shop.Orders", True)):
        assert names.spelled(sent, folds_case).name == "/shop/orders"
    assert len(names) == 1


def test_other_wires_cannot_say_a_namespace() -> None:
    names = table("/shop/orders")
    with pytest.raises(NameInvalidError):
        names.spelled(b"/shop/orders", folds_case=False)


@pytest.mark.parametrize("name", ["system.x", "raceway.rejected", "/system/x", "/Raceway/x"])
def test_the_brokers_own_names_are_refused_whatever_the_namespace(name: str) -> None:
    with pytest.raises(NameReservedError):
        table().named(name)


def test_a_name_is_taken_in_every_case_within_its_namespace() -> None:
    names = table("/shop/Orders", "Plain")
    for name in ("/shop/orders", "/SHOP/Orders", "plain"):
        with pytest.raises(NameTakenError):
            names.named(name)
    assert names.named("/shop/Orders") is names.maybe_exact("/shop/Orders")
    names.named("Orders")


def test_a_forgotten_topic_is_made_anew() -> None:
    names = table()
    first = names.spelled(b"Orders", folds_case=False)
    names.forget(first)
    names.forget(first)
    assert names.maybe_get("orders") is None
    second = names.spelled(b"orders", folds_case=False)
    assert second is not first
    names.forget(first)
    assert names.maybe_exact("orders") is second, "another topic has the name now"


def test_a_topic_is_found_by_what_other_wires_call_it() -> None:
    names = TopicTable((), 10, {"shop.orders": "/shop/orders"})
    orders = names.named("/shop/orders")
    assert (orders.spoken, names.maybe_known_as("shop.orders")) == (b"shop.orders", orders)
    plain = names.named("plain")
    assert (plain.spoken, names.maybe_known_as("plain"), names.maybe_known_as("other")) == (b"plain", plain, None)
