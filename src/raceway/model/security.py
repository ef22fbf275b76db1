"""Principals, roles and bindings: the records of access control.

A role is a list of permissions. A binding grants a role to a principal in a scope: everywhere, in one Danube namespace,
or on one topic. A permission in a scope includes the narrower scopes within it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import msgspec

Permission = Literal[
    "Lookup", "Produce", "Consume", "Replicate", "ManageNamespace", "ManageTopic", "ManageSchema", "ManageBroker",
    "ManageCluster",
]  # fmt: skip
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
Scope = Literal["cluster", "namespace", "topic"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

ANONYMOUS = "anonymous"
PRINCIPAL_TYPES = ("service_account", "user", "broker_internal", ANONYMOUS)


class Principal(NamedTuple):
    """An authenticated identity. Peers without one have type `anonymous` and the name of their wire."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# The holder of the administrator's token. Tokens and bindings cannot name it: "owner" is not in PRINCIPAL_TYPES.
OWNER = Principal("owner", "administrator")


class Role(msgspec.Struct, frozen=True):
    """A named list of permissions."""

    name: str
    permissions: tuple[Permission, ...]


class Binding(msgspec.Struct, frozen=True):
    """A role granted to a principal. `resource` is the namespace or the canonical topic; empty for the cluster."""

    id: str
    principal_type: str
    principal_name: str
    role: str
    scope: Scope
    resource: str = ""
