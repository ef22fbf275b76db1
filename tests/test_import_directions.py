"""Who may import whom. The rooms of `src/raceway` form layers; this test reads import statements and holds us to it.

Imports under `if TYPE_CHECKING:` count too: knowing a type of another layer is knowing the layer.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raceway import wires

ROOT = Path(__file__).parent.parent / "src" / "raceway"

# The module `raceway.wires` alone: a name stands for everything below it.
LIST = "wires (the list)"
WIRES = tuple(wire.name for wire in wires.WIRES)
VOCABULARY = {"errors", "model"}
RECORDS = {"wires.wire", LIST}
# What each room may import from the package besides itself. A name stands for everything below it.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "chance": set(),
    "config": {"errors"},
    "model": {"errors"},
    "journal": VOCABULARY | {"config", "chance"},
    "journal.kafka": VOCABULARY | {"config", "chance", "journal", "kafka"},
    "kafka": VOCABULARY | {"config", "net.client.address"},
    "cluster": VOCABULARY | {"config", "chance", "journal", "kafka"},
    "schema": VOCABULARY,
    "net": VOCABULARY | {"config", "chance"},
    "net.codec": VOCABULARY,
    "broker": VOCABULARY | {"config", "chance", "journal", "schema"}
    | {f"net.{part}" for part in ("runtime", "credits", "turn", "timers", "ids")},
    "link": VOCABULARY | {"broker", "net.runtime", "net.timers", "net.turn"},
    "link.codec": VOCABULARY,
    # The list of wires, and what a record is. Everything may ask them but what lies below the wires.
    "wires": {"config", "wires.wire"} | {f"wires.{wire}.wire" for wire in WIRES},
    "wires.wire": {"config"},
    "wires.server": {"config", "broker", "net"},
    "wires.captures": VOCABULARY | {"config", "journal.format"},
    "web": VOCABULARY | {"config", "schema", "journal", "broker", "net"} | RECORDS,
    "telemetry": VOCABULARY | {"config", "journal"},
    "mirror": VOCABULARY | {"config", "journal", "kafka", "net", "client"},
    "client": VOCABULARY | {"net"} | RECORDS | {f"wires.{wire}.client" for wire in WIRES},
    "pipeline": VOCABULARY | {"config", "journal", "schema", "wires.captures"} | RECORDS
    | {f"wires.{wire}.{part}" for wire in WIRES for part in ("capture", "codec")},
    "server": VOCABULARY | {"config", "cluster", "journal", "kafka", "schema", "broker", "link", "net", "web"}
    | RECORDS | {"wires.server", "telemetry"}
    | {"pipeline.spark"},  # asked whether Java and PySpark are there
    "testing": {"errors", "server.embedded"},
    "spark": {"errors", "config", "pipeline", LIST},
    # The demo is a command: it prints as commands do.
    "demo": VOCABULARY | {"config", "journal", "client", "server", "pipeline", "cli.bus", "cli.output", "cli.trace"},
}  # fmt: skip
for wire in WIRES:
    room = f"wires.{wire}"
    ALLOWED[room] = {"config", "wires.wire"}
    ALLOWED[f"{room}.codec"] = VOCABULARY | {"net.codec"}
    ALLOWED[f"{room}.client"] = VOCABULARY | {"config", "net", f"{room}.codec"}
    ALLOWED[f"{room}.capture"] = VOCABULARY | {
        "config", "net.codec", "wires.captures", f"{room}.codec", f"{room}.settings",
    }  # fmt: skip
    for part in ("listen", "dial"):
        ALLOWED[f"{room}.{part}"] = VOCABULARY | {"config", "chance", "net", "broker", "schema", "wires.server"} | {
            f"{room}.{other}" for other in ("codec", "listen", "dial", "settings")
        }  # fmt: skip
    ALLOWED[f"{room}.listen"].add("web.routing")  # routes of the wire on the console port
    ALLOWED[f"{room}.commands"] = VOCABULARY | {"client"} | {
        f"cli.{part}" for part in ("options", "output", "serve", "talk")
    }  # fmt: skip
TOP_LAYERS = {"cli", "__main__", "__init__"}  # these join the parts and may import everything
PURE = {"model", "net.codec", "schema", "link.codec"} | {f"wires.{wire}.codec" for wire in WIRES}
# Ids that the parts of this wire over sockets, and its captures, give to messages. Random, so no part of the codec.
ALLOWED["wires.seneca"].add("chance")
for part in ("listen", "client", "capture"):
    ALLOWED[f"wires.seneca.{part}"].add("wires.seneca.ids")
# Whatever touches the world: network, tasks, threads, processes, files, clocks, chance.
IMPURE_MODULES = {
    "aiofastnet", "asyncio", "concurrent", "fcntl", "http", "io", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "picows", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl",
    "starlette", "structlog", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "uvicorn", "uvloop",
}  # fmt: skip


def modules() -> dict[str, Path]:
    """Dotted name to file, for every module of the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that a module imports, wherever in the file, with their lines."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def module_of(dotted: str, known: dict[str, Path]) -> str | None:
    """The module of ours that `dotted` names, or lies in; None for foreign names."""
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


