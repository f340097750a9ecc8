"""Instances of rules: the left side as a graph, with special values for its variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc import ir
from graphc.dims import Dim
from graphc.errors import GraphcError
from graphc.ir import Graph, Literal, Value
from graphc.ops import OPS
from graphc.passes.patterns import Apply, Attr, Const, Lit, Pattern, Rule, Var
from graphc.passes.rewrite import RuleSet, apply_rules
from graphc.types import DTYPES, DType, TensorType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8

ALL = (f32, f64, f16, bf16, i8, i32, i64, u8, bool_)

_FLOATS = (
    "0.0 -0.0 1.0 -1.0 0.5 -0.5 2.0 3.0 -7.25 inf -inf nan 1e-3 65504.0 1e-45 -1.5e-45 3.4e38"
    " 1.17549435e-38 5e-324 1.7e308 100.0 -100.0"
)


def specials(d: DType) -> np.ndarray[Any, Any]:
    """Values at which laws break."""
    if d.kind == "b":
        return np.array([False, True])
    if d.is_int:
        info = np.iinfo(d.numpy)
        values = {info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 3, 7, 8, 100}
        values |= {-1, -2, -8} if d.kind == "i" else set()
        return np.array(sorted(values), d.numpy)
    with np.errstate(all="ignore"):
        return np.array([float(x) for x in _FLOATS.split()]).astype(d.numpy)


def constants(d: DType) -> np.ndarray[Any, Any]:
    """Numbers for constant variables."""
    if d.is_float:
        with np.errstate(all="ignore"):
            return np.array([0.0, -0.0, 1.0, -1.0, 2.0, 0.25, -4.0, 3.0, np.inf, -np.inf, 1e-3,
                             2.0**-126, 2.0**127]).astype(d.numpy)
    return specials(d)


class Instance:
    """A graph whose only output has the form of a rule's left side."""

    def __init__(self, graph: Graph, variables: list[Value]):
        self.graph, self.variables = graph, variables

    def inputs(self, harmless: bool = False) -> list[np.ndarray[Any, Any]]:
        """Every combination of special values; harmless ones divide nothing by zero."""
        values = [specials(v.type.dtype) for v in self.variables]
        if harmless:
            values = [v[v > 0] if v.dtype.kind in "iu" else v for v in values]
        return [np.array(column, v.dtype) for column, v in zip(
            zip(*itertools.product(*values), strict=True), values, strict=True
        )]


class _Instantiation:
    """Builds the left side for one dtype, one choice of constants and attributes."""

    def __init__(self, dtype: DType, numbers: Iterator[Any], dtypes: Iterator[DType]):
        self.dtype, self.numbers, self.dtypes = dtype, numbers, dtypes
        self.shape: tuple[Any, ...] = (Dim((((("n"),), 1),)),)
        self.bound: dict[Any, Any] = {}
        self.variables: list[Value] = []
        self.first_constant = False

    def root(self, p: Apply) -> Value:
        assert p.args is not None
        return self.op(p, self.shape)

    def op(self, p: Apply, shape: tuple[Any, ...]) -> Value:
        assert p.args is not None
        attrs: dict[str, Any] = {}
        if p.op == "broadcast" and not p.attrs:  # the rules of rules_views
            attrs = {"shape": (*shape, 2), "axes": tuple(range(len(shape)))}
        if p.op == "reshape":
            attrs = {"shape": (*shape, 1), "checked": False}
        args: list[Value | None] = [
            self.op(a, shape) if isinstance(a, Apply) else None for a in p.args
        ]
        inner = next((a.type.shape for a in args if a is not None), shape)
        args = [
            a if a is not None or isinstance(q, Lit) else self.value(q, inner)
            for a, q in zip(args, p.args, strict=True)
        ]
        dtype = next((a.type.dtype for a in reversed(args) if a is not None), self.dtype)
        for k, a in enumerate(p.args):
            if isinstance(a, Lit):
                literal = bool_ if isinstance(a.number, bool) else dtype
                if isinstance(a.number, float) and not literal.is_float:
                    raise TypeError("a float literal among integers")
                args[k] = self.full(a.number, literal, inner)
        for name in OPS[p.op].attrs:
            want = p.attrs.get(name)
            if name in attrs:
                continue
            if isinstance(want, Attr) or want is None:
                if want not in self.bound or want is None:
                    self.bound[want] = next(self.dtypes) if name == "dtype" else 1
                attrs[name] = self.bound[want]
            else:
                attrs[name] = want
        (out,) = ir.apply(p.op, [a for a in args if a is not None], **attrs)
        return out

    def value(self, p: Pattern, shape: tuple[Any, ...]) -> Value:
        if isinstance(p, Apply):
            return self.op(p, shape)
        assert isinstance(p, Var)
        if p not in self.bound:
            self.bound[p] = self.variable(p, shape)
        found: Value = self.bound[p]
        return found

    def variable(self, p: Var, shape: tuple[Any, ...]) -> Value:
        constant = isinstance(p, Const) or (self.first_constant and not self.bound)
        for dtype in (self.dtype, bool_, i32, f32):
            if constant:
                v = self.full(next(self.numbers), dtype, shape)
            else:
                t = TensorType(dtype, shape)
                (v,) = ir.apply("input", (), name=f"{p.name}{len(self.variables)}", type=t)
            if p.accepts is None or p.accepts(v):
                if not constant:
                    self.variables.append(v)
                return v
        raise TypeError("no dtype that the variable accepts")

    def full(self, number: Any, dtype: DType, shape: tuple[Any, ...]) -> Value:
        with np.errstate(all="ignore"):
            array = np.asarray(number).astype(dtype.numpy)
        (c,) = ir.apply("constant", (), value=Literal(array))
        (v,) = ir.apply("broadcast", [c], shape=shape, axes=())
        return v


def has_constants(p: Any) -> int:
    if isinstance(p, Const):
        return 1
    return sum(map(has_constants, p.args or ())) if isinstance(p, Apply) else 0


def instances(rule: Rule, dtype: DType) -> Iterator[Instance]:
    """Well-typed instances of the rule's left side at which it fires."""
    moves_constant = rule.law.startswith(("c ", "(c ", "max(c,", "min(c,"))
    count = has_constants(rule.left) + moves_constant
    pool = constants(dtype)
    with_dtype = "dtype" in str(rule.left.attrs) or rule.left.op in ("cast", "bitcast")
    for numbers in itertools.product(pool, repeat=count):
        for dtypes in itertools.product(DTYPES, repeat=2) if with_dtype else [(f32, f32)]:
            build = _Instantiation(
                dtype, itertools.cycle(numbers or (1,)), itertools.cycle(dtypes)
            )
            build.first_constant = moves_constant
            try:
                out = build.root(rule.left)
            except (GraphcError, TypeError):
                continue
            if not build.variables:
                continue
            graph = ir.collect("law", build.variables, [out])
            fired: list[Rule] = []
            apply_rules(graph, RuleSet([rule]), fired=fired)
            if fired:
                yield Instance(graph, build.variables)
