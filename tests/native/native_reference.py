"""What the interpreter gives for a random graph, and how far native results may be off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import graphc as gx
from graphc import dims, interpret, ir
from graphc.ir import Builder, Graph, Value
from graphc.passes.stages import flatten
from graphc.types import BY_NAME, DType

# Floats of these differ in their last bits; of the second, by the order of their operands.
MATH = frozenset(
    {"exp", "expm1", "log", "log1p", "rsqrt", "sin", "cos", "tanh", "atan", "erf", "lgamma",
     "log2", "log10", "tan", "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos",
     "normal_cdf", "polygamma", "cbrt", "pow", "atan2", "call"}
)  # fmt: skip
SUMS = frozenset({"reduce_sum", "reduce_prod", "cumsum", "cumprod", "linear_recurrence", "dot",
                  "scatter_add"})  # fmt: skip
RANGE = {"f64": (2.0**-1022, 2.0**1023), "f32": (2.0**-126, 2.0**127),
         "f16": (2.0**-14, 65504.0), "bf16": (2.0**-126, 2.0**127)}  # fmt: skip


def inexact(nodes: Sequence[ir.Node]) -> set[Value]:
    """Values that may differ between evaluations: all that follow from a float of MATH or SUMS."""
    found: set[Value] = set()
    for n in nodes:
        rounds = n.op.name in MATH or n.op.name in SUMS
        if not found.isdisjoint(n.args) or (rounds and any(a.type.dtype.is_float for a in n.args)):
            found.update(n.outs)
    return found


def noisy(g: Graph) -> tuple[Graph, list[Value]]:
    """g with every result that may be rounded otherwise multiplied by an input, near 1."""
    b, env, noise = Builder(), {v: v for v in g.inputs}, []

    def disturbed(v: Value) -> Value:
        if not v.type.dtype.is_float:
            return v
        (e,) = ir.apply("input", (), name=f"noise{len(noise)}", type=v.type)
        noise.append(e)
        return b.one("mul", [v, e])

    for n in g.nodes:
        args = [disturbed(env[a]) if n.op.name in SUMS else env[a] for a in n.args]
        outs = b.emit(n.op, args, n, **n.attrs)
        for o, v in zip(n.outs, outs, strict=True):
            env[o] = disturbed(v) if n.op.name in MATH or n.op.name in SUMS else v
    outputs = [env[v] for v in g.outputs]
    return ir.finish(b, g.name, [*g.inputs, *noise], outputs), noise


def eps(d: DType) -> float:
    return {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[d.name]


class Reference:
    """What the interpreter gives for a graph, and how far each element may reasonably be off."""

    def __init__(self, g: Graph, arrays: list[np.ndarray], sizes: dict[str, int]):
        self.graph, self.wild = g, False
        g = flatten(g)
        known = {k: sizes[k] for k in g.dims()}
        rounded = inexact(g.nodes)
        self.exact = [v not in rounded for v in g.outputs]
        self.want, _ = interpret.evaluate(g, arrays, dims=known, watch=self._watch(rounded))
        self.near: list[list[np.ndarray]] = []
        if all(self.exact) or self.wild:
            return
        disturbed, noise = noisy(g)
        for seed in range(8):
            rng = np.random.default_rng(seed)
            drawn = []
            for v in noise:
                shape = tuple(dims.evaluate(s, sizes) for s in v.type.shape)
                k = 2 if v.type.dtype.bits == 16 else 4
                ways = rng.integers(-k, k, shape, endpoint=True) if seed > 1 else (k, -k)[seed]
                ones = np.ones(shape)
                drawn.append((ones + ways * eps(v.type.dtype)).astype(v.type.dtype.numpy))
            self.near.append(interpret.evaluate(disturbed, [*arrays, *drawn], dims=known)[0])

    def _watch(self, rounded: set[Value]) -> Callable[[Value, np.ndarray], None]:
        """Sums near the end of the range overflow in one order and not in another."""

        def watch(v: Value, a: np.ndarray) -> None:
            if v in rounded and v.type.dtype.is_float and a.size:
                info = RANGE[v.type.dtype.name]
                with np.errstate(all="ignore"):
                    size = np.abs(a.astype(np.float64))
                    large = size > info[1] * 1e-3
                    small = (size < info[0] * 1e3) & (size > 0)
                self.wild |= bool(large.any() or small.any())

        return watch

    def check(self, got: Sequence[np.ndarray], what: str) -> None:
        for i, (want, a) in enumerate(zip(self.want, got, strict=True)):
            problem = self.problem(i, want, np.asarray(a))
            assert not problem, f"{what}: output {i}: {problem}\n{self.graph}"

    def problem(self, i: int, want: np.ndarray, got: np.ndarray) -> str:
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{got.dtype}{got.shape}, wanted {want.dtype}{want.shape}"
        exact = self.exact[i]
        if self.wild and not exact:
            return ""
        floats = want.dtype.kind not in "biu"
        with np.errstate(all="ignore"):
            x, y = (a.astype(np.float64) if floats else a for a in (got, want))
            same = x == y
            if floats:
                nan = np.isnan(x) & np.isnan(y)
                same = nan | (same & ((np.signbit(x) == np.signbit(y)) | (not exact)))
            if not exact:
                near = [n[i].astype(y.dtype) for n in self.near]
                for n in near:  # an element that a last bit decides is not compared
                    same |= np.isnan(n) != np.isnan(y) if floats else n != y
                if floats:
                    spread = np.max([np.abs(n - y) for n in near], axis=0)
                    d = BY_NAME[gx.types.as_dtype(want.dtype).name]
                    allowed = 16 * spread + 16 * eps(d) * np.abs(y) + 4 * RANGE[d.name][0]
                    same |= ~(np.abs(x - y) > allowed) & np.isfinite(x)
        if same.all():
            return ""
        at = tuple(int(k[0]) for k in np.nonzero(~np.atleast_1d(same)))
        return f"at {at}: {np.atleast_1d(got)[at]!r}, wanted {np.atleast_1d(want)[at]!r}"
