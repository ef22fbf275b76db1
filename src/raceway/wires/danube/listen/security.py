"""Roles and bindings over the Danube wire. All calls need `ManageCluster`."""

from __future__ import annotations

from raceway.model import security
from raceway.model.intents.roles import BindRole, DeleteBinding, DeleteRole, PutRole
from raceway.model.security import Principal
from raceway.model.topics import namespaced_topic, parse_namespace, parse_namespaced_topic
from raceway.net.grpc import Methods
from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    Binding,
    BindingListRequest,
    BindingListResponse,
    BindingRequest,
    Empty,
    Role,
    RoleListResponse,
    RoleRequest,
    SecurityResponse,
)
from raceway.wires.danube.listen.calls import Caller, DanubeCalls, Handlers, ask


class SecurityCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        self._security = calls.permissions

    def join(self, methods: Methods) -> None:
        handlers: Handlers = {
            "CreateRole": (Role, self._create_role),
            "GetRole": (RoleRequest, self._get_role),
            "ListRoles": (Empty, self._list_roles),
            "DeleteRole": (RoleRequest, self._delete_role),
            "CreateBinding": (Binding, self._create_binding),
            "GetBinding": (BindingRequest, self._get_binding),
            "ListBindings": (BindingListRequest, self._list_bindings),
            "ListAllBindings": (Empty, self._list_all_bindings),
            "DeleteBinding": (BindingRequest, self._delete_binding),
        }
        self._calls.serve(methods, "danube_admin.SecurityAdmin", handlers)

    async def _create_role(self, caller: Caller, request: Role) -> SecurityResponse:
        """Create a role, or replace the permissions of an existing one."""
        self._calls.check(caller, "ManageCluster")
        await ask(PutRole(request.name, tuple(request.permissions)))
        return SecurityResponse(success=True)

    def _get_role(self, caller: Caller, request: RoleRequest) -> Role:
        self._calls.check(caller, "ManageCluster")
        role = self._security.role(request.name)
        return Role(name=role.name, permissions=role.permissions)

    def _list_roles(self, caller: Caller, request: Empty) -> RoleListResponse:
        self._calls.check(caller, "ManageCluster")
        roles = [Role(name=role.name, permissions=role.permissions) for role in self._security.roles()]
        return RoleListResponse(roles=roles)

    async def _delete_role(self, caller: Caller, request: RoleRequest) -> SecurityResponse:
        self._calls.check(caller, "ManageCluster")
        await ask(DeleteRole(request.name))
        return SecurityResponse(success=True)

    async def _create_binding(self, caller: Caller, request: Binding) -> Binding:
        self._calls.check(caller, "ManageCluster")
        principal = Principal(request.principal_type, request.principal_name)
        scope = request.scope.lower()
        return _shown(await ask(BindRole(principal, request.role, scope, _resource(scope, request.resource))))

    def _get_binding(self, caller: Caller, request: BindingRequest) -> Binding:
        self._calls.check(caller, "ManageCluster")
        return _shown(self._security.binding(request.id))

    def _list_bindings(self, caller: Caller, request: BindingListRequest) -> BindingListResponse:
        """Return the bindings of exactly this scope and resource."""
        self._calls.check(caller, "ManageCluster")
        scope = request.scope.lower()
        wanted = (scope, _resource(scope, request.resource))
        found = [each for each in self._security.bindings() if (each.scope, each.resource) == wanted]
        return BindingListResponse(bindings=[_shown(each) for each in found])

    def _list_all_bindings(self, caller: Caller, request: Empty) -> BindingListResponse:
        self._calls.check(caller, "ManageCluster")
        return BindingListResponse(bindings=[_shown(each) for each in self._security.bindings()])

    async def _delete_binding(self, caller: Caller, request: BindingRequest) -> SecurityResponse:
        self._calls.check(caller, "ManageCluster")
        await ask(DeleteBinding(request.id))
        return SecurityResponse(success=True)


def _resource(scope: str, sent: str) -> str:
    """Return the canonical name of a resource. Raises NameInvalidError."""
    if scope == "topic" and sent:
        return parse_namespaced_topic(sent)
    return parse_namespace(sent) if scope == "namespace" and sent else sent


def _shown(binding: security.Binding) -> Binding:
    resource = namespaced_topic(binding.resource) if binding.scope == "topic" else binding.resource
    return Binding(
        id=binding.id, principal_type=binding.principal_type, principal_name=binding.principal_name,
        role=binding.role, scope=binding.scope, resource=resource,
    )  # fmt: skip
