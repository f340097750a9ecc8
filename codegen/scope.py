"""Scopes: where in nested loops an expression is computed.

A scope is a place in the code where some loop axes have values. Asking an inner scope for an
expression computes it in the outermost scope that knows its axes (and, for what depends on
reductions, comes after them), in that scope's own section of code: loop-invariant work is hoisted
by construction. Expressions of the vector axis are registers of lanes, all others scalars.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphc import dims
from graphc.codegen.emitter import Emitter
from graphc.codegen.lanes import Lanes, register_type
from graphc.codegen.loops import Expr, Pred
from graphc.codegen.philox import philox
from graphc.codegen.reductions import reduction_of
from graphc.codegen.scalars import emit
from graphc.codegen.schedule import coefficient, expr_polynomials
from graphc.dims import Apply, Dim, Size
from graphc.types import i64

if TYPE_CHECKING:
    from graphc.codegen.nest import Frame

import numpy as np


class Scope:
    """Axes bound to registers, and what was computed there."""

    def __init__(
        self, frame: Frame, parent: Scope | None, e: Emitter, bound: dict[str, str],
        ready: int = 0, mask: str | None = None,
    ):
        self.frame, self.parent, self.e, self.bound = frame, parent, e, bound
        self.chain: list[Scope] = [*(parent.chain if parent else []), self]
        outside: frozenset[str] = parent.known if parent else frozenset()
        self.known: frozenset[str] = outside | frozenset(bound)
        self.ready = ready
        self.mask = mask
        self.scalars: dict[Expr, str] = {}
        self.vectors: dict[Expr, str] = {}
        self.splats: dict[Expr, str] = {}
        self.sizes: dict[Size, str] = {}
        self.lane_sizes: dict[Size, str] = {}
        self.conds: dict[tuple[tuple[Pred, ...], bool], str] = {}
        self.slots: dict[Expr, str] = {}

    def lanes(self, vector: bool, mask: str | None = None, e: Expr | None = None) -> Lanes:
        """Lanes writing into this scope."""
        frame = self.frame
        fail = None
        if e is not None and e.node in frame.sites:
            node = e.node

            def fail(cond: str) -> None:
                frame.report(self, node, L.any(cond))

        width = frame.schedule.width if vector else 1
        L = Lanes(
            self.e, width, frame.target, fastmath=frame.fastmath, fail=fail,
            mask=(mask or self.mask) if width > 1 else None,
        )
        return L

    def axis_register(self, name: str) -> str:
        for s in reversed(self.chain):
            if name in s.bound:
                return s.bound[name]
        raise KeyError(name)

    def home(self, axes: Iterable[str], ready: int) -> Scope:
        """The outermost scope that knows all axes and comes after `ready` sweeps."""
        wanted = frozenset(axes)
        for s in self.chain:
            if wanted <= s.known and s.ready >= ready:
                return s
        raise AssertionError(f"no scope binds {sorted(wanted)} after {ready} sweeps")

    def is_vector(self, e: Expr) -> bool:
        v = self.frame.schedule.vector
        return v is not None and v in e.axes and self.frame.schedule.width > 1

    # --- values ----------------------------------------------------------------------------

    def demand(self, wanted: Iterable[Expr]) -> None:
        """Compute expressions and all they need, in dependency order, each in its home."""
        frame = self.frame
        missing: set[Expr] = set()
        stack = list(wanted)
        while stack:
            x = stack.pop()
            if x in missing or x.kind == "const":
                continue
            home = self.home(x.axes, frame.schedule.ready[x])
            if x in home.scalars or x in home.vectors:
                continue
            missing.add(x)
            stack.extend(x.args)
            stack.extend(d for p in expr_polynomials(x) for d in frame.nest.dynamic(p))
        for x in sorted(missing, key=lambda x: x.id):
            home = self.home(x.axes, frame.schedule.ready[x])
            vector = self.is_vector(x)
            (home.vectors if vector else home.scalars)[x] = home.compute(x, vector)

    def scalar(self, x: Expr) -> str:
        """The register of a demanded expression that does not depend on the vector axis."""
        if x.kind == "const":
            return Lanes(self.e, 1, self.frame.target).const(x.dtype, constant(x))
        return self.home(x.axes, self.frame.schedule.ready[x]).scalars[x]

    def vector(self, x: Expr) -> str:
        """The register of lanes of a demanded expression."""
        L = self.lanes(True)
        if L.width == 1:
            return self.scalar(x)
        if x.kind == "const":
            return L.const(x.dtype, constant(x))
        home = self.home(x.axes, self.frame.schedule.ready[x])
        if self.is_vector(x):
            return home.vectors[x]
        if x not in home.splats:
            home.splats[x] = Lanes(
                home.e, L.width, self.frame.target
            ).splat(x.dtype, home.scalars[x])
        return home.splats[x]

    def operand(self, x: Expr, vector: bool) -> str:
        return self.vector(x) if vector else self.scalar(x)

    def compute(self, x: Expr, vector: bool) -> str:
        """Emit one expression here; its operands have been demanded."""
        L = self.lanes(vector, e=x)
        if x.kind == "op":
            name, attrs = x.attrs
            args = [self.operand(a, vector) for a in x.args]
            return emit(L, name, args, [a.dtype for a in x.args], x.dtype, dict(attrs))
        if x.kind == "load":
            return self.load(x, vector)
        if x.kind == "index":
            return self.lane_size(x.attrs[0]) if vector else self.size(x.attrs[0])
        if x.kind == "inside":
            return self.condition(x.attrs, vector)
        if x.kind == "position":
            return self.position(x, L, vector)
        if x.kind == "philox":
            return philox(L, *[self.operand(a, vector) for a in x.args])
        if x.kind == "scan":
            return self.scan(x, L, vector)
        raise AssertionError(f"{x.kind} is not computed on demand")

    def slot_of(self, x: Expr) -> str:
        """Where a running reduction keeps its state."""
        return next(s.slots[x] for s in reversed(self.chain) if x in s.slots)

    def scan(self, x: Expr, L: Lanes, vector: bool) -> str:
        slot = self.slot_of(x)
        r = reduction_of(x)
        ty = L.vec(r.types[0])
        old = self.e(f"load {ty}, ptr {slot}, align 8")
        (new,) = r.merge(L, [old], [self.operand(x.args[0], vector)])
        self.e.do(f"store {ty} {new}, ptr {slot}, align 8")
        return r.finish(L, [new], x.dtype)

    def position(self, x: Expr, L: Lanes, vector: bool) -> str:
        size, negative, preds, _ = x.attrs
        i = self.operand(x.args[0], vector)
        n = self.lane_size(size) if vector else self.size(size)
        if negative:
            low = L.cmp("slt", "i64", i, L.k("i64", 0))
            i = L.select(low, "i64", L.op("add", "i64", i, n), i)
        ok = L.cmp("ult", "i64", i, n)
        bad = L.negate(ok)
        if preds:
            bad = L.op("and", "i1", bad, self.condition(preds, vector))
        L.fail_where(bad)
        return L.select(ok, "i64", i, L.k("i64", 0))

    # --- memory ----------------------------------------------------------------------------

    def load(self, x: Expr, vector: bool) -> str:
        param, offset, preds = x.attrs
        base = self.frame.params[param]
        d = x.dtype
        if not vector:
            L = self.lanes(False)
            if not preds:
                return L.load(d, self.element(base, d.itemsize, offset))
            return self._guarded(L, x, base)
        mask = self._mask(self.condition(preds, True)) if preds else None
        L = self.lanes(True, mask)
        step = self._step(offset)
        if step == 1:
            return L.load(d, self.element(base, d.itemsize, offset))
        return L.gather(d, base, self.lane_size(offset))

    def _mask(self, cond: str) -> str:
        return cond if self.mask is None else self.lanes(True).op("and", "i1", cond, self.mask)

    def _guarded(self, L: Lanes, x: Expr, base: str) -> str:
        """A scalar load behind a branch: outside its bounds nothing is read, and 0 results."""
        e = self.e
        cond = self.condition(x.attrs[2], False)
        at = self.element(base, x.dtype.itemsize, x.attrs[1])
        before, read, after = e.block, e.fresh("read"), e.fresh("after")
        e.do(f"br i1 {cond}, label %{read}, label %{after}")
        e.label(read)
        value = L.load(x.dtype, at)
        last = e.block
        e.do(f"br label %{after}")
        e.label(after)
        zero = L.const(x.dtype, 0)
        return e(f"phi {L.reg(x.dtype)} [ {value}, %{last} ], [ {zero}, %{before} ]")

    def _step(self, offset: Size) -> Size | None:
        """The distance between lanes, where all lanes are equally spaced; else None."""
        v = self.frame.schedule.vector
        assert v is not None
        for d in self.frame.nest.dynamic(offset):
            if v in d.axes:
                return None
        return coefficient(offset, v)

    def element(self, base: str, itemsize: int, offset: Size) -> str:
        """The address of an element (of lane 0): the invariant part is hoisted."""
        v = self.frame.schedule.vector
        inner: Size = 0
        if v is not None and v in self.known and isinstance(offset, Dim):
            c = coefficient(offset, v)
            if c is not None and not isinstance(c, Dim):
                inner = Dim((((v,), 1),)) * c if c else 0
        fixed = offset - inner
        p = base
        if fixed != 0:
            home = self.home(self._axes(fixed), self._ready(fixed))
            p = home.address(base, itemsize, fixed)
        if inner == 0:
            return p
        return self.e(
            f"getelementptr inbounds [{itemsize} x i8], ptr {p}, i64 {self.size(inner)}"
        )

    def address(self, base: str, itemsize: int, offset: Size) -> str:
        at = self.size(offset)
        key = (base, itemsize, at)
        found = self.frame.addresses.get((self, key))
        if found is None:
            found = self.e(f"getelementptr inbounds [{itemsize} x i8], ptr {base}, i64 {at}")
            self.frame.addresses[self, key] = found
        return found

    def store(self, output: int, offset: Size, x: Expr, vector: bool) -> None:
        d = self.frame.nest.outputs[output]
        base = self.frame.outputs[output]
        L = self.lanes(vector)
        value = self.operand(x, vector)
        if not vector or self._step(offset) == 1:
            L.store(d.dtype, value, self.element(base, d.dtype.itemsize, offset))
        else:
            L.scatter(d.dtype, value, base, self.lane_size(offset))

    # --- index arithmetic --------------------------------------------------------------------

    def _axes(self, p: Size) -> set[str]:
        out: set[str] = set()
        for n in dims.names(p):
            if n.startswith("%i"):
                out.add(n)
            elif n.startswith("%e"):
                out |= self.frame.nest.exprs[int(n[2:])].axes
        return out

    def _ready(self, p: Size) -> int:
        return max((self.frame.schedule.ready[d] for d in self.frame.nest.dynamic(p)), default=0)

    def size(self, p: Size) -> str:
        """The i64 value of a polynomial (for the vector axis: of lane 0)."""
        if isinstance(p, int):
            return str(p)
        home = self.home(self._axes(p), self._ready(p))
        if p in home.sizes:
            return home.sizes[p]
        if home is not self:
            return home.size(p)
        outside = [t for t in p.terms if self._home_of(t) is not self]
        fixed: Size = 0
        if outside and len(outside) < len(p.terms):
            for mono, c in outside:
                fixed = fixed + (Dim(((mono, c),)) if mono else c)
        terms = p.terms if isinstance(fixed, int) and fixed == 0 else [
            t for t in p.terms if t not in outside
        ]
        total = "" if isinstance(fixed, int) and fixed == 0 else self.size(fixed)
        for mono, c in terms:
            factors = [self._atom(a) for a in mono]
            if c != 1 or not factors:
                factors.append(str(c))
            r = factors[0]
            for f in factors[1:]:
                r = self.e(f"mul nsw i64 {r}, {f}")
            total = r if not total else self.e(f"add nsw i64 {total}, {r}")
        self.sizes[p] = total
        return total

    def _home_of(self, term: tuple[dims.Monomial, int]) -> Scope:
        mono, c = term
        p: Size = Dim(((mono, c),)) if mono else c
        return self.home(self._axes(p), self._ready(p))

    def _atom(self, a: dims.Atom) -> str:
        if isinstance(a, str):
            if a.startswith("%i"):
                return self.axis_register(a)
            if a.startswith("%e"):
                return self.scalar(self.frame.nest.exprs[int(a[2:])])
            return self.frame.dims[a]
        return self._apply(Lanes(self.e, 1, self.frame.target), a, self.size(a.a), self.size(a.b))

    def _apply(self, L: Lanes, a: Apply, x: str, y: str) -> str:
        if a.fn in ("floordiv", "mod"):
            if not isinstance(a.b, int):  # a size of 0 has no elements, but must not trap
                y = L.select(L.cmp("eq", "i64", y, L.k("i64", 0)), "i64", L.k("i64", 1), y)
            if dims.is_nonnegative(a.a):
                return L.op("udiv" if a.fn == "floordiv" else "urem", "i64", x, y)
            r = L.op("srem", "i64", x, y)
            below = L.cmp("slt", "i64", r, L.k("i64", 0))
            if a.fn == "mod":
                return L.select(below, "i64", L.op("add", "i64", r, y), r)
            q = L.op("sdiv", "i64", x, y)
            return L.select(below, "i64", L.op("sub", "i64", q, L.k("i64", 1)), q)
        first = L.cmp("slt" if a.fn == "min" else "sgt", "i64", x, y)
        return L.select(first, "i64", x, y)

    def lane_size(self, p: Size) -> str:
        """The value of a polynomial in every lane, as i64 lanes."""
        v = self.frame.schedule.vector
        axes = self._axes(p)
        L = self.lanes(True)
        if L.width == 1:
            return self.size(p)
        if v not in axes:
            return Lanes(self.e, L.width, self.frame.target).spread("i64", self.size(p))
        home = self.home(axes, self._ready(p))
        if p in home.lane_sizes:
            return home.lane_sizes[p]
        if home is not self:
            return home.lane_size(p)
        assert isinstance(p, Dim)
        fixed: Size = 0
        total = ""
        for mono, c in p.terms:
            term: Size = Dim(((mono, c),)) if mono else c
            if v not in self._axes(term):
                fixed = fixed + term
                continue
            r = ""
            for a in mono:
                f = self._lane_atom(L, a)
                r = f if not r else L.op("mul", "i64", r, f)
            if c != 1:
                r = L.op("mul", "i64", r, L.k("i64", c))
            total = r if not total else L.op("add", "i64", total, r)
        if fixed != 0:
            total = L.op("add", "i64", total, L.spread("i64", self.size(fixed)))
        self.lane_sizes[p] = total
        return total

    def _lane_atom(self, L: Lanes, a: dims.Atom) -> str:
        v = self.frame.schedule.vector
        if isinstance(a, Apply):
            return self._apply(L, a, self.lane_size(a.a), self.lane_size(a.b))
        if a == v:
            return L.lane_index(self.axis_register(a))
        if a.startswith("%e"):
            return self.vector(self.frame.nest.exprs[int(a[2:])])
        return L.spread("i64", self._atom(a))

    def condition(self, preds: tuple[Pred, ...], vector: bool) -> str:
        """Whether all bounds hold: an i1, or i1 lanes."""
        L = self.lanes(vector)
        key = (preds, vector)
        if key in self.conds:
            return self.conds[key]
        total = ""
        for p in preds:
            v = self.frame.schedule.vector
            lanes = vector and any(v in self._axes(s) for s in (p.index, p.lo, p.hi))
            M = L if lanes else Lanes(self.e, 1, self.frame.target)
            at = self.lane_size if lanes else self.size
            i = at(p.index - p.lo)
            c = M.cmp("ult", "i64", i, at(p.hi - p.lo))
            if vector and not lanes:
                c = L.spread("i1", c)
            total = c if not total else L.op("and", "i1", total, c)
        self.conds[key] = total
        return total


def constant(x: Expr) -> float | int | bool:
    """The value of a `const` expression."""
    value = np.frombuffer(x.attrs[0], x.dtype.numpy)[0]
    return float(value) if x.dtype.is_float else int(value)


__all__ = ["Scope", "constant", "i64", "register_type"]
