"""Authentication and authorization: tokens, roles, bindings, permission checks.

With security off nothing is checked. With security on everything is denied that no binding allows; super admins, named
in the configuration, may do everything and create the first bindings. Roles and bindings are stored in the journal's
state.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from raceway import config
from raceway.broker.runs import Refused, RowSpan
from raceway.broker.security.guesses import Guesses
from raceway.broker.security.tokens import TokenReader, claimed
from raceway.errors import (
    ForbiddenError,
    InUseError,
    InvalidValueError,
    UnauthenticatedError,
    UnknownBindingError,
    UnknownRoleError,
)
from raceway.journal.state import State
from raceway.model.intents.roles import BindRole, DeleteBinding, DeleteRole, PutRole
from raceway.model.intents.security import Identify, ProveAdministrator
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
from raceway.net.ids import random_id

ROLES, BINDINGS = "roles", "bindings"
# Size of the cache of decisions: topics are named by peers.
REMEMBERED = 65_536
# Stands for any topic in the cache; no topic has this name.
SOMEWHERE = "*"


class Security:
    """Roles, bindings and permission checks. `keep` stores a value in the journal's state: section, key, value."""

    def __init__(
        self, settings: config.SecuritySettings, state: State, keep: Callable[[str, str, Any | None], None]
    ) -> None:
        self._keep = keep
        self.enabled = settings.enabled
        self.admin_token = settings.admin_token
        self._tokens = TokenReader(settings, time.time)
        self.guesses = Guesses(settings, time.monotonic)
        self._super_admins = frozenset(settings.super_admins)
        self._roles = {name: msgspec.convert(value, Role) for name, value in state.section(ROLES).items()}
        self._bindings = {name: msgspec.convert(value, Binding) for name, value in state.section(BINDINGS).items()}
        self._known: dict[tuple[Principal, Permission, str | None], bool] = {}
        # Called after each change of roles or bindings, to end what is no longer allowed.
        self.changed: Callable[[], None] = lambda: None

    def calls(self, changing: Callable[[Callable[[Any], Any]], Callable[[Any, Any], Any]]) -> dict[type, Any]:
        """Return the handlers of intents; `changing` makes one whose outcome comes after the commit."""
        return {
            Identify: lambda peer, call: self.identify(call.authorization, peer.wire.decode(), call.address),
            ProveAdministrator: lambda peer, call: self.is_administrator(
                call.token.encode(), (call.code,), call.address
            ),
            PutRole: changing(lambda call: self.put_role(call.name, call.permissions)),
            DeleteRole: changing(lambda call: self.delete_role(call.name)),
            BindRole: changing(lambda call: self.bind(call.principal, call.role, call.scope, call.resource)),
            DeleteBinding: changing(lambda call: self.unbind(call.binding_id)),
        }

    def identify(self, authorization: str | None, wire: str, address: str) -> Principal:
        """Return the principal of a token; anonymous without one or with security off.

        `address` is the host it comes from. Raises UnauthenticatedError for an invalid token.
        """
        if not authorization or not self.enabled:
            return Principal(ANONYMOUS, wire)
        try:
            proof = self._tokens.proof(authorization)
        except UnauthenticatedError:
            self.guesses.fail((address, *claimed(authorization)))  # shared secrets are counted under keys of their own
            raise
        return self._tokens.unexpired(authorization, proof)

    def is_administrator(self, given: bytes, codes: Iterable[str], address: str) -> bool:
        """Return whether this is one of the administrator's tokens, compared in constant time. Failures are counted.

        Raises TooManyFailuresError while the address must wait.
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

    # ---- permissions -------------------------------------------------------------------------------------------------

    def check(self, principal: Principal, permission: Permission, topic: str | None = None) -> None:
        """Check a permission on a topic (canonical name), or on the whole cluster if None. Raises ForbiddenError."""
        if self.enabled and not self.allows(principal, permission, topic):
            raise ForbiddenError(str(principal), f"{permission} on {'the cluster' if topic is None else topic}")

    def check_namespace(self, principal: Principal, permission: Permission, namespace: str) -> None:
        """Check a permission in a namespace. Raises ForbiddenError."""
        if self.enabled and not self._allows_at(principal, permission, {("cluster", ""), ("namespace", namespace)}):
            raise ForbiddenError(str(principal), f"{permission} in namespace {namespace}")

    def admit(
        self, principal: Principal, permission: Permission, spans: list[RowSpan], refused: Refused
    ) -> list[RowSpan]:
        """Return the spans of topics with the permission, and add the rows of the others to `refused`."""
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
            allowed = self._decided(key, scopes)
        return allowed

    def allows_somewhere(self, principal: Principal, permission: Permission) -> bool:
        """Return whether the permission is granted on the cluster, any namespace or any topic. A cheap first check."""
        key = (principal, permission, SOMEWHERE)
        allowed = self._known.get(key)
        if allowed is None:
            allowed = self._decided(key, {(binding.scope, binding.resource) for binding in self._bindings.values()})
        return allowed

    def _decided(self, key: tuple[Principal, Permission, str | None], scopes: set[tuple[Scope, str]]) -> bool:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        allowed = self._known[key] = self._allows_at(key[0], key[1], scopes)
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
        """Return whether this is a super admin. A bare name in the configuration never means an anonymous principal."""
        if principal is OWNER or str(principal) in self._super_admins:
            return True
        return principal.type in ("user", "service_account") and principal.name in self._super_admins

    # ---- roles -------------------------------------------------------------------------------------------------------

    def put_role(self, name: str, permissions: Iterable[str]) -> Role:
        """Create a role, or replace the permissions of an existing one. Raises InvalidValueError."""
        if not name or len(name) > 255:
            raise InvalidValueError("the name of a role", "must have 1 to 255 characters")
        by_fold = {permission.lower(): permission for permission in PERMISSIONS}
        wanted = []
        for permission in permissions:
            known = by_fold.get(permission.replace("_", "").lower())
            if known is None:
                raise InvalidValueError(f"permission {permission!r}", f"must be one of {', '.join(PERMISSIONS)}")
            wanted.append(known)
        role = msgspec.convert({"name": name, "permissions": sorted(set(wanted))}, Role)
        self._roles[name] = role
        self._put(ROLES, name, role)
        return role

    def role(self, name: str) -> Role:
        """Return a role. Raises UnknownRoleError."""
        if name not in self._roles:
            raise UnknownRoleError(name)
        return self._roles[name]

    def roles(self) -> list[Role]:
        return [self._roles[name] for name in sorted(self._roles)]

    def delete_role(self, name: str) -> None:
        """Delete a role. Raises UnknownRoleError, or InUseError while it is bound."""
        self.role(name)
        bound = next((binding.id for binding in self._bindings.values() if binding.role == name), None)
        if bound is not None:
            raise InUseError(f"role {name!r}", f"binding {bound}")
        del self._roles[name]
        self._put(ROLES, name, None)

    # ---- bindings ----------------------------------------------------------------------------------------------------

    def bind(self, principal: Principal, role: str, scope: str, resource: str = "") -> Binding:
        """Bind a role to a principal; return the existing binding if there is one.

        `resource` is the namespace, or the canonical name of the topic. Raises UnknownRoleError, InvalidValueError.
        """
        self.role(role)
        if principal.type not in PRINCIPAL_TYPES or not principal.name:
            raise InvalidValueError(
                f"principal {str(principal)!r}", f"type must be one of {', '.join(PRINCIPAL_TYPES)}"
            )
        if scope not in SCOPES or bool(resource) == (scope == "cluster"):
            raise InvalidValueError("the scope", "must be cluster without a resource, or namespace or topic with one")
        wanted = Binding("", *principal, role, scope, resource)
        for binding in self._bindings.values():
            if msgspec.structs.replace(binding, id="") == wanted:
                return binding
        binding = msgspec.structs.replace(wanted, id=random_id().decode())
        self._bindings[binding.id] = binding
        self._put(BINDINGS, binding.id, binding)
        return binding

    def binding(self, binding_id: str) -> Binding:
        """Return a binding. Raises UnknownBindingError."""
        if binding_id not in self._bindings:
            raise UnknownBindingError(binding_id)
        return self._bindings[binding_id]

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    def unbind(self, binding_id: str) -> None:
        """Delete a binding. Raises UnknownBindingError."""
        self.binding(binding_id)
        del self._bindings[binding_id]
        self._put(BINDINGS, binding_id, None)

    def _put(self, section: str, key: str, value: Role | Binding | None) -> None:
        self._known.clear()
        self._keep(section, key, None if value is None else msgspec.to_builtins(value))
        if self.enabled:
            self.changed()
