"""Roles and bindings over the Danube wire. All calls need `ManageCluster`."""

from __future__ import annotations

from typing import ClassVar

from raceway.model import security
from raceway.model.intents.roles import BindRole, DeleteBinding, DeleteRole, PutRole
from raceway.model.security import Permission, Principal
from raceway.model.topics import namespaced_topic, parse_namespace, parse_namespaced_topic
from raceway.wires.danube.codec.pb import danube_admin_pb2 as pb
from raceway.wires.danube.listen.calls import Caller, DanubeService, ask


class SecurityCalls(DanubeService):
    services: ClassVar[tuple[str, ...]] = ("danube_admin.SecurityAdmin",)
    needs: ClassVar[Permission | None] = "ManageCluster"
    records_changes: ClassVar[bool] = True

    def create_role(self, caller: Caller, request: pb.Role) -> PutRole:
        """Create a role, or replace the permissions of an existing one."""
        return PutRole(request.name, tuple(request.permissions))

    def get_role(self, caller: Caller, request: pb.RoleRequest) -> pb.Role:
        role = self._calls.permissions.role(request.name)
        return pb.Role(name=role.name, permissions=role.permissions)

    def list_roles(self, caller: Caller, request: pb.Empty) -> pb.RoleListResponse:
        roles = [pb.Role(name=role.name, permissions=role.permissions) for role in self._calls.permissions.roles()]
        return pb.RoleListResponse(roles=roles)

    def delete_role(self, caller: Caller, request: pb.RoleRequest) -> DeleteRole:
        return DeleteRole(request.name)

    async def create_binding(self, caller: Caller, request: pb.Binding) -> pb.Binding:
        principal = Principal(request.principal_type, request.principal_name)
        scope = request.scope.lower()
        return _shown(await ask(BindRole(principal, request.role, scope, _resource(scope, request.resource))))

    def get_binding(self, caller: Caller, request: pb.BindingRequest) -> pb.Binding:
        return _shown(self._calls.permissions.binding(request.id))

    def list_bindings(self, caller: Caller, request: pb.BindingListRequest) -> pb.BindingListResponse:
        """Return the bindings of exactly this scope and resource."""
        scope = request.scope.lower()
        wanted = (scope, _resource(scope, request.resource))
        found = [each for each in self._calls.permissions.bindings() if (each.scope, each.resource) == wanted]
        return pb.BindingListResponse(bindings=[_shown(each) for each in found])

    def list_all_bindings(self, caller: Caller, request: pb.Empty) -> pb.BindingListResponse:
        return pb.BindingListResponse(bindings=[_shown(each) for each in self._calls.permissions.bindings()])

    def delete_binding(self, caller: Caller, request: pb.BindingRequest) -> DeleteBinding:
        return DeleteBinding(request.id)


def _resource(scope: str, sent: str) -> str:
    """Return the canonical name of a resource. Raises NameInvalidError."""
    if scope == "topic" and sent:
        return parse_namespaced_topic(sent)
    return parse_namespace(sent) if scope == "namespace" and sent else sent


def _shown(binding: security.Binding) -> pb.Binding:
    resource = namespaced_topic(binding.resource) if binding.scope == "topic" else binding.resource
    return pb.Binding(
        id=binding.id, principal_type=binding.principal_type, principal_name=binding.principal_name,
        role=binding.role, scope=binding.scope, resource=resource,
    )  # fmt: skip
