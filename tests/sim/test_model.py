"""The model itself: each promise, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.messages import Broken, Message, Row
from tests.sim.model import Model
from tests.sim.receivers import Durable, Stream


class Told:
    """A model, and rows as the journal would have them."""

    def __init__(self) -> None:
        self.now = 1.0
        self.model = Model(lambda: self.now)
        self.rows: list[Row] = []

    def publish(self, topic: str = "t", *, acknowledged: bool = True, stored: bool = True) -> Message:
        self.now += 1
        message = self.model.send(topic, 1)
        if acknowledged:
            self.model.note(message, "acknowledged")
        if stored:
            offset = sum(row.topic == topic for row in self.rows)
            self.rows.append(Row(len(self.rows), topic, offset, "publish", message.payload, int(self.now)))
        return message

    def ask(self) -> Message:
        """A request that is stored and answered, and the answer is not stored yet."""
        message = self.model.send("r", 1, is_request=True)
        self.model.ask(message, "asker", self.now + 1)
        self.model.answer(message.token, f"answer:{message.token}")
        self._add("request", message.payload)
        return message

    def answer(self, request: Message, *, at: int | None = None, error: str | None = None) -> None:
        """A row that answers a request, or says that it answers the one at another position."""
        at = next(row.sequence for row in self.rows if row.payload == request.payload) if at is None else at
        self._add("response", request.payload, at, error)

    def _add(self, kind: str, payload: bytes, answers: int | None = None, error: str | None = None) -> None:
        offset = sum(row.topic == "r" for row in self.rows)
        self.rows.append(Row(len(self.rows), "r", offset, kind, payload, int(self.now), answers, error))

    def given(self, durable: Durable, order: tuple[int, ...]) -> None:
        """Messages of one key, given out in some order, each on a stream of its own."""
        messages = [self.publish() for _ in order]
        for offset in order:
            messages[offset].key = "k"
            durable.take(messages[offset].token, messages[offset].payload, offset, Stream(self.now))

    def check(self) -> None:
        self.model.check_journal(self.rows, 0, [])
        self.model.check_live()
        self.model.check_observers()
        self.model.check_asked()
        self.model.check_drained()


def lost(told: Told) -> None:
    told.publish(stored=False)


def stored_twice(told: Told) -> None:
    told.publish()
    told.rows.append(told.rows[0]._replace(sequence=1, offset=1))


def offset_left_out(told: Told) -> None:
    told.publish()
    told.publish()
    told.rows[1] = told.rows[1]._replace(offset=2)


def position_left_out(told: Told) -> None:
    told.publish()
    told.publish()
    told.rows[1] = told.rows[1]._replace(sequence=2)


def time_back(told: Told) -> None:
    told.publish()
    told.publish()
    told.rows[1] = told.rows[1]._replace(time_us=0)


def another_message_under_an_offset(told: Told) -> None:
    message = told.publish()
    told.check()
    told.rows[0] = told.rows[0]._replace(payload=told.publish(stored=False).payload)
    told.model.note(message, "stored")


def refused_and_stored(told: Told) -> None:
    told.model.note(told.publish(acknowledged=False), "refused")


def missed_by_a_subscriber(told: Told) -> None:
    told.model.add_live("reader", lambda message: True)
    told.publish()


def never_delivered(told: Told) -> None:
    told.model.add_durable("s on t", "t")
    told.publish()


def never_handed_out(told: Told) -> None:
    told.model.add_queue("t")
    told.publish()


def never_answered(told: Told) -> None:
    told.model.ask(told.model.send("r", 1, is_request=True), "asker", told.now + 1)
    told.now += 2


def accepted_before_an_earlier_one(told: Told) -> None:
    told.publish()
    told.publish()
    first, second = told.rows
    told.rows[:] = [first._replace(payload=second.payload), second._replace(payload=first.payload)]


def accepted_against_its_schema(told: Told) -> None:
    told.model.bound.add("t")
    for _ in range(3):
        told.publish()


def stored_against_its_schema(told: Told) -> None:
    told.model.bound.add("t")
    for _ in range(3):
        told.publish(acknowledged=False)


def a_dead_letter_twice(told: Told) -> None:
    told.model.letters["dead"] = "t"
    message = told.publish()
    for offset in range(2):
        told.rows.append(Row(len(told.rows), "dead", offset, "publish", message.payload, int(told.now)))


def a_dead_letter_of_nothing(told: Told) -> None:
    told.model.letters["dead"] = "t"
    payload = told.publish("elsewhere").payload
    told.rows.append(Row(len(told.rows), "dead", 0, "publish", payload, int(told.now)))


def neither_acknowledged_nor_given_again(told: Told) -> None:
    durable = told.model.add_durable("s on t", "t")
    message = told.publish()
    durable.take(message.token, message.payload, 0, durable.open_stream())


def another_order_on_a_stream(told: Told) -> None:
    durable = told.model.add_durable("s on t", "t")
    first, second = told.publish(), told.publish()
    stream = durable.open_stream()
    durable.take(second.token, second.payload, 1, stream)
    durable.take(first.token, first.payload, 0, stream)


def acknowledged_into_a_deleted_file(told: Told) -> None:
    told.model.note_gone()
    told.publish()


def a_key_before_what_came_first(told: Told) -> None:
    told.given(told.model.add_durable("s on t", "t", is_keyed=True), (1, 0))


def two_of_a_key_at_a_time(told: Told) -> None:
    told.given(told.model.add_durable("s on t", "t", is_keyed=True), (0, 1))


def stored_and_sent_by_nobody(told: Told) -> None:
    told.publish()
    told.rows[0] = told.rows[0]._replace(payload=b"{}")


def an_answer_that_is_not_stored(told: Told) -> None:
    told.ask()


def two_answers_to_a_request(told: Told) -> None:
    request = told.ask()
    told.answer(request)
    told.answer(request)


def an_answer_to_what_is_no_request(told: Told) -> None:
    told.publish()
    told.answer(told.ask(), at=0)


def an_answer_to_another_request(told: Told) -> None:
    told.ask()
    told.answer(told.ask(), at=0)


def never_told(told: Told) -> None:
    told.model.add_observer("service", "t", "http://127.0.0.1:1/act")
    told.publish()


def told_and_not_taken(told: Told) -> None:
    observer = told.model.add_observer("service", "t", "http://127.0.0.1:1/act")
    observer.take(told.publish().token, "a connection")


def told_in_another_order(told: Told) -> None:
    observer = told.model.add_observer("service", "t", "http://127.0.0.1:1/act")
    for message in reversed([told.publish(), told.publish()]):
        observer.take(message.token, "a connection")
        observer.taken.add(message.token)


def purged_and_handed_out_by_the_next_bus(told: Told) -> None:
    queue, message = told.model.add_queue("t"), told.publish()
    queue.begin_purge()
    queue.end_purge(told.now, is_done=True)
    queue.note_end("kill")
    queue.take(message.token, message.payload)


def sent_again_and_not_stored(told: Told) -> None:
    told.model.redrives += 1
    told.model.note_redriven(0)


def sent_again_by_nobody(told: Told) -> None:
    told.model.redriven_topic = "again"
    told.model.letters["again"] = "t"
    payload = told.publish().payload
    told.rows.append(Row(1, "again", 0, "publish", payload, int(told.now)))


def never_delivered_after_damage(told: Told) -> None:
    """It may be gone until it is confirmed again, and is not from then on."""
    told.model.add_durable("s on t", "t")
    told.model.note_damage()
    told.model.add_durable("s on t", "t")
    told.publish()


BREAKS = (
    lost, stored_twice, offset_left_out, position_left_out, time_back, another_message_under_an_offset,
    refused_and_stored, missed_by_a_subscriber, never_delivered, never_handed_out, never_answered,
    accepted_before_an_earlier_one, accepted_against_its_schema, stored_against_its_schema, a_dead_letter_twice,
    a_dead_letter_of_nothing, neither_acknowledged_nor_given_again, another_order_on_a_stream,
    acknowledged_into_a_deleted_file,
    a_key_before_what_came_first, two_of_a_key_at_a_time, stored_and_sent_by_nobody, an_answer_that_is_not_stored,
    two_answers_to_a_request, an_answer_to_what_is_no_request, an_answer_to_another_request, never_told,
    told_and_not_taken, told_in_another_order, purged_and_handed_out_by_the_next_bus, sent_again_and_not_stored,
    sent_again_by_nobody, never_delivered_after_damage,
)  # fmt: skip


@pytest.mark.parametrize("do", BREAKS, ids=lambda do: do.__name__)
def test_a_broken_promise_is_found(do: Callable[[Told], None]) -> None:
    told = Told()

    def all_of_it() -> None:
        do(told)
        told.check()

    with pytest.raises(Broken):
        all_of_it()


def test_kept_promises_are_not_found_fault_with() -> None:
    told = Told()
    reader = told.model.add_live("reader", lambda message: message.topic == "t")
    durable, queue = told.model.add_durable("s on t", "t", is_keyed=True), told.model.add_queue("t")
    stream = durable.open_stream()
    for _ in range(3):
        message = told.publish()
        message.key = "k"
        reader.take(message.token, "t", message.payload)
        durable.take(message.token, message.payload, len(told.rows) - 1, stream)
        durable.settled.add(message.token)
        queue.take(message.token, message.payload)
    told.publish("elsewhere")
    told.publish(acknowledged=False, stored=False)
    for _ in range(2):
        told.answer(request := told.ask())
        told.answer(request, error="late")
    told.check()
    told.ask()
    late = told.model.send("r", 1, is_request=True)
    told.model.ask(late, "asker", told.now + 1)
    told.model.note_end("power")
    told.model.answer(late.token, f"answer:{late.token}")  # it was under way
    told.check()


def test_receivers_are_held_to_once() -> None:
    told = Told()
    reader, queue = told.model.add_live("reader", lambda message: True), told.model.add_queue("t")
    durable = told.model.add_durable("s on t", "t")
    message = told.publish()
    reader.take(message.token, "t", message.payload)
    queue.take(message.token, message.payload)
    durable.note_acknowledged(message.token, told.now)
    repeats: tuple[Callable[[], None], ...] = (
        lambda: reader.take(message.token, "t", message.payload),
        lambda: queue.take(message.token, message.payload),
        lambda: durable.take(message.token, message.payload, 0, Stream(told.now + 1)),
        lambda: reader.take(message.token, "t", b"other bytes"),
    )
    for again in repeats:
        with pytest.raises(Broken):
            again()
    queue.note_end("power")
    queue.take(message.token, message.payload)
    queue.take(message.token, message.payload, is_late=True)  # what was handed out before the power failed


def test_a_cursor_may_be_lost_with_rows_that_are_told() -> None:
    told = Told()
    queue, durable = told.model.add_queue("t"), told.model.add_durable("s on t", "t")
    message = told.publish()
    queue.take(message.token, message.payload)
    durable.note_acknowledged(message.token, told.now)
    told.model.is_damaged = True
    told.model.note_end("stop")
    told.publish("elsewhere", stored=False)
    told.model.check_journal(told.rows, 0, [(1, 1)])
    queue.take(message.token, message.payload)
    durable.take(message.token, message.payload, 0, Stream(told.now + 1))
    durable.note_acknowledged(message.token, told.now)
    told.model.check_journal(told.rows, 0, [(1, 1)])  # told before
    with pytest.raises(Broken):
        durable.take(message.token, message.payload, 0, Stream(told.now + 1))


def test_after_damage_nothing_is_owed_until_a_receiver_is_confirmed_again() -> None:
    told = Told()
    told.model.add_durable("s on t", "t")
    told.model.add_queue("t")
    told.publish()
    told.model.note_damage(is_running=True)
    told.model.add_queue("t")  # by a bus that has not noticed yet
    told.publish()
    told.check()


def test_what_an_administrator_changes_is_not_owed() -> None:
    told = Told()
    durable, queue = told.model.add_durable("s on t", "t"), told.model.add_queue("t")
    observer = told.model.add_observer("service", "t", "http://127.0.0.1:1/act")
    message = told.publish()
    durable.note_acknowledged(message.token, told.now)
    durable.begin_change()
    durable.take(message.token, message.payload, 0, Stream(told.now + 1))
    durable.end_change(told.now)
    queue.begin_purge()
    queue.end_purge(told.now, is_done=True)
    queue.take(message.token, message.payload)  # it was under way
    observer.note_end("kill", told.now)
    told.check()


def test_what_was_lost_with_the_power_may_be_stored_behind_others_by_a_repeat() -> None:
    told = Told()
    reader = told.model.add_live("reader", lambda message: True)
    lost, kept = told.publish(acknowledged=False, stored=False), told.publish()
    for message in (lost, kept):
        reader.take(message.token, "t", message.payload)
    told.model.note_end("power")
    told.publish()
    lost.is_repeated = True
    told.rows.append(Row(2, "t", 2, "publish", lost.payload, int(told.now)))
    told.check()


def test_a_dead_letter_settles_a_message() -> None:
    told = Told()
    told.model.letters["dead"] = "t"
    durable = told.model.add_durable("s on t", "t")
    durable.has_letters = True
    for given in (True, False):
        message = told.publish()
        if given:
            durable.take(message.token, message.payload, message.offset or 0, durable.open_stream())
        offset = sum(row.topic == "dead" for row in told.rows)
        told.rows.append(Row(len(told.rows), "dead", offset, "publish", message.payload, int(told.now)))
    told.check()
