"""Intents of administrators about roles and bindings. Outcomes come after the commit."""

from __future__ import annotations

from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.security import Binding, Principal, Role


class PutRole(IntentFor[Role], frozen=True):
    """Create a role, or replace the permissions of an existing one."""

    name: str
    permissions: tuple[str, ...]


class DeleteRole(IntentFor[Done], frozen=True):
    """Delete a role that is not bound."""

    name: str


class BindRole(IntentFor[Binding], frozen=True):
    """Bind a role to a principal. `resource` is the namespace, or the canonical name of the topic."""

    principal: Principal
    role: str
    scope: str
    resource: str = ""


class DeleteBinding(IntentFor[Done], frozen=True):
    """Delete a binding."""

    binding_id: str
