"""The page of the Python clients, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from docs.generate.markdown import page, paragraphs, table
from raceway import client, testing, wires
from raceway.client import app
from raceway.client.http import SCHEMES as HTTP

# What one calls first, then what that gives.
FIRST = (
    "connect", "Options", "Client", "MessageStream", "Receipt", "Content", "MbClient", "DanubeClient",
    "ZbusClient", "TrackedClient", "SenecaClient", "HttpClient",
)  # fmt: skip
PROGRAMS = ("App", "Router", "memory_bus", "MemoryBus")
ELSEWHERE = "See the module."
# What the client calls on what it gives out.
OF_THE_CLIENT = {"put", "end", "join", "maybe_action", "parent_id", "settle"}


def client_page() -> str:
    names = [*FIRST, *(name for name in client.__all__ if name not in FIRST)]
    lines = [
        "`raceway.client` has clients of all four wires and of HTTP, with asyncio; `raceway.client.sync` has the same",
        "without: every verb below blocks there instead of being awaited, and handlers run in threads. Both begin",
        "with `connect`, whose URL chooses the wire:",
        "",
        *table(["URL", "default port", "`wire`", "client"], _schemes()),
        "`connect(url)` returns a [Client](#client), with the methods that all wires have in common. With `wire=`",
        "editors and type checkers know that it is the class in the last column, with its methods and arguments; at",
        "run time it is that class in any case. A `wire` that is not the URL's is refused.",
        "",
        "What is refused is raised: `RemoteError` with the wire's own code as `reported`, `ConnectionLostError` for",
        "calls that were under way when the connection ended. All are in [errors](errors.md).",
        "",
    ]
    numbers = [name for name in names if isinstance(getattr(client, name), int)]
    lines += ["Modes of queues, which may be added:", ""]
    lines += table(["name", "number"], [(f"`{name}`", str(getattr(client, name))) for name in numbers])
    for name in names:
        found = getattr(client, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            lines += _one(name, found)
    for module, title in ((app, "Programs of handlers"), (testing, "Tests without a server")):
        lines += [f"## {title}: `{module.__name__}`", "", paragraphs(inspect.getdoc(module) or ""), ""]
        for name, found in vars(module).items():
            if not name.startswith("_") and getattr(found, "__module__", "") == module.__name__ and name in PROGRAMS:
                lines += _one(name, found)
    return page("Python clients", *lines)


def _schemes() -> list[tuple[str, str, str, str]]:
    over_http = [
        (f"`{scheme}://HOST[:PORT]`", str(port), "`http`", _link("HttpClient")) for scheme, port in HTTP.items()
    ]
    return over_http + [
        (f"`{scheme}://HOST[:PORT]`", str(found.default_port), f"`{found.name}`", _link(found.client.partition(":")[2]))
        for scheme, found in wires.schemes().items()
    ]


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _one(name: str, found: Any) -> list[str]:
    lines = [f"## {name}", ""]
    if inspect.isfunction(found):
        lines += [f"    {name}{_signature(found)}", ""]
    lines += [_told(found), ""]
    if inspect.isclass(found):
        lines += _inherited(found)
        lines += [*_fields(found), *_members(found), ""]
    return lines


def _told(found: Any) -> str:
    """Its own docstring; where that sends to the module's, that one too."""
    own = inspect.cleandoc(vars(found).get("__doc__") or "") if inspect.isclass(found) else inspect.getdoc(found) or ""
    if own.startswith(ELSEWHERE):
        module = inspect.getdoc(sys.modules[found.__module__]) or ""
        own = module + "\n\n" + own.removeprefix(ELSEWHERE).strip()
    return paragraphs(own)


def _inherited(kind: type) -> list[str]:
    """A line about a base class that has a section of its own."""
    bases = [base.__name__ for base in kind.__bases__ if base.__name__ in client.__all__]
    return [line for name in bases for line in (f"In addition to the methods of [{name}](#{name.lower()}):", "")]


def _fields(kind: type) -> Iterator[str]:
    """Of a record."""
    if issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            default = "" if field.default is msgspec.NODEFAULT else f" = {field.default!r}"
            yield f"- `{field.name}: {kind.__annotations__.get(field.name, 'Any')}{default}`"


def _members(kind: type) -> Iterator[str]:
    """Verbs and properties that a class itself has, in its own order."""
    for name, member in vars(kind).items():
        if name.startswith("_") or name in OF_THE_CLIENT:
            continue
        if isinstance(member, property):
            yield f"- `{name}`: {_first(member.fget)}".rstrip(": ")
        elif inspect.isfunction(member):
            yield f"- `{name}{_signature(member)}` {_first(member)}".rstrip()


def _first(member: Any) -> str:
    """The first paragraph, on one line."""
    return paragraphs(inspect.getdoc(member) or "").split("\n\n")[0]


def _signature(function: Any) -> str:
    """As it is written, types being text there."""
    signature = inspect.signature(function)
    shown: list[str] = []
    for name, parameter in signature.parameters.items():
        if name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in shown):
            shown.append("*")
        stars = {int(parameter.VAR_KEYWORD): "**", int(parameter.VAR_POSITIONAL): "*"}
        star = stars.get(int(parameter.kind), "")
        shown_default = getattr(parameter.default, "__name__", None) or repr(parameter.default)
        default = "" if parameter.default is parameter.empty else f" = {shown_default}"
        shown.append(f"{star}{name}: {parameter.annotation}{default}")
    return f"({', '.join(shown)}) -> {signature.return_annotation}"
