from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.broker.runs import RowSpan
from raceway.broker.security.security import REMEMBERED, Security
from raceway.broker.topics import Topic
from raceway.errors import ForbiddenError, InUseError, InvalidValueError, UnknownBindingError, UnknownRoleError
from raceway.journal.state import State
from raceway.model.security import PERMISSIONS, Principal

TILL = Principal("service_account", "till")


class Kept(State):
    def keep(self, section: str, key: str, value: Any | None) -> None:
        self.put(section, key, value)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def open_security(kept: Kept, **settings: Any) -> Security:
    return Security(config.SecuritySettings(enabled=True, token_secret="x" * 32, **settings), kept, kept.keep)


@pytest.fixture
def security(kept: Kept) -> Security:
    return open_security(kept, super_admins=("root", "user:operator"))


def test_with_security_off_everything_is_allowed() -> None:
    Security(config.SecuritySettings(), State(), lambda *_: None).check(TILL, "ManageCluster")


def test_what_no_binding_allows_is_denied(security: Security) -> None:
    for permission in PERMISSIONS:
        with pytest.raises(ForbiddenError):
            security.check(TILL, permission, "orders")


@pytest.mark.parametrize(
    ("scope", "resource", "allowed"),
    [
        ("cluster", "", {"orders", "/shop/orders", None}),
        ("namespace", "default", {"orders"}),
        ("namespace", "shop", {"/shop/orders"}),
        ("topic", "orders", {"orders"}),
        ("topic", "/shop/orders", {"/shop/orders"}),
    ],
)
def test_a_scope_includes_what_lies_within_it(
    security: Security, scope: str, resource: str, allowed: set[str | None]
) -> None:
    security.put_role("seller", ["Produce"])
    security.bind(TILL, "seller", scope, resource)
    for topic in ("orders", "/shop/orders", None):
        assert security.allows(TILL, "Produce", topic) == (topic in allowed)
        assert not security.allows(TILL, "Consume", topic)


def test_a_namespace_is_asked_for_by_itself(security: Security) -> None:
    security.put_role("keeper", ["ManageNamespace"])
    security.bind(TILL, "keeper", "namespace", "shop")
    security.check_namespace(TILL, "ManageNamespace", "shop")
    with pytest.raises(ForbiddenError):
        security.check_namespace(TILL, "ManageNamespace", "default")


@pytest.mark.parametrize(
    ("principal", "is_one"),
    [
        (Principal("user", "root"), True),
        (Principal("service_account", "root"), True),
        (Principal("anonymous", "root"), False),
        (Principal("broker_internal", "root"), False),
        (Principal("user", "operator"), True),
        (Principal("service_account", "operator"), False),
    ],
)
def test_super_admins_are_those_the_configuration_names(security: Security, principal: Principal, is_one: bool) -> None:
    assert security.allows(principal, "ManageCluster", None) is is_one


def test_a_change_is_felt_at_once(security: Security) -> None:
    security.put_role("seller", ["Lookup"])
    binding = security.bind(TILL, "seller", "cluster")
    assert not security.allows(TILL, "Produce", "orders")
    security.put_role("seller", ["Produce"])
    assert security.allows(TILL, "Produce", "orders")
    assert not security.allows(TILL, "Lookup", "orders")
    security.unbind(binding.id)
    assert not security.allows(TILL, "Produce", "orders")


def test_roles_and_bindings_are_kept(security: Security, kept: Kept) -> None:
    security.put_role("seller", ["Produce"])
    made = security.bind(TILL, "seller", "topic", "orders")
    again = open_security(kept)
    assert again.allows(TILL, "Produce", "orders")
    assert again.bindings() == [made]
    assert again.roles() == security.roles()
    again.unbind(made.id)
    again.delete_role("seller")
    assert not open_security(kept).roles()


def test_a_binding_made_twice_is_one(security: Security) -> None:
    security.put_role("seller", ["Produce"])
    assert security.bind(TILL, "seller", "cluster") == security.bind(TILL, "seller", "cluster")
    assert len(security.bindings()) == 1


def test_a_role_that_is_bound_stays(security: Security) -> None:
    security.put_role("seller", ["Produce"])
    security.bind(TILL, "seller", "cluster")
    with pytest.raises(InUseError):
        security.delete_role("seller")


def test_what_is_unknown_is_said(security: Security) -> None:
    with pytest.raises(UnknownRoleError):
        security.role("seller")
    with pytest.raises(UnknownRoleError):
        security.bind(TILL, "seller", "cluster")
    with pytest.raises(UnknownBindingError):
        security.unbind("nothing")


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_role_needs_a_name(security: Security, name: str) -> None:
    with pytest.raises(InvalidValueError):
        security.put_role(name, ["Produce"])


def test_permissions_may_be_spelled_with_underscores(security: Security) -> None:
    assert security.put_role("any", ["manage_topic", "PRODUCE", "Produce"]).permissions == ("ManageTopic", "Produce")
    with pytest.raises(InvalidValueError, match="ManageBroker"):
        security.put_role("any", ["fly"])


def test_rows_of_topics_that_are_forbidden_are_refused(security: Security) -> None:
    security.put_role("seller", ["Produce"])
    security.bind(TILL, "seller", "topic", "orders")
    spans = [RowSpan(Topic(name), name.encode(), at, at + 2) for at, name in ((0, "orders"), (2, "payroll"))]
    refused: Any = []
    assert security.admit(TILL, "Produce", spans, refused) == spans[:1]
    [(start, stop, error)] = refused
    assert (start, stop, type(error)) == (2, 4, ForbiddenError)


def test_answers_that_are_remembered_are_bounded(security: Security) -> None:
    for number in range(REMEMBERED + 10):
        security.allows(TILL, "Produce", f"t{number}")
    assert len(security._known) <= REMEMBERED
