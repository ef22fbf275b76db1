"""Permissions of principals."""

from __future__ import annotations

from raceway.broker.security.security import Security


class PermissionView:
    """`check` raises ForbiddenError. With security off (`enabled`) it never does; `allows` then has no meaning."""

    def __init__(self, security: Security) -> None:
        self.enabled = security.enabled
        self.allows, self.allows_somewhere, self.check = security.allows, security.allows_somewhere, security.check
        self.check_namespace, self.identify = security.check_namespace, security.identify
        self.role, self.roles = security.role, security.roles
        self.binding, self.bindings = security.binding, security.bindings
