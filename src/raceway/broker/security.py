"""Who may do what: roles, bindings, and the question that every door asks.

With security off nothing is asked. With it on everything is denied that no binding allows; super admins, named in the
configuration, may do all, and are how the first binding is made. Roles and bindings are kept in the journal's state.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from raceway import config
from raceway.broker.guesses import Guesses
from raceway.broker.runs import Refused, Span
from raceway.broker.tokens import TokenReader, claimed
from raceway.broker.tracing import random_id
from raceway.errors import (
    ForbiddenError,
    InUseError,
    InvalidValueError,
    UnauthenticatedError,
    UnknownBindingError,
    UnknownRoleError,
)
from raceway.journal.state import State
from raceway.model.security import (
    ANONYMOUS,
    OWNER,
    PERMISSIONS,
    PRINCIPAL_TYPES,
    SCOPES,
    Binding,
    Permission,
    Principal,
    Role,
    Scope,
)
from raceway.model.topics import namespace_of

ROLES, BINDINGS = "roles", "bindings"
# Answers that are remembered, because topics are named by peers.
REMEMBERED = 65_536


class Security:
    """`keep` remembers something small in the journal: section, key, value."""

    def __init__(self, settings: config.Security, state: State, keep: Callable[[str, str, Any | None], None]) -> None:
        self._keep = keep
        self.enabled = settings.enabled
        self._tokens = TokenReader(settings, time.time)
        self.guesses = Guesses(settings, time.monotonic)
        self._super_admins = frozenset(settings.super_admins)
        self._roles = {name: msgspec.convert(value, Role) for name, value in state.section(ROLES).items()}
        self._bindings = {name: msgspec.convert(value, Binding) for name, value in state.section(BINDINGS).items()}
        self._known: dict[tuple[Principal, Permission, str | None], bool] = {}
        self._somewhere: dict[tuple[Principal, Permission], bool] = {}
        # Called after each change: what it took away ends at once.
        self.changed: Callable[[], None] = lambda: None

    def identify(self, authorization: str | None, wire: str, address: str) -> Principal:
        """Who shows this token; without one, nobody known. Raises UnauthenticatedError for one that is not good.

        `address` is the host it comes from. With security off nobody looks.
        """
        if not authorization or not self.enabled:
            return Principal(ANONYMOUS, wire)
        try:
            proof = self._tokens.proof(authorization)
        except UnauthenticatedError:
            self.guesses.fail((address, *claimed(authorization)))  # of tokens; codes have keys of their own
            raise
        return self._tokens.unexpired(authorization, proof)

    def is_administrator(self, given: bytes, codes: Iterable[str], address: str) -> bool:
        """Is this one of the codes that open administration, as far as there are any? Looked at in constant time.

        Raises TooManyFailuresError while the address must wait; a wrong one counts.
        """
        known = [code.encode() for code in codes if code]
        if not given or not known:
            return False
        key = f"{address} administrator"
        self.guesses.check((key,))
        if any(hmac.compare_digest(given, code) for code in known):
            return True
        self.guesses.fail((key,))
        return False

    # ---- the question ------------------------------------------------------------------------------------------------

    def check(self, principal: Principal, permission: Permission, topic: str | None = None) -> None:
        """Raises ForbiddenError. `topic` is a canonical name; None asks for the whole cluster."""
        if self.enabled and not self.allows(principal, permission, topic):
            raise ForbiddenError(str(principal), f"{permission} on {'the cluster' if topic is None else topic}")

    def check_namespace(self, principal: Principal, permission: Permission, namespace: str) -> None:
        """Raises ForbiddenError."""
        if self.enabled and not self._allows_at(principal, permission, {("cluster", ""), ("namespace", namespace)}):
            raise ForbiddenError(str(principal), f"{permission} in namespace {namespace}")

    def admit(self, principal: Principal, permission: Permission, spans: list[Span], refused: Refused) -> list[Span]:
        """Spans of topics on which that is allowed; the others' rows are refused."""
        if not self.enabled:
            return spans
        admitted = []
        for span in spans:
            if self.allows(principal, permission, span.topic.name):
                admitted.append(span)
            else:
                error = ForbiddenError(str(principal), f"{permission} on {span.topic.name}")
                refused.append((span.start, span.stop, error))
        return admitted

    def allows(self, principal: Principal, permission: Permission, topic: str | None) -> bool:
        key = (principal, permission, topic)
        allowed = self._known.get(key)
        if allowed is None:
            scopes: set[tuple[Scope, str]] = {("cluster", "")}
            if topic is not None:
                scopes |= {("namespace", namespace_of(topic)), ("topic", topic)}
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            allowed = self._known[key] = self._allows_at(principal, permission, scopes)
        return allowed

    def allows_somewhere(self, principal: Principal, permission: Permission) -> bool:
        """Is that allowed on the cluster, in any namespace, or on any topic? Asked before any work is done."""
        key = (principal, permission)
        allowed = self._somewhere.get(key)
        if allowed is None:
            scopes = {(binding.scope, binding.resource) for binding in self._bindings.values()}
            if len(self._somewhere) >= REMEMBERED:
                self._somewhere.clear()
            allowed = self._somewhere[key] = self._allows_at(principal, permission, scopes)
        return allowed

    def _allows_at(self, principal: Principal, permission: Permission, scopes: set[tuple[Scope, str]]) -> bool:
        if self.is_super_admin(principal):
            return True
        return any(
            permission in self._roles[binding.role].permissions
            for binding in self._bindings.values()
            if (binding.principal_type, binding.principal_name) == principal
            and (binding.scope, binding.resource) in scopes
            and binding.role in self._roles
        )

    def is_super_admin(self, principal: Principal) -> bool:
        """A name alone in the configuration means a user or service account of that name, never somebody unknown."""
        if principal is OWNER or str(principal) in self._super_admins:
            return True
        return principal.type in ("user", "service_account") and principal.name in self._super_admins

    # ---- roles -------------------------------------------------------------------------------------------------------

    def put_role(self, name: str, permissions: Iterable[str]) -> Role:
        """Make a role, or give an existing one these permissions. Raises InvalidValueError."""
        if not name or len(name) > 255:
            raise InvalidValueError("the name of a role", "it must have 1 to 255 characters")
        by_fold = {permission.lower(): permission for permission in PERMISSIONS}
        wanted = []
        for permission in permissions:
            known = by_fold.get(permission.replace("_", "").lower())
            if known is None:
                raise InvalidValueError(f"permission {permission!r}", f"known are {', '.join(PERMISSIONS)}")
            wanted.append(known)
        role = msgspec.convert({"name": name, "permissions": sorted(set(wanted))}, Role)
        self._roles[name] = role
        self._put(ROLES, name, role)
        return role

    def role(self, name: str) -> Role:
        """Raises UnknownRoleError."""
        if name not in self._roles:
            raise UnknownRoleError(name)
        return self._roles[name]

    def roles(self) -> list[Role]:
        return [self._roles[name] for name in sorted(self._roles)]

    def delete_role(self, name: str) -> None:
        """Raises UnknownRoleError, or InUseError while it is bound."""
        self.role(name)
        bound = next((binding.id for binding in self._bindings.values() if binding.role == name), None)
        if bound is not None:
            raise InUseError(f"role {name!r}", f"binding {bound}")
        del self._roles[name]
        self._put(ROLES, name, None)

    # ---- bindings ----------------------------------------------------------------------------------------------------

    def bind(self, principal: Principal, role: str, scope: str, resource: str = "") -> Binding:
        """Give a role to a principal; a repeat gives the binding there is. Raises UnknownRoleError, InvalidValueError.

        `resource` is the namespace, or the canonical name of the topic, in normal form.
        """
        self.role(role)
        if principal.type not in PRINCIPAL_TYPES or not principal.name:
            raise InvalidValueError(f"principal {str(principal)!r}", f"its type is one of {', '.join(PRINCIPAL_TYPES)}")
        if scope not in SCOPES or bool(resource) == (scope == "cluster"):
            raise InvalidValueError("the scope", "it is cluster without, or namespace or topic with a resource")
        wanted = Binding("", *principal, role, scope, resource)
        for binding in self._bindings.values():
            if msgspec.structs.replace(binding, id="") == wanted:
                return binding
        binding = msgspec.structs.replace(wanted, id=random_id().decode())
        self._bindings[binding.id] = binding
        self._put(BINDINGS, binding.id, binding)
        return binding

    def binding(self, binding_id: str) -> Binding:
        """Raises UnknownBindingError."""
        if binding_id not in self._bindings:
            raise UnknownBindingError(binding_id)
        return self._bindings[binding_id]

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    def unbind(self, binding_id: str) -> None:
        """Raises UnknownBindingError."""
        self.binding(binding_id)
        del self._bindings[binding_id]
        self._put(BINDINGS, binding_id, None)

    def _put(self, section: str, key: str, value: Role | Binding | None) -> None:
        self._known.clear()
        self._somewhere.clear()
        self._keep(section, key, None if value is None else msgspec.to_builtins(value))
        if self.enabled:
            self.changed()