def room_of(module: str) -> str:
    """The innermost room that has a rule, without the package's name."""
    name = module.removeprefix("raceway").removeprefix(".") or "__init__"
    while name not in ALLOWED and "." in name:
        name = name.rpartition(".")[0]
    return name


def may_import(room: str, target: str) -> bool:
    if target == "raceway.wires":
        return LIST in ALLOWED[room]
    # The list of wires is a room without its subfolders.
    return is_in(target, ALLOWED[room] | ({room} if room != "wires" else set()))


def is_in(module: str, rooms: set[str]) -> bool:
    """Whether a module is one of these, or lies below one."""
    parts = module.removeprefix("raceway.").split(".")
    return any(".".join(parts[:count]) in rooms for count in range(1, len(parts) + 1))


MODULES = modules()


def test_every_folder_has_a_rule() -> None:
    assert {room_of(name) for name in MODULES} <= set(ALLOWED) | TOP_LAYERS


def test_rooms_import_only_what_lies_below_them() -> None:
    wrong = set()
    for name, path in MODULES.items():
        room = room_of(name)
        if room not in ALLOWED:
            continue
        for dotted, _ in imports(name, path):
            target = module_of(dotted, MODULES)
            if target is not None and target != "raceway" and not may_import(room, target):
                wrong.add((name.removeprefix("raceway."), target.removeprefix("raceway.")))
    assert wrong == set()


def test_pure_layers_touch_nothing_of_the_world() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {dotted}"
        for name, path in MODULES.items()
        if is_in(name, PURE)
        for dotted, line in imports(name, path)
        if dotted.split(".")[0] in IMPURE_MODULES
    ]
    assert wrong == []


def test_the_journal_knows_no_event_loop() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {dotted}"
        for name, path in MODULES.items()
        if is_in(name, {"journal"})
        for dotted, line in imports(name, path)
        if dotted.split(".")[0] in {"asyncio", "uvloop"}
    ]
    assert wrong == []


def test_no_modules_import_one_another_in_a_ring() -> None:
    graph = {name: _imported_modules(name, path) for name, path in MODULES.items()}
    assert list(_rings(graph)) == []


def _imported_modules(name: str, path: Path) -> set[str]:
    targets = {module_of(dotted, MODULES) for dotted, _ in imports(name, path)}
    return {target for target in targets if target is not None and target != name}


def _rings(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """One ring per module that can reach itself (depth first, each module once)."""
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> Iterator[list[str]]:
        if name in trail:
            yield [*trail[trail.index(name) :], name]
            return
        if name in done:
            return
        for target in sorted(graph[name]):
            yield from visit(target, [*trail, name])
        done.add(name)

    for name in sorted(graph):
        yield from visit(name, [])


def test_the_ring_finder_finds_a_ring() -> None:
    assert list(_rings({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == [["a", "b", "c", "a"]]
    assert list(_rings({"a": {"b", "c"}, "b": {"c"}, "c": set()})) == []


def test_relative_imports_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "mb.py"
    file.write_text("from ..model import envelope\nfrom . import buffer\nimport asyncio.events\n")
    assert [dotted for dotted, _ in imports("raceway.wires.mb.codec.receiver", file)] == [
        "raceway.wires.mb.model.envelope", "raceway.wires.mb.codec.buffer", "asyncio.events",
    ]  # fmt: skip


@pytest.mark.parametrize("module", ["raceway", "raceway.cli.app"])
def test_importing_raceway_pulls_in_nothing_heavy(module: str) -> None:
    """Spark never; for the command line also no Arrow and no server: `raceway --help` must be quick."""
    heavy = {"pyspark", "pandas", "py4j", "opentelemetry"} | (
        {"pyarrow", "uvicorn", "starlette", "structlog", "picows"}
    )
    code = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == ""


def test_the_server_pulls_in_no_spark() -> None:
    names = [name for name in MODULES if not is_in(name, {"pipeline", "__main__"})]
    code = f"import sys, {', '.join(names)}; print(*sorted({{'pyspark', 'py4j'}} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == ""
