"""Golden files: a graph, and what a pass makes of it.

    # what the case shows
    graph @f(...) { ... }

    # becomes
    graph @f(...) { ... }

A case of something that a pass must leave alone ends with `# stays` instead of the second graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.dims import Dim, evaluate, names
from graphc.interpret import evaluate as interpret
from graphc.ir import Graph
from graphc.text import parse
from graphc.types import TensorType

FOLDER = Path(__file__).parent / "golden"
BECOMES, STAYS = "\n# becomes\n", "\n# stays\n"

Array = np.ndarray[Any, Any]


def cases() -> list[Path]:
    return sorted(FOLDER.glob("*/*.gir"))


def read(path: Path) -> tuple[Graph, str]:
    """The graph before, and the text expected after."""
    text = path.read_text()
    if STAYS in text:
        g = parse(text.replace(STAYS, ""))
        return g, str(g)
    before, _, after = text.partition(BECOMES)
    return parse(before), str(parse(after)) if after else ""


def write(path: Path, after: Graph) -> None:
    """Replace the second half."""
    text = path.read_text()
    before = text.partition(BECOMES)[0].partition(STAYS)[0].rstrip() + "\n"
    same = str(parse(before)).strip() == str(after).strip()
    path.write_text(before + (STAYS if same else f"{BECOMES}{str(after).strip()}\n"))


def sizes(g: Graph, value: int = 3) -> dict[str, int]:
    """A value for every dimension name of g."""
    return {name: value for v in g.inputs for s in v.type.shape for name in names(s)}


def random_inputs(g: Graph, seed: int, env: dict[str, int]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [random_array(v.type, rng, env) for v in g.inputs]


def random_array(t: TensorType, rng: np.random.Generator, env: dict[str, int]) -> Array:
    """Small numbers; small positive integers for integer dtypes, so that they do as indices."""
    shape = [evaluate(s, env) if isinstance(s, Dim) else s for s in t.shape]
    if t.dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if t.dtype.is_int:
        return np.asarray(rng.integers(1, 3, shape)).astype(t.dtype.numpy)
    return np.asarray(rng.normal(size=shape)).astype(t.dtype.numpy)


def run(g: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Outputs, then new values of updated variables; those read from text alone hold ones."""
    states = {
        s: np.ones(s.type.shape, s.type.dtype.numpy) for s in g.variables() if s.array is None
    }
    outputs, updates = interpret(g, inputs, states=states)
    return [*outputs, *(updates[s] for s, _ in g.updates)]


def same_bits(a: Array, b: Array) -> bool:
    """Equal in every bit that is not a NaN payload."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    equal = (x == y) & (np.signbit(x) == np.signbit(y))
    return bool((equal | (np.isnan(x) & np.isnan(y))).all())
