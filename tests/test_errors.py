from __future__ import annotations

import inspect
import re

import pytest

from raceway import errors
from raceway.errors import RacewayError
from raceway.web.answers import status_of as web_status
from raceway.wires.danube.codec.status import status_of as danube_status
from raceway.wires.mb.codec import encode as mb_encode
from raceway.wires.seneca.codec.failure import failure_of
from raceway.wires.zbus.codec import encode as zbus_encode

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, RacewayError)]
GROUPS = {RacewayError, errors.PeerError, errors.LocalError}
EXAMPLES = [
    (errors.MalformedError("no newline"), "no newline"),
    (errors.NameInvalidError("a..b", "empty segment"), "'a..b' is not a valid name: empty segment"),
    (errors.NoRouteError("a.b"), "No subscribers for topic a.b"),
    (errors.RequestTimeoutError("a", "service"), "Request timed out"),
    (errors.UnmatchedAnswerError(None), "answer without the id of its request"),
    (errors.UnmatchedAnswerError("x"), "no open request x"),
    (errors.UnknownPeerError("x"), "Service x not found"),
    (errors.UnknownQueueError("orders"), "MQ(orders) Not Found"),
    (errors.QueueKindError("orders"), "the queue 'orders' already exists with another kind"),
    (errors.UnknownTopicError("orders"), "topic 'orders' not found"),
    (errors.UnknownSubscriptionError("billing"), "subscription 'billing' not found"),
    (errors.TopicKindError("a-part-0", "a"), "'a-part-0' cannot be created: 'a' exists"),
    (
        errors.MismatchError("the dispatch strategy", "reliable", "non-reliable"),
        "the dispatch strategy is reliable, not non-reliable",
    ),
    (
        errors.InUseError("subscription 'billing'", "1 live consumer"),
        "subscription 'billing' is in use: 1 live consumer",
    ),
    (errors.InvalidValueError("max_unacked_messages", "from 1 to 10,000"), "max_unacked_messages: from 1 to 10,000"),
    (errors.LimitError("producers of 'orders'", 3), "producers of 'orders': the limit is 3"),
    (errors.TooLargeError("payload", 20, 10), "payload of 20 bytes is over the limit of 10"),
    (errors.ForbiddenError("anonymous:mb", "publish"), "anonymous:mb may not publish"),
    (errors.RemoteError("TIMEOUT", "Request timed out", {"a": 1}), "TIMEOUT: Request timed out"),
    (errors.ConfigError("a.b", "is wrong", "flag"), "a.b: is wrong (from flag)"),
    (errors.ConfigError("a.b", "is wrong"), "a.b: is wrong"),
    (errors.DiskFullError("no space"), "no space"),
    (errors.UnreachableError("127.0.0.1:1", "refused"), "127.0.0.1:1 cannot be reached: refused"),
    (
        errors.LockedError("data", 7),
        "the data folder data is in use by process 7; stop it, or choose another folder with --data",
    ),
    (errors.TrimmedError(3, 9), "position 3 was removed by retention; the first one left is 9"),
    (errors.TrimmedError(3, 9, "t"), "offset 3 of topic 't' was removed by retention; the first one left is 9"),
    (errors.ConnectionLostError("mb://x", "reset"), "connection to mb://x lost: reset"),
    (errors.NotConnectedError("mb://x", "nothing listens"), "no connection to mb://x: nothing listens"),
    (errors.NoAnswerError("http://x", "30 s passed"), "no answer from http://x: 30 s passed"),
    (errors.UnsupportedError("MbClient", "consume", "subscribe()"), "MbClient has no consume: use subscribe()"),
    (errors.UnsupportedError("DanubeClient", "serve"), "DanubeClient has no serve: its wire does not support it"),
]


def test_codes_are_distinct() -> None:
    codes = [kind.code for kind in CLASSES if kind not in GROUPS]
    assert len(set(codes)) == len(codes)


def test_every_class_is_exported() -> None:
    def below(kind: type[RacewayError]) -> set[type[RacewayError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    assert {kind for kind in below(RacewayError) if kind.__module__ == errors.__name__} == set(CLASSES)


def test_a_new_error_has_the_word_of_its_base_class_on_every_wire() -> None:
    class UnknownGateError(errors.UnknownError, code="unknown_gate", kind="gate"):
        pass

    error = UnknownGateError("B4")
    assert mb_encode.refusal_of(error, None).code == "NO_ROUTE_FOUND"
    assert zbus_encode.refusal_of(error, None).status == 404
    assert failure_of(error, {}).code == "act_not_found"
    assert danube_status(error).name == "NOT_FOUND"
    assert web_status(error) == 404


def test_codes_are_stable_words() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code) for kind in CLASSES)


def test_every_error_is_either_the_peers_doing_or_ours() -> None:
    sides = [(issubclass(kind, errors.PeerError), issubclass(kind, errors.LocalError)) for kind in CLASSES]
    assert all(peer != local for (peer, local), kind in zip(sides, CLASSES, strict=True) if kind is not RacewayError)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = set(re.findall(r"\b\w+Error\b", errors.__doc__ or ""))
    assert drawn == {kind.__name__ for kind in CLASSES}


@pytest.mark.parametrize(("error", "sentence"), EXAMPLES)
def test_the_sentence_is_made_from_the_facts(error: RacewayError, sentence: str) -> None:
    assert str(error) == sentence


@pytest.mark.parametrize("error", [error for error, _ in EXAMPLES])
def test_facts_are_attributes(error: RacewayError) -> None:
    names = [name for name in inspect.signature(type(error)).parameters if name != "self"]
    assert [getattr(error, name) for name in names] == list(error.args)


def test_only_what_passes_by_itself_is_retriable() -> None:
    retriable = {kind.code for kind in CLASSES if kind.retriable}
    assert retriable == {
        "archive", "away",
        "limit", "timeout", "unavailable", "disk_full", "busy", "draining", "unreachable", "connection_lost",
        "not_connected", "no_answer",
    }  # fmt: skip
