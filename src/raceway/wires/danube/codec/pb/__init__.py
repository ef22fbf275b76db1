"""Messages of the Danube wire, from the `.proto` files beside this one.

`make protos` writes the modules: `<name>_pb2.py` with the compiled descriptor, `<name>_pb2.pyi` with the types. They
have a pool of their own: protobuf's would refuse a second file with the same symbols, and a process that holds both
this broker and a Danube client has two.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()


def load(serialized: bytes) -> dict[str, Any]:
    """Contents of a generated module: `DESCRIPTOR`, message classes and enums by name, and the values of enums."""
    found = POOL.AddSerializedFile(serialized)
    file = POOL.FindFileByName(found.name)
    members: dict[str, Any] = {"DESCRIPTOR": file}
    for name, message in file.message_types_by_name.items():
        members[name] = GetMessageClass(message)
    for name, enum in file.enum_types_by_name.items():
        members[name] = EnumTypeWrapper(enum)
        members.update({value.name: value.number for value in enum.values})
    return members
