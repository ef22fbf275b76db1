"""The console for those who are not at home: strangers whose text is markup, people who must sign in, a bus without
traffic, and one that ends and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from raceway.codec.danube_pb.danube_admin_pb2 import Binding, Role, SecurityResponse
from tests.browser import running_browser, visiting
from tests.console_rig import EVIL, EVIL_SUBJECT, airport
from tests.danube_tokens import ISSUER, SECRET, token
from tests.danube_wire import DanubeWire, danube_wire
from tests.end_to_end.test_console import PAGES
from tests.schema_rest import call
from tests.server import Server, running_server

EMPTY = ("topics", "messages", "traces", "services", "schemas", "rejected", "peers", "pipeline", "journal")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


def test_text_of_strangers_stays_text_on_every_page(browser: Browser) -> None:
    with airport() as port:
        port.write_pipeline()
        port.let_strangers_in()
        with visiting(browser, port.server) as visitor:
            (evil,) = port.ask("/api/messages?topic=evil.events")["messages"]
            subject, name = quote(EVIL_SUBJECT, safe=""), quote(EVIL, safe="")
            shown = {
                "peers": EVIL, "topics/gate.boarding": EVIL_SUBJECT, f"messages/{evil['sequence']}": EVIL,
                "messages?topic=evil.events": EVIL[:15], f"messages?attribute=x-evil&attribute_value={name}": EVIL[:15],
                f"messages?attribute={name}": EVIL[:15], "schemas": EVIL_SUBJECT, f"schemas/{subject}": EVIL_SUBJECT,
                "services": "board evil", "pipeline": "gold.strangers", "pipeline/gold.strangers": EVIL,
                f"topics/{name}": EVIL[:15], f"traces/{evil['correlation_id']}": "evil.events",
                f"traces/{name}": EVIL[:10], f"messages/{name}": EVIL[:10], f"messages?id={name}": "Nothing found",
                f"topics?contains={name}": "No topic", f"rejected?source={name}": "source is one of",
            }  # fmt: skip
            for place, text in shown.items():
                page = visitor.go(place)
                expect(page.locator("main")).to_contain_text(text)
                assert_no_markup(page)
            for place in PAGES:
                assert_no_markup(visitor.go(place))
            visitor.forgive(400, 404)


def assert_no_markup(page: Page) -> None:
    assert page.locator("main img, main script, main b[onclick], main [onerror]").count() == 0


def test_a_bus_without_traffic_says_what_to_do(browser: Browser) -> None:
    with running_server() as server, visiting(browser, server) as visitor:
        for place in EMPTY:
            page = visitor.go(place)
            expect(page.locator(".empty:visible").first).to_be_visible()
        page = visitor.go("")
        expect(page.locator(".empty:visible")).to_contain_text("raceway pub")
        expect(page.locator("#pulse.on")).to_be_visible()
        server.stop()
        expect(page.locator("#pulse.off")).to_have_text("not connected")
        visitor.go("topics")
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        server.start()
        expect(page.locator("#pulse.on")).to_be_visible()
        visitor.faults.clear()  # a browser says so when nobody listens


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A bus with security: `looker` may look around, `reader` may read messages too, `nobody` has no role."""
    with running_server(
        RACEWAY_SECURITY__ENABLED="true",
        RACEWAY_SECURITY__TOKEN_SECRET=SECRET,
        RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER,
        RACEWAY_SECURITY__SUPER_ADMINS="root",
    ) as server:
        with danube_wire(server, authorization=f"Bearer {token('root')}") as wire:
            give_role(wire, "looker", ["Lookup"])
            give_role(wire, "reader", ["Lookup", "Consume"])
        sent = call(server, "POST", "/topics/safe.door", b'{"code": "1234"}', authorization=f"Bearer {token('root')}")
        assert sent.status == 201, sent
        yield server


def give_role(wire: DanubeWire, name: str, permissions: list[str]) -> None:
    role = Role(name=name, permissions=permissions)
    wire.ask("danube_admin.SecurityAdmin/CreateRole", role, SecurityResponse)
    binding = Binding(principal_type="service_account", principal_name=name, role=name, scope="cluster")
    wire.ask("danube_admin.SecurityAdmin/CreateBinding", binding, Binding)


