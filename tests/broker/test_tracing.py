from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.tracing import PREFIX_LENGTH, Chains, answer_hop, answer_hops, mint_batch
from raceway.model.envelope import Batch, Hop, decode_hops
from tests.rigs.doubles import Message, batch_of, new_id

UUID4 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def unmasked(chains: Chains, *messages: Message) -> list[tuple[bytes | None, bytes | None]]:
    """(parent, root) of each message, named as they are."""
    batch = batch_of(b"publish", *messages)
    chains.unmask_parents(batch)
    return [(batch.item("parent_id", row), batch.item("correlation_id", row)) for row in range(batch.count)]


def test_many_messages_are_remembered_as_each_is_and_the_oldest_are_forgotten() -> None:
    chains = Chains(kept_rows=2)
    for number in range(3):
        chains.remember_all({b"m%d" % number: (b"r%d" % number, b"root")})
    assert [chains.unmask(b"m%d" % number) for number in range(3)] == [
        (b"m0", b"m0"),
        (b"r1", b"root"),
        (b"r2", b"root"),
    ]


# ---- ids -------------------------------------------------------------------------------------------------------------


def test_ids_of_a_batch_are_uuids_of_version_4_that_differ_in_their_end_only() -> None:
    ids = mint_batch(5000)
    assert all(UUID4.fullmatch(one) for one in ids)
    assert len(set(ids)) == 5000
    assert len({one[:PREFIX_LENGTH] for one in ids}) == 1
    assert [int(one[PREFIX_LENGTH:], 16) for one in ids] == list(range(5000))
    assert mint_batch(1)[0] != ids[0]


def test_the_hop_of_an_answer_says_who_and_when_in_milliseconds() -> None:
    (hop,) = decode_hops(answer_hop("asker", "answerer", b"id", (1_000_999, 1_001_000, 2_500_000)))
    assert hop == Hop(sid="asker", rid="answerer", mid="id", tms=(1000, 1001, 2500))


@given(
    st.lists(st.tuples(st.sampled_from(["a", '"mid":"id"', "ü\\"]), st.integers(0, 9), st.integers(0, 9)), min_size=1),
    st.text("ab-9", min_size=1) | st.text(min_size=1, max_size=3),
)
def test_hops_of_many_answers_are_those_of_each(legs: list[tuple[str, int, int]], text: str) -> None:
    legs = [(sid, 1000 * accepted, 1000 * handed) for sid, accepted, handed in legs]
    ids = [f"{text}{row}".encode() for row in range(len(legs))]
    each = [
        answer_hop(sid, 'to "id"', one, (accepted, handed, max(5000, handed)))
        for (sid, accepted, handed), one in zip(legs, ids, strict=True)
    ]
    assert answer_hops(legs, 'to "id"', ids, 5000) == each


# ---- parents ---------------------------------------------------------------------------------------------------------


def test_an_id_never_seen_is_its_own_parent_and_root() -> None:
    assert Chains().unmask(b"x") == (b"x", b"x")


def test_a_masked_id_leads_to_the_request_and_its_root() -> None:
    chains = Chains()
    chains.remember(b"masked", b"request", b"root")
    assert chains.unmask(b"masked") == (b"request", b"root")
    assert chains.unmask(b"MASKED") == (b"request", b"root"), "ids are compared without regard to case"


def test_each_row_of_a_batch_is_found_by_its_masked_id() -> None:
    chains, masked = Chains(), mint_batch(3)
    chains.remember_batch(masked, [b"a", b"b", b"c"], [None, b"root", None])
    assert [chains.unmask(one) for one in masked] == [(b"a", b"a"), (b"b", b"root"), (b"c", b"c")]
    assert chains.unmask(masked[1].upper()) == (b"b", b"root")


def test_an_id_that_only_begins_like_a_batch_is_unknown() -> None:
    chains, masked = Chains(), mint_batch(2)
    chains.remember_batch(masked, [b"a", b"b"], None)
    for row in (b"000000000002", b"00000000ffff", b"ffffffffffff", b"-00000000001", b"no number", b""):
        beyond = masked[0][:PREFIX_LENGTH] + row
        assert chains.unmask(beyond) == (beyond, beyond)


def test_parents_of_a_batch_are_unmasked_where_there_are_any() -> None:
    chains = Chains()
    chains.remember(b"masked", b"request", b"root")
    rows = unmasked(chains, Message(parent=b"masked"), Message(), Message(parent=b"stranger"))
    assert rows == [(b"request", b"root"), (None, None), (b"stranger", b"stranger")]


