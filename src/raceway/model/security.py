"""Who somebody is, and what roles may allow: the words of the bus's access control.

A role is a list of permissions. A binding gives a role to a principal at a scope: everywhere, in one Danube namespace,
or on one topic. What is allowed at a scope is allowed at the narrower ones within it.
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
    """`anonymous` for those who did not say; their name is their wire."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# Whoever shows the administrator's own token. No other token and no binding can name it.
OWNER = Principal("owner", "administrator")


class Role(msgspec.Struct, frozen=True):
    name: str
    permissions: tuple[Permission, ...]


class Binding(msgspec.Struct, frozen=True):
    """`resource` names the namespace or the topic (as the bus knows it); empty for the cluster."""

    id: str
    principal_type: str
    principal_name: str
    role: str
    scope: Scope
    resource: str = ""