def sign_in(page: Page, value: str) -> None:
    page.get_by_label("Token").last.fill(value)
    page.keyboard.press("Enter")


def test_without_a_token_every_page_asks_for_one(browser: Browser, guarded: Server) -> None:
    with visiting(browser, guarded) as visitor:
        for place in ("topics/safe.door", "messages/1", *reversed(PAGES)):
            page = visitor.go(place)
            expect(page.get_by_role("alert").first).to_contain_text("Sign in to see this page")
            expect(page.get_by_label("Token")).to_be_visible()
            expect(page.locator("main")).not_to_contain_text("1234")
        expect(page.locator("#pulse.off")).to_have_text("not signed in")
        visitor.picture("sign-in")
        visitor.forgive(401, 403)


def test_a_token_that_is_not_good_is_refused_with_the_reason(browser: Browser, guarded: Server) -> None:
    with visiting(browser, guarded) as visitor:
        page = visitor.go("topics")
        for bad in (
            "nonsense",
            token("looker", exp=1),
            token("looker", secret="another secret of at least thirty-two"),
        ):
            sign_in(page, bad)
            expect(page.locator("form.token .notice.bad")).to_be_visible()
            assert page.evaluate("sessionStorage.length") == 0, "it is not kept"
        visitor.forgive(401, 403)


def test_whoever_signs_in_sees_what_the_token_allows(browser: Browser, guarded: Server) -> None:
    looker = token("looker")
    with visiting(browser, guarded) as visitor:
        page = visitor.go("topics")
        sign_in(page, looker)
        expect(page.get_by_role("link", name="safe.door")).to_be_visible()
        expect(page.locator("#who")).to_have_text("looker")
        expect(page.locator("#pulse.on")).to_be_visible()
        page = visitor.go("messages")
        expect(page.get_by_role("alert").first).to_contain_text("service_account:looker needs the permission Consume")
        page = visitor.go("topics/safe.door")
        expect(page.locator("main")).to_contain_text("Messages are not for you")
        expect(page.locator(".facts").first).to_contain_text("Messages1")
        assert "1234" not in page.content()
        for place in PAGES:
            expect(visitor.go(place).locator("main h1")).not_to_be_empty()
        page.locator("#who").click()
        sign_in(page, token("reader"))
        expect(page.locator("#who")).to_have_text("reader")
        visitor.go("messages?topic=safe.door")
        expect(page.get_by_role("table", name="Messages")).to_contain_text("1234")
        assert not any(looker in url or token("reader") in url for url in visitor.asked), "never in an address"
        assert page.evaluate("localStorage.length") == 0
        assert page.evaluate("document.cookie") == ""
        visitor.forgive(401, 403)


def test_whoever_signs_out_sees_nothing_any_more(browser: Browser, guarded: Server) -> None:
    with visiting(browser, guarded) as visitor:
        page = visitor.go("messages")
        sign_in(page, token("reader"))
        expect(page.get_by_role("table", name="Messages")).to_contain_text("1234")
        page.locator("#who").click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("alert").first).to_contain_text("Sign in to see this page")
        expect(page.locator("#pulse.off")).to_be_visible()
        expect(page.locator("#who")).to_have_text("Sign in")
        assert "1234" not in page.content()
        assert page.evaluate("sessionStorage.length") == 0
        visitor.forgive(401, 403)


def test_the_administrators_token_is_asked_for_where_one_is_wanted(browser: Browser) -> None:
    with running_server(RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN="open-sesame") as server:
        assert call(server, "POST", "/topics/a.b", b"{}").status == 201
        assert call(server, "GET", "/api/messages").status == 403
        with visiting(browser, server) as visitor:
            page = visitor.go("topics")
            expect(page.get_by_role("link", name="a.b")).to_be_visible()
            page = visitor.go("messages")
            expect(page.get_by_role("alert").first).to_contain_text("Sign in to see this page")
            sign_in(page, "open-sesame!")
            expect(page.locator("form.token .notice.bad")).to_contain_text("not the administrator's token")
            sign_in(page, "open-sesame")
            expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(1)
            expect(page.locator("#who")).to_have_text("administrator")
            visitor.forgive(403)