def test_a_batch_without_parents_is_left_alone() -> None:
    batch = batch_of(b"publish", Message(id=b"x"))
    Chains().unmask_parents(batch)
    assert (batch.parent_id, batch.correlation_id) == (None, None)


def test_a_sender_may_name_an_id_it_gave_itself() -> None:
    chains = Chains()
    chains.remember(b"masked", b"request", b"root")
    assert unmasked(chains, Message(id=b"Mine", parent=b"masked")) == [(b"request", b"root")]
    assert unmasked(chains, Message(id=b"next", parent=b"mine")) == [(b"Mine", b"root")]
    assert unmasked(chains, Message(parent=b"next")) == [(b"next", b"root")]


def test_how_messages_fall_into_reads_does_not_change_the_chain() -> None:
    ids = [new_id() for _ in range(6)]
    messages = [Message(id=ids[n + 1], parent=ids[n]) for n in range(5)]
    together = unmasked(Chains(), *messages)
    chains = Chains()
    assert [row for message in messages for row in unmasked(chains, message)] == together
    assert together == [(ids[n], ids[0]) for n in range(5)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_every_message_of_a_chain_has_its_first_ones_id_as_root(joins: list[int], data: st.DataObject) -> None:
    """Messages that each name any earlier one, by its own id or by the masked id it was delivered under."""
    chains = Chains()
    known: list[tuple[bytes, bytes, bytes]] = []  # (own id, masked id, root)
    for join in joins:
        message_id = new_id()
        parent = known[join % len(known)] if known and join else None
        named = parent and data.draw(st.sampled_from([parent[0], parent[1], parent[1].upper()]))
        ((_, root),) = unmasked(chains, Message(id=message_id, parent=named))
        expected = parent[2] if parent else None
        assert root == expected
        (masked,) = mint_batch(1)
        chains.remember_batch([masked], [message_id], [root])
        known.append((message_id, masked, expected or message_id))


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_bounded_the_oldest_goes() -> None:
    chains = Chains(kept_rows=10)
    for number in range(100):
        chains.remember(b"m%d" % number, b"r%d" % number, b"root")
    assert chains.unmask(b"m99") == (b"r99", b"root")
    assert chains.unmask(b"m90") == (b"r90", b"root")
    assert chains.unmask(b"m89") == (b"m89", b"m89")
    assert len(chains._single) == 10


def test_batches_are_bounded_by_their_rows_the_newest_stays_whatever_its_size() -> None:
    chains = Chains(kept_rows=10)
    minted = [mint_batch(4) for _ in range(5)]
    for masked in minted:
        chains.remember_batch(masked, list(masked), None)
    assert len(chains._batches) == 3, "as many as hold ten rows"
    large = mint_batch(50)
    chains.remember_batch(large, [b"x"] * 50, None)
    assert len(chains._batches) == 1
    assert chains.unmask(large[49]) == (b"x", b"x")


def test_own_ids_that_are_remembered_are_bounded_too() -> None:
    chains = Chains(kept_rows=10)
    batch: Batch = batch_of(b"publish", *(Message(id=b"%d" % n, parent=b"p") for n in range(50)))
    chains.unmask_parents(batch)
    assert len(chains._single) == 10


def test_a_root_that_the_sender_names_itself_is_believed() -> None:
    chains = Chains()
    chains.remember(b"masked", b"parent", b"another-root")
    batch = Batch(2, parent_id=[b"masked", None], correlation_id=[b"c1", b"c2"], message_id=[b"m1", b"m2"])
    chains.unmask_parents(batch)
    assert (batch.parent_id, batch.correlation_id) == ([b"parent", None], [b"c1", b"c2"])
    assert chains.unmask(b"m1") == (b"m1", b"c1"), "and is the root of what it causes"


def test_whoever_names_a_message_that_says_its_chain_itself_belongs_to_it() -> None:
    """Wires that hand on a message's own id: its sender named the root, and no parent."""
    chains = Chains()
    batch = batch_of(b"publish", Message(id=b"Own"), Message(id=b"alone"))
    batch.correlation_id = [b"root", None]
    chains.unmask_parents(batch)
    assert unmasked(chains, Message(parent=b"own"), Message(parent=b"alone")) == [
        (b"Own", b"root"),
        (b"alone", b"alone"),
    ]
