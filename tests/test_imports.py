"""Files import what is below them: no circles, and packages in one order."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "python" / "convoy"

#: Packages (folders and top-level modules) from the lowest to the highest. A file may import from
#: its own package and from those in front of it, inside functions too.
ORDER = [
    "errors", "paths", "source_text", "wheels", "atomic_file", "progress", "programmatic",
    "child_process", "threads", "ir", "onnx", "runtime", "graph", "ops", "tir",
    "normalize", "partition", "lower", "backends", "measure",
    "records", "cost", "placement", "streams", "build_options", "build_cache", "pipeline",
    "training", "report", "tune", "graph_executor", "relay", "frontend", "inference_session",
    "pytorch", "bench", "demo", "cli", "__main__",
]  # fmt: skip

#: Imports that run upward, "file -> package", with the reason. An entry that is no longer needed
#: fails the test as well.
ALLOWED = {
    "graph_executor.module -> relay": "parameter files are Relay's",
    "placement.concurrent -> streams": "kernels are chosen together with their streams",
    "placement.simulated -> streams": "the search simulates schedules",
}

#: Packages whose files import each other in a circle, with the reason; checked like ALLOWED.
CIRCLES: dict[tuple[str, ...], str] = {}


def _modules() -> dict[str, Path]:
    """Paths by dotted name inside the package; packages under their own name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below ``if TYPE_CHECKING``."""
    yield node
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        children: list[ast.AST] = list(node.orelse)
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from _runtime_nodes(child)


def _imports(name: str, path: Path) -> set[str]:
    """Modules of the package that a file imports; the root package stands for its version."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: set[str] = set()
    for node in _runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(a.name[7:] for a in node.names if a.name.startswith("convoy."))
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                base = package[: len(package) - (node.level - 1)] if package != [""] else []
                source = ".".join(["convoy", *base, *([source] if source else [])])
            if source.partition(".")[0] != "convoy":
                continue
            source = source[7:]
            for alias in node.names:
                inner = f"{source}.{alias.name}" if source else alias.name
                found.add(inner if inner in MODULES else source)
    return (found & MODULES.keys()) - {"", name}


@functools.cache
def _all_imports() -> dict[str, set[str]]:
    return {name: _imports(name, path) for name, path in MODULES.items()}


def _circles() -> list[list[str]]:
    """Strongly connected components of two files and more (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(_all_imports()[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            position = stack.index(name)
            component = stack[position:]
            del stack[position:]
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(MODULES):
        if name not in index:
            visit(name)
    return found


def _package_of(name: str) -> str:
    return name.partition(".")[0]


def _packages(circle: list[str]) -> tuple[str, ...]:
    return tuple(sorted({_package_of(name) for name in circle}))


def _upward() -> dict[str, set[str]]:
    """ "file -> package" of every upward import, with the modules imported."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, imports in _all_imports().items():
        for other in imports:
            if name and ORDER.index(_package_of(other)) > ORDER.index(_package_of(name)):
                found[f"{name} -> {_package_of(other)}"].add(other)
    return dict(found)


def test_every_package_has_a_place() -> None:
    assert {_package_of(name) for name in MODULES} - {""} == set(ORDER)


def test_no_circles() -> None:
    assert [circle for circle in _circles() if _packages(circle) not in CIRCLES] == []


def test_no_upward_imports() -> None:
    unexpected = {key: found for key, found in _upward().items() if key not in ALLOWED}
    assert unexpected == {}, "import downward, or pass the object in"


def test_allowed_imports_are_needed() -> None:
    needless: set[object] = {*(ALLOWED.keys() - _upward().keys())}
    needless |= CIRCLES.keys() - {_packages(circle) for circle in _circles()}
    assert needless == set(), "delete these entries"
