from __future__ import annotations

import asyncio

from raceway.model.envelope import Batch
from raceway.net.outgoing.courier import Courier, NotTaken, Parcel, Tried
from tests.rigs.doubles import ManualLoop

REFUSED = NotTaken("answered with status 500")
AWAY = NotTaken("no connection", reached=False)
FAULTY = NotTaken("answered with status 400", again=False)


def parcel(name: str, size: int = 1) -> Parcel:
    return Parcel(Batch(1, topic=b"t", payload=[name.encode() * size]), 0)


class Receiver:
    """Takes nothing until told; writes down what it was handed, and when."""

    def __init__(self, max_messages: int = 10, max_bytes: int = 1000) -> None:
        self.loop = ManualLoop()
        self.began = self.loop.time()
        self.handed: list[tuple[float, str]] = []
        self.parked: list[tuple[str, str]] = []
        self._tried: list[Tried] = []
        self.courier = Courier(self.loop, (1000, 2000, 4000), (max_messages, max_bytes), self._hand, self._park)

    def _hand(self, parcel: Parcel, tried: Tried) -> None:
        name = parcel.batch.item("payload", parcel.row).decode()
        self.handed.append((self.loop.time() - self.began, name))
        self._tried.append(tried)

    def _park(self, parcel: Parcel, reason: str) -> None:
        self.parked.append((parcel.batch.item("payload", parcel.row).decode(), reason))

    def say(self, failure: NotTaken | None) -> None:
        """How the oldest attempt that was not told of went."""
        self._tried.pop(0)(failure)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.handed]


def test_parcels_of_a_lane_go_one_after_another() -> None:
    receiver = Receiver()
    for name in "abc":
        receiver.courier.take("lane", parcel(name))
    assert receiver.names == ["a"]
    receiver.say(None)
    receiver.say(None)
    assert receiver.names == ["a", "b", "c"]
    receiver.say(None)
    assert receiver.courier.waiting == 0


def test_lanes_do_not_wait_for_each_other() -> None:
    receiver = Receiver()
    receiver.courier.take("one", parcel("a"))
    receiver.courier.take("two", parcel("b"))
    assert receiver.names == ["a", "b"]


def test_what_is_refused_is_tried_three_times_more_and_then_parked() -> None:
    receiver = Receiver()
    receiver.courier.take("lane", parcel("a"))
    for _ in range(4):
        receiver.say(REFUSED)
        receiver.loop.advance(10)
    assert [round(at) for at, _ in receiver.handed] == [0, 1, 12, 24]
    assert receiver.parked == [("a", "answered with status 500")]
    assert receiver.courier.waiting == 0


def test_pauses_are_as_long_as_set() -> None:
    receiver = Receiver()
    receiver.courier.take("lane", parcel("a"))
    times = []
    for pause in (1, 2, 4):
        receiver.say(REFUSED)
        receiver.loop.advance(pause - 0.01)
        times.append(len(receiver.handed))
        receiver.loop.advance(0.02)
    assert times == [1, 2, 3]
    assert len(receiver.handed) == 4


def test_what_the_receiver_faults_is_parked_at_once_and_the_next_one_goes() -> None:
    receiver = Receiver()
    for name in "ab":
        receiver.courier.take("lane", parcel(name))
    receiver.say(FAULTY)
    assert receiver.parked == [("a", "answered with status 400")]
    assert receiver.names == ["a", "b"]


def test_a_refused_one_does_not_count_against_those_behind_it() -> None:
    receiver = Receiver()
    for name in "ab":
        receiver.courier.take("lane", parcel(name))
    for _ in range(4):
        receiver.say(REFUSED)
        receiver.loop.advance(10)
    assert receiver.names[-1] == "b"
    receiver.say(REFUSED)
    receiver.loop.advance(10)
    receiver.say(None)
    assert receiver.parked == [("a", "answered with status 500")]


def test_while_nobody_is_there_the_whole_lane_is_tried_together() -> None:
    receiver = Receiver()
    for name in "abc":
        receiver.courier.take("lane", parcel(name))
    for _ in range(3):
        receiver.say(AWAY)
        receiver.loop.advance(10)
    receiver.courier.take("lane", parcel("d"))
    receiver.say(AWAY)
    assert receiver.parked == [(name, "no connection") for name in "abc"]
    receiver.loop.advance(1.1)
    assert receiver.names == ["a", "a", "a", "a", "d"], "the one that came late has its own attempts"


def test_more_than_may_wait_is_parked() -> None:
    receiver = Receiver(max_messages=2)
    for name in "abc":
        receiver.courier.take("lane", parcel(name))
    assert receiver.parked == [("c", "receiver queue full")]


def test_more_bytes_than_may_wait_are_parked_but_one_message_always_fits() -> None:
    receiver = Receiver(max_bytes=10)
    receiver.courier.take("lane", parcel("a", 50))
    receiver.courier.take("lane", parcel("b"))
    assert [name for name, _ in receiver.parked] == ["b"]


def test_a_receiver_that_is_no_more_leaves_nothing_behind() -> None:
    receiver = Receiver()
    for name in "ab":
        receiver.courier.take("lane", parcel(name))
    receiver.courier.give_up("detached")
    receiver.say(None)
    receiver.loop.advance(100)
    assert receiver.parked == [("a", "detached"), ("b", "detached")]
    assert (receiver.names, receiver.courier.waiting) == (["a"], 0)


def test_what_waits_keeps_only_its_own_row() -> None:
    batch = Batch(3, topic=b"t", payload=[b"x", b"y", b"z"])
    assert Parcel(batch, 1).batch.payload == [b"y"]


def test_a_stop_waits_for_what_is_on_its_way_but_not_for_ever() -> None:
    receiver = Receiver()

    async def stop() -> list[int]:
        await receiver.courier.drain(5)
        left = [receiver.courier.waiting]
        receiver.courier.take("lane", parcel("a"))
        asyncio.get_running_loop().call_later(0.05, receiver.say, None)
        await receiver.courier.drain(5)
        left.append(receiver.courier.waiting)
        receiver.courier.take("lane", parcel("b"))
        await receiver.courier.drain(0.05)
        return [*left, receiver.courier.waiting]

    assert asyncio.run(stop()) == [0, 0, 1]
