"""Where Seneca's protocol text contradicts itself or the implementation: what this bus does, by number, from outside.

Some show elsewhere too: 4, 6 to 11, 13 and 16 in `test_seneca_flows.py` with a process per instance, 14 and 15 in
`test_seneca_return_path.py`, 17 and 20 in `test_seneca_hostile.py`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.rigs.seneca_wire import (
    Answer,
    Got,
    Lines,
    answering,
    attach,
    console,
    detach,
    fresh_word,
    legacy_headers,
    line,
    new_id,
    now_ms,
    post,
    rows,
    seed,
    seed_answer,
    serving,
    wait_for_rows,
    web,
)
from tests.rigs.server import Server, running_server, wait_until

SEVERAL_LIMIT = 5
# Those who answer a call with `multiple` have so long.
TIMEOUT_MS = 2000
SID = re.compile(r"[0-9a-z]{12}/\d{13}/[^/]+/\d+/[^/]+")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__SENECA__SEVERAL_LIMIT=SEVERAL_LIMIT, RACEWAY_LISTEN__SENECA__REQUEST_TIMEOUT_MS=TIMEOUT_MS
    ) as server:
        yield server


@pytest.fixture
def word(server: Server) -> Iterator[str]:
    """A role whose service answers `{"sum": a + b}` as an instance named B."""
    role = fresh_word()

    def react(got: Got) -> tuple[int, Any]:
        if not got.meta["snc"]:
            return 202, {}
        document = got.json()
        return 200, seed_answer(got, {"sum": document.get("a", 0) + document.get("b", 0)})

    with serving(server, f"role:{role}", react):
        yield role


def ask(server: Server, role: str, **meta: Any) -> Answer:
    return post(server, seed({"role": role, "a": 1, "b": 2}, **meta))


# ---- 1 to 5: names of fields ----------------------------------------------------------------------------------------


def test_1_msg_is_an_alias_of_meta_where_there_is_no_meta(server: Server, word: str) -> None:
    fields = {"vin": 1, "sid": "A", "out": True, "mid": "m25", "cid": new_id("c"), "snc": True, "pat": "role:math"}
    answer = post(server, {"role": word, "a": 2, "b": 2, "msg$": fields})
    assert (answer.data, answer.meta["mid"], answer.meta["cid"]) == ({"sum": 4}, "m25", fields["cid"])
    (entry,) = answer.meta["trk"]
    assert (entry["sid"], entry["mid"], entry["tms"][0], len(entry["tms"])) == ("A", "m25", None, 3)
    both = post(server, {**seed({"role": word, "a": 1, "b": 1}, mid="m26"), "msg$": {"mid": "other", "cid": "other"}})
    assert both.meta["mid"] == "m26"
    assert "msg$" not in both.json()


def test_1_msg_is_never_written_to_a_service_of_the_same_form(server: Server) -> None:
    role = fresh_word()
    with serving(server, f"role:{role}", answering({"ok": True})) as service:
        post(server, {"role": role, "msg$": {"mid": new_id(), "cid": new_id("c"), "sid": "A"}})
        assert "msg$" not in service.got[0].json()
        assert service.got[0].meta["sid"] == "A"


def test_2_act_and_out_and_neither_are_requests_and_res_is_none(server: Server, word: str) -> None:
    for marker in ({"act": True}, {"act": None, "out": True}, {"act": None}):
        assert ask(server, word, **marker).data == {"sum": 3}
    refused = ask(server, word, res=True)
    assert (refused.status, refused.json()["code"]) == (400, "invalid_message")


def test_2_what_reaches_a_service_says_act(server: Server) -> None:
    role = fresh_word()
    with serving(server, f"role:{role}", answering({"ok": True})) as service:
        assert ask(server, role, act=None, out=True).data == {"ok": True}
        assert service.got[0].meta["act"] is True


def test_3_custom_data_is_one_thing_under_three_names(server: Server) -> None:
    role = fresh_word()

    def react(got: Got) -> tuple[int, Any]:
        return 200, seed_answer(got, {"ok": True}, usr={**got.meta["ctm"], "region": "eu"})

    with serving(server, f"role:{role}", react) as service:
        for number, given in enumerate(
            [
                {"ctm": {"tenant": "t1"}},
                {"usr": {"tenant": "t1"}},
                {"custom": {"tenant": "t1"}},
                {"ctm": {"tenant": "t1"}, "usr": {"tenant": "other"}},
            ]
        ):
            answer = ask(server, role, **given)
            assert service.got[number].meta["ctm"] == {"tenant": "t1"}
            assert answer.meta["usr"] == {"tenant": "t1", "region": "eu"}


def test_3_in_a_response_usr_overrides(server: Server) -> None:
    role = fresh_word()
    react = answering({"ok": True}, ctm={"a": "ctm", "b": "ctm"}, usr={"a": "usr"})
    with serving(server, f"role:{role}", react):
        assert ask(server, role).meta["usr"] == {"a": "usr", "b": "ctm"}


def test_4_the_answer_is_what_the_service_that_was_asked_said(server: Server) -> None:
    outer, inner = fresh_word(), fresh_word()

    def react(got: Got) -> tuple[int, Any]:
        mid = new_id()
        entry = {"sid": "B", "mid": mid, "tms": [now_ms()]}
        asked = got.meta
        child = post(server, seed({"role": inner}, sid="B", mid=mid, cid=asked["cid"], trk=[*asked["trk"], entry]))
        assert child.data == {"y": 1}
        return 200, seed_answer(got, {"x": 2})

    with (
        serving(server, f"role:{inner}", answering({"y": 1}, "C")),
        serving(server, f"role:{outer}", react),
    ):
        assert ask(server, outer).data == {"x": 2}


def test_5_version_and_pattern_are_optional_and_always_written(server: Server) -> None:
    role = fresh_word()
    with serving(server, f"role:{role},cmd:*", answering({"ok": True})) as service:
        post(server, seed({"role": role, "cmd": "x"}, vin=None, pat=None))
        post(server, seed({"role": role, "cmd": "x"}, vin=7, pat="role:math"))
        first, second = (got.meta for got in service.got)
        assert (first["vin"], first["pat"]) == (1, f"cmd:*,role:{role}")
        assert second["pat"] == "role:math"


def test_5_fields_of_a_newer_version_are_kept_and_not_echoed(server: Server, word: str) -> None:
    mid = new_id()
    answer = ask(server, word, mid=mid, vin=7, zzz={"k": 1})
    assert answer.data == {"sum": 3}
    assert "zzz" not in answer.meta
    (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    assert json.loads(dict(row["attributes"])["seneca.meta.zzz"]) == {"k": 1}


# ---- 6 to 11: trk ---------------------------------------------------------------------------------------------------


def test_6_an_entry_has_the_id_of_its_own_request(server: Server, word: str) -> None:
    answer = ask(server, word, mid="m61")
    assert [entry["mid"] for entry in answer.meta["trk"]] == ["m61"]


def test_7_the_first_request_lists_its_sender_even_if_it_forgot(server: Server) -> None:
    role = fresh_word()
    with serving(server, f"role:{role}", answering({"ok": True})) as service:
        answer = ask(server, role, mid="m71", trk=None)
        assert service.got[0].meta["trk"] == [{"sid": "A", "mid": "m71", "tms": [None]}]
        (entry,) = answer.meta["trk"]
        assert (entry["sid"], entry["rid"], entry["tms"][0]) == ("A", "B", None)


def test_8_an_instance_may_be_there_many_times(server: Server, word: str) -> None:
    trk = [
        {"sid": "A", "rid": "B", "mid": "m1", "tms": [1, 2]},
        {"sid": "B", "rid": "A", "mid": "m2", "tms": [3, 4]},
        {"sid": "A", "mid": "m3", "tms": [5]},
    ]
    answer = ask(server, word, mid="m3", trk=trk)
    assert answer.meta["trk"][:2] == trk[:2]
    assert [entry["sid"] for entry in answer.meta["trk"]] == ["A", "B", "A"]


def test_9_the_own_entry_is_found_by_its_id_wherever_it_stands(server: Server, word: str) -> None:
    other = {"sid": "B", "rid": "C", "mid": "m92", "tms": [3, 4, 5, 6]}
    answer = ask(server, word, mid="m91", trk=[{"sid": "A", "mid": "m91", "tms": [1]}, other])
    own, untouched = answer.meta["trk"]
    assert (own["mid"], own["rid"], len(own["tms"])) == ("m91", "B", 3)
    assert untouched == other


def test_10_a_responder_writes_three_times_and_only_the_caller_a_fourth(server: Server, word: str) -> None:
    mid = new_id()
    answer = ask(server, word, mid=mid)
    (entry,) = answer.meta["trk"]
    assert len(entry["tms"]) == 3
    (request,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    (stored,) = wait_for_rows(server, 1, answers=request["sequence"])
    assert len(stored["hops"][0]["tms"]) == 3


def test_11_every_response_has_a_trk_of_its_own(server: Server) -> None:
    role, mid = fresh_word(), new_id()
    with (
        serving(server, f"role:{role}", answering({"price": 5}, "C")),
        serving(server, f"role:{role}", answering({"price": 6}, "D")),
    ):
        answer = ask(server, role, mid=mid, multiple=True)
    documents = answer.json()["array$"]
    assert sorted(document["meta$"]["trk"][0]["rid"] for document in documents) == ["C", "D"]
    for document in documents:
        (entry,) = document["meta$"]["trk"]
        assert (entry["mid"], entry["rid"], len(entry["tms"])) == (mid, document["meta$"]["rid"], 3)


# ---- 12 and 13: several receivers -----------------------------------------------------------------------------------


def test_12_multiple_is_a_field_of_the_request_and_all_answers_come_together(server: Server) -> None:
    role, mid, cid = fresh_word(), new_id(), new_id("c")
    with (
        serving(server, f"role:{role}", answering({"price": 5}, "C")),
        serving(server, f"role:{role}", answering({"price": 6}, "D")),
    ):
        answer = ask(server, role, mid=mid, cid=cid, multiple=True)
        alone = ask(server, role)
    assert (answer.status, answer.meta["multiple"], answer.meta["mid"], answer.meta["cid"]) == (200, True, mid, cid)
    assert sorted((each["price"], each["meta$"]["rid"]) for each in answer.json()["array$"]) == [(5, "C"), (6, "D")]
    assert all((each["meta$"]["mid"], each["meta$"]["cid"]) == (mid, cid) for each in answer.json()["array$"])
    assert alone.data["price"] in (5, 6), "without it one is asked"


def test_12_multiple_stops_at_its_limit(server: Server) -> None:
    role = fresh_word()
    with ExitStack() as stack:
        for number in range(SEVERAL_LIMIT + 2):
            stack.enter_context(serving(server, f"role:{role}", answering({"n": number}, f"R{number}")))
        answer = ask(server, role, multiple=True)
    assert len(answer.json()["array$"]) == SEVERAL_LIMIT


def test_12_multiple_does_not_wait_beyond_the_deadline(server: Server) -> None:
    role = fresh_word()

    def never(got: Got) -> tuple[int, Any]:
        time.sleep(TIMEOUT_MS / 1000 + 1)
        return 500, {}

    with (
        serving(server, f"role:{role}", answering({"price": 5}, "C")),
        serving(server, f"role:{role}", never),
    ):
        began = time.monotonic()
        answer = ask(server, role, multiple=True)
        assert time.monotonic() - began < TIMEOUT_MS / 1000 + 0.9
    assert [each["price"] for each in answer.json()["array$"] if "price" in each] == [5]


def test_13_every_receiver_of_an_asynchronous_message_gets_the_same_copy(server: Server) -> None:
    role, mid = fresh_word(), new_id()
    with (
        serving(server, f"role:{role}", answering({})) as first,
        serving(server, f"role:{role}", answering({})) as second,
    ):
        answer = ask(server, role, mid=mid, snc=False)
        assert (answer.status, answer.json()) == (202, {})
        (at_first,), (at_second,) = first.wait_for(1), second.wait_for(1)
    assert at_first.json() == at_second.json()
    ((entry),) = at_first.meta["trk"]
    assert ("rid" not in entry, len(entry["tms"])) == (True, 1), "who receives it adds to its own copy"


# ---- 14 to 16 -------------------------------------------------------------------------------------------------------


def test_14_a_return_path_is_not_used_for_an_answer_in_time(server: Server, word: str) -> None:
    answer = ask(server, word, rtn={"urn": "http://127.0.0.1:9/rtn"})
    assert (answer.status, answer.data) == (200, {"sum": 3})


def test_15_a_urn_that_is_no_address_harms_nothing(server: Server, word: str) -> None:
    for urn in ("urn:isbn:0451450523", "", "rtn", "//x", 5, None):
        assert ask(server, word, rtn={"urn": urn}).data == {"sum": 3}


def test_16_the_sender_of_a_response_is_the_receiver_of_the_request(server: Server, word: str) -> None:
    answer = ask(server, word)
    assert answer.meta["rid"] == answer.meta["trk"][0]["rid"] == "B"
    assert "sid" not in answer.meta
    assert {"snc", "rtn", "pat"}.isdisjoint(answer.meta)


# ---- 17 to 21 -------------------------------------------------------------------------------------------------------


def test_17_the_examples_of_the_text_are_no_json(server: Server) -> None:
    example = b"{\n  a: 1,\n  meta$:\n  {\n    sid: 'A',\n    act:  true,\n    mid:  'm01',\n    snc:  true,\n  }\n"
    answer = post(server, example)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    "sid", ["A", "a/b/c/d/e/f", "Größe\u2028", " x ", "9" * 500, "h2j4/1700000000000/4711/3.38.0/-"]
)
def test_18_names_of_instances_are_opaque(server: Server, word: str, sid: str) -> None:
    mid = new_id()
    answer = ask(server, word, sid=sid, mid=mid)
    assert answer.meta["trk"][0]["sid"] == sid
    (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    assert row["producer"] == sid


def test_18_the_bus_names_itself_in_the_form_of_the_text(server: Server) -> None:
    answer = ask(server, fresh_word())
    assert SID.fullmatch(answer.meta["rid"]), answer.meta["rid"]


def test_19_the_joined_id_wins_in_w_and_the_parted_ids_in_the_texts_own_form(server: Server, word: str) -> None:
    message = {"role": word, "a": 1, "b": 2}
    first = post(server, {**message, "meta$": {"id": "m1x/c1x", "mi": "m2x", "tx": "c2x", "sync": True}})
    assert (first.meta["id"], first.meta["mi"], first.meta["tx"]) == ("m1x/c1x", "m1x", "c1x")
    second = post(server, {**message, "meta$": {"mi": "m3x", "tx": "c3x", "sync": True}})
    assert second.meta["id"] == "m3x/c3x"
    third = post(server, {**message, "msg$": {"id": "m4x/c4x", "mid": "m5x", "cid": "c5x"}})
    assert (third.meta["mid"], third.meta["cid"]) == ("m5x", "c5x")


def test_20_absent_meta_data_is_made_and_no_error(server: Server, word: str) -> None:
    answer = post(server, {"role": word, "a": 4, "b": 5}, {})
    assert (answer.status, answer.json()) == (200, {"sum": 9})
    mid, cid = answer.headers["seneca-id"].split("/")
    (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    assert (row["correlation_id"], row["producer"]) == (cid, "UNKNOWN")


def test_20_each_field_defaults_on_its_own(server: Server, word: str) -> None:
    answer = post(server, {"role": word, "a": 1, "b": 1, "meta$": {"mid": "m19"}}, {})
    assert (answer.data, answer.meta["mid"]) == ({"sum": 2}, "m19")
    assert re.fullmatch("[0-9a-z]{12}", answer.meta["cid"])
    assert answer.meta["trk"][0]["sid"] == "UNKNOWN"


def test_21_an_error_has_words_a_code_and_details(server: Server) -> None:
    role, mid = fresh_word(), new_id()
    body = {"message": "division by zero", "code": "div_zero", "details": {"a": 1}}
    with serving(server, f"role:{role}", answering(body, error=True)):
        answer = ask(server, role, mid=mid)
    assert (answer.status, answer.data, answer.meta["error"]) == (500, body, True)
    (entry,) = answer.meta["trk"]
    assert len(entry["tms"]) == 3, "errors are tracked like any other answer"
    (request,) = wait_for_rows(server, 1, message_id=mid, kind="request")
    (stored,) = wait_for_rows(server, 1, answers=request["sequence"])
    assert stored["error"] == "div_zero"


def test_21_what_nobody_serves_is_said_in_senecas_words(server: Server) -> None:
    role = fresh_word()
    answer = post(server, {"role": role, "meta$": {"sid": "A", "mid": "m20", "cid": "c20", "snc": True}})
    expected = (
        f'seneca: No matching action pattern found for {{"role":"{role}"}}, and no default result provided '
        "(using a default$ property)."
    )
    assert (answer.status, answer.data) == (500, {"message": expected, "code": "act_not_found"})
    assert (answer.meta["mid"], answer.meta["cid"], answer.meta["error"]) == ("m20", "c20", True)


# ---- 22 to 25 -------------------------------------------------------------------------------------------------------


def test_22_an_asynchronous_message_gets_what_its_dialect_must_have(server: Server, word: str) -> None:
    message = {"role": word, "a": 1, "b": 2}
    ours = post(server, seed(message, sync=False))
    assert (ours.status, ours.json()) == (202, {})
    modern = post(server, web(message, sync=False))
    assert (modern.status, modern.data, modern.meta["empty"], modern.meta["error"]) == (200, {}, True, False)
    legacy = post(server, {**message, "custom$": {}}, legacy_headers())
    assert (legacy.status, legacy.json()) == (200, {"sum": 3}), "asynchronous calls cannot be seen there"
    with Lines(server.port("seneca_tcp")) as lines:
        lines.send(line(message, sync=False))
        lines.send(line(message, sync=None))
        last = line(message, id=f"last/{new_id('c')}")
        assert lines.ask(last)["id"] == last["id"], "nothing came before"


def test_22_an_asynchronous_message_is_stored_before_it_is_accepted(server: Server, word: str) -> None:
    mid = new_id()
    assert ask(server, word, mid=mid, snc=False).status == 202
    assert len(rows(server, message_id=mid, kind="publish")) == 1


def test_23_a_missing_correlation_id_is_always_a_new_one(server: Server, word: str) -> None:
    message = {"role": word, "a": 1, "b": 2, "custom$": {}}
    found = set()
    for _ in range(3):
        mid = new_id()
        answer = post(server, message, {**legacy_headers(), "seneca-id": mid})
        assert answer.headers["seneca-id"].split("/")[0] == mid
        (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
        found.add(row["correlation_id"])
    assert len(found) == 3


# Patterns in order of adding, and messages with the one that wins. A and B stand for words of the test.
WINNERS = [
    (["a:A", "a:A,b:B"], [("a:A,b:B,c:3", "a:A,b:B"), ("a:A,b:3", "a:A"), ("b:B", None)]),
    (["a:A", "b:B,c:C"], [("a:A,b:B,c:C", "a:A")]),
    (["c:A", "b:B"], [("b:B,c:A", "b:B")]),
    (["a:A,b:B,c:C", "a:A,d:D", "a:A"], [("a:A,b:B,d:D", "a:A")]),
    (["a:A,b:B,c:C", "a:A,d:D"], [("a:A,b:B,d:D", "a:A,d:D")]),
    (["a:A,c:C", "a:*,b:B"], [("a:A,b:B", None)]),
]


@pytest.mark.parametrize(("patterns", "messages"), WINNERS)
def test_24_the_pattern_that_wins_is_that_of_the_real_router(
    server: Server, patterns: list[str], messages: list[tuple[str, str | None]]
) -> None:
    spelled = {letter: fresh_word() for letter in "ABCD"}

    def spell(pattern: str) -> dict[str, str]:
        pairs = (pair.split(":") for pair in pattern.split(","))
        return {key: spelled.get(value, value) for key, value in pairs}

    with ExitStack() as stack:
        for pattern in patterns:
            pin = ",".join(f"{key}:{value}" for key, value in spell(pattern).items())
            stack.enter_context(serving(server, pin, answering({"won": pattern})))
        for message, winner in messages:
            answer = post(server, spell(message))
            if winner is None:
                assert answer.json()["code"] == "act_not_found"
            else:
                assert answer.json() == {"won": winner}


def test_24_a_second_pin_with_the_same_name_is_refused(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word}", answering({})) as service:
        refused = console(server, "POST", "/api/seneca/services", {"pin": f"cmd:{word}", "url": service.url()})
        assert refused.status in (400, 409)
        assert word in refused.body.decode()
        listed = console(server, "GET", "/api/seneca/services").body.decode()
        assert f"cmd:{word}" not in listed
        assert f"role:{word}" in listed


def test_24_numbers_and_texts_match_each_other(server: Server) -> None:
    word = fresh_word()
    with serving(server, f"role:{word},level:1,on:true", answering({"ok": True})) as service:
        for level, on in ((1, True), ("1", "true")):
            assert post(server, {"role": word, "level": level, "on": on}).json() == {"ok": True}
        assert [(got.json()["level"], got.json()["on"]) for got in service.got] == [(1, True), ("1", "true")]


def test_25_times_of_others_are_stored_as_given_and_never_compared(server: Server, word: str) -> None:
    for sent in (5, now_ms() + 10**9, 0, -1):
        mid = new_id()
        answer = ask(server, word, mid=mid, trk=[{"sid": "A", "mid": mid, "tms": [sent]}])
        assert answer.meta["trk"][0]["tms"][0] == sent
        (row,) = wait_for_rows(server, 1, message_id=mid, kind="request")
        assert row["hops"][0]["tms"] == [sent]


# ---- ids seen twice -------------------------------------------------------------------------------------------------


def test_the_same_id_twice_is_one_action_and_the_same_result(server: Server) -> None:
    role, mid, cid = fresh_word(), new_id(), new_id("c")
    with serving(server, f"role:{role}", answering({"n": 1})) as service:
        first = ask(server, role, mid=mid, cid=cid)
        second = ask(server, role, mid=mid, cid=cid)
        assert first.data == second.data == {"n": 1}
        assert (second.meta["mid"], second.meta["cid"]) == (mid, cid)
        assert len(service.got) == 1
        third = post(server, {"role": role, "meta$": {"id": f"{mid}/{cid}", "sync": True}})
        assert third.data == {"n": 1}, "also in another dialect"
        assert len(service.got) == 1


def test_detached_services_are_not_called(server: Server) -> None:
    role = fresh_word()
    with serving(server, f"role:{role}", answering({"n": 1}, "B")) as first:
        with serving(server, f"role:{role}", answering({"n": 2}, "C")) as second:
            assert sorted(ask(server, role).data["n"] for _ in range(4)) == [1, 1, 2, 2]
        assert [ask(server, role).data["n"] for _ in range(3)] == [1, 1, 1]
        assert len(second.got) == 2
        assert len(first.got) == 5
    assert ask(server, role).json()["code"] == "act_not_found"


def test_attached_services_are_there_after_a_restart() -> None:
    role = fresh_word()
    with running_server() as server, serving(server, f"role:{role}", answering({"n": 1})):
        assert ask(server, role).data == {"n": 1}
        server.restart()
        wait_until(lambda: ask(server, role).status == 200, 5, "the service after the restart")


def test_attaching_twice_is_attaching_once(server: Server) -> None:
    role = fresh_word()
    with serving(server, f"role:{role}", answering({"n": 1})) as service:
        attach(server, f"role:{role}", service.url(), "S")
        listed = json.loads(console(server, "GET", "/api/seneca/services").body)["services"]
        assert [row["url"] for row in listed if row["pin"] == f"role:{role}"] == [service.url()]
        detach(server, f"role:{role}", service.url())
        assert ask(server, role).json()["code"] == "act_not_found"
        attach(server, f"role:{role}", service.url(), "S")
