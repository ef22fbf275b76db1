"""The console for those who are not at home: people who must sign in, a bus without traffic, and one that ends and
comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from raceway.wires.danube.codec.pb.danube_admin_pb2 import Binding, Role, SecurityResponse
from tests.end_to_end.test_console import PAGES
from tests.rigs.browser import EVERY_LOOK, assert_no_barriers, looking, running_browser, visiting
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.danube_wire import DanubeWire, danube_wire
from tests.rigs.schema_rest import call
from tests.rigs.server import Server, running_server

EMPTY = (
    "topics", "subscriptions", "messages", "traces", "services", "schemas", "rejected", "peers", "pipeline", "journal",
    "changes",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def context(browser: Browser) -> BrowserContext:
    """One for all: who is signed in is known to a window alone."""
    return browser.new_context()


@pytest.fixture(scope="module")
def unused() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.mark.timeout(600)
@pytest.mark.parametrize("look", EVERY_LOOK, ids=str)
def test_axe_finds_nothing_on_a_bus_without_traffic(browser: Browser, unused: Server, look: tuple[int, str]) -> None:
    with visiting(browser, unused, *look) as visitor:
        assert_no_barriers(visitor, PAGES)


def test_a_bus_without_traffic_says_what_to_do(context: BrowserContext) -> None:
    with running_server() as server, looking(context, server) as visitor:
        for place in EMPTY:
            page = visitor.go(place)
            expect(page.locator(".empty:visible").first).to_be_visible()
        page = visitor.go("")
        expect(page.locator(".empty:visible")).to_contain_text("raceway pub")
        expect(page.locator("#pulse.on")).to_be_visible()
        server.stop()
        expect(page.locator("#pulse.off")).to_have_text("no answer")
        visitor.go("topics")
        expect(page.get_by_role("alert")).to_contain_text(["has not answered since", "does not answer"])
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


def test_without_a_token_every_page_asks_for_one(context: BrowserContext, guarded: Server) -> None:
    with looking(context, guarded) as visitor:
        for place in ("topics/safe.door", "messages/1", *reversed(PAGES)):
            page = visitor.go(place)
            expect(page.get_by_role("alert").first).to_contain_text("Sign in to see this page")
            expect(page.get_by_label("Token")).to_be_visible()
            expect(page.locator("main")).not_to_contain_text("1234")
        expect(page.locator("#pulse.off")).to_have_text("not signed in")
        visitor.picture("sign-in")
        visitor.forgive(401, 403)


def test_a_token_that_is_not_good_is_refused_with_the_reason(context: BrowserContext, guarded: Server) -> None:
    with looking(context, guarded) as visitor:
        page = visitor.go("topics")
        for bad in (
            "nonsense",
            token("looker", exp=1),
            token("looker", secret="another secret of at least thirty-two"),
        ):
            with page.expect_response("**/api/session") as refused:
                sign_in(page, bad)
            assert refused.value.status == 401
            expect(page.locator("form.token .notice.bad")).to_be_visible()
            assert page.evaluate("sessionStorage.length") == 0, "it is not kept"
        visitor.forgive(401, 403)


def test_whoever_signs_in_sees_what_the_token_allows(context: BrowserContext, guarded: Server) -> None:
    looker = token("looker")
    with looking(context, guarded) as visitor:
        page = visitor.go("topics")
        sign_in(page, looker)
        expect(page.get_by_role("link", name="safe.door")).to_be_visible()
        expect(page.locator("#who")).to_have_text("looker")
        expect(page.locator("#pulse.on")).to_be_visible()
        page = visitor.go("messages")
        expect(page.get_by_role("alert").first).to_contain_text("it needs the permission Consume")
        page = visitor.go("topics/safe.door")
        expect(page.locator("main")).to_contain_text("No permission to read messages")
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


def test_whoever_signs_out_sees_nothing_any_more(context: BrowserContext, guarded: Server) -> None:
    with looking(context, guarded) as visitor:
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


def test_the_administrators_token_is_asked_for_where_one_is_wanted(context: BrowserContext) -> None:
    with running_server(RACEWAY_SECURITY__ADMIN_TOKEN="open-sesame") as server:
        assert call(server, "POST", "/topics/a.b", b"{}").status == 201
        assert call(server, "GET", "/api/messages").status == 403
        with looking(context, server) as visitor:
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
