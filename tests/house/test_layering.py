"""Imports point one way: core <- passes <- codegen; only the drivers see all three."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = {"graphc": 0, "passes": 1, "codegen": 2}
# What brings the layers together: compiles, differentiates, exports, looks inside, reports.
DRIVERS = {
    "function", "transforms", "vmap", "composite", "define", "export", "failure", "inspection",
    "cli", "memory", "loaded", "__main__",
}
# What may be written with the drivers, but must not know passes or codegen itself.
LIBRARIES = {"nn", "activations", "losses", "testing"}
PLACES = {*LAYERS, "tests", "examples", "pyproject.toml", "README.md", "LICENSE"}
FILES = sorted(p for folder in LAYERS for p in (ROOT / folder).rglob("*.py"))


def imports(tree):
    """What a module imports, at the top and in functions; not what only type checkers see."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            stack += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        stack += ast.iter_child_nodes(node)


def place(module):
    """(layer, first name below it) of a dotted module of ours, or None."""
    parts = module.split(".")
    if parts[0] != "graphc":
        return None
    parts = parts[1:]
    layer = parts.pop(0) if parts and parts[0] in ("passes", "codegen") else "graphc"
    return layer, parts[0] if parts else "__init__"


def test_nothing_else_stands_at_the_top():
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    top = {f.split("/")[0] for f in done.stdout.splitlines()}
    assert {f for f in top if not f.startswith(".")} == PLACES


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    folder, name = path.relative_to(ROOT).parts[:2]
    name = name.removesuffix(".py")
    driver = folder == "graphc" and name in DRIVERS
    for module in imports(ast.parse(path.read_text())):
        assert module.split(".")[0] not in LAYERS or module.startswith("graphc"), module
        found = place(module)
        if found is None or driver:
            continue
        layer, target = found
        assert LAYERS[layer] <= LAYERS[folder], f"{folder} must not import {module}"
        if layer == "graphc" and target in DRIVERS:
            assert folder == "graphc", f"{folder} must not import the driver {module}"
            allowed = name in LIBRARIES or (name, target) == ("evaluate", "function")
            assert allowed, f"{name} must not import the driver {module}"


def test_only_drivers_and_libraries_are_named():
    modules = {p.stem for p in (ROOT / "graphc").glob("*.py")}
    modules |= {p.parent.name for p in (ROOT / "graphc").glob("*/__init__.py")}
    assert modules >= DRIVERS | LIBRARIES


LATE = (  # what `import graphc` leaves for its first use, so that it is quick
    "graphc.passes", "graphc.codegen", "graphc.function", "graphc.transforms", "graphc.nn",
    "networkx", "llvmlite", "matplotlib",
)


@pytest.mark.parametrize(("code", "late"), [
    ("import graphc", LATE),
    ("import graphc.view, graphc.text, graphc.interpret; graphc.nn; graphc.function; graphc.grad",
     ("networkx", "llvmlite", "matplotlib")),
    ("import graphc.passes.recompute", ("networkx", "llvmlite", "matplotlib")),
])  # fmt: skip
def test_imports_are_late(code, late):
    show = f"import sys; {code}; print(*[m for m in sys.modules if m.startswith({late})])"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
