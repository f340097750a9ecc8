"""Positions in a scope: index polynomials as instructions, scalar and per lane.

Each polynomial is computed in the outermost scope that knows its axes; a sum is split so that its
invariant part stands outside the loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from graphc import dims
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lane_masks import between
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.nests import ranges
from graphc.codegen.nests.axes import step
from graphc.codegen.nests.loops import Expr, Pred, by_data
from graphc.dims import Apply, Dim, Size

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame
    from graphc.codegen.emission.scope import Scope


class Positions(ABC):
    """Axes bound to registers, and the index arithmetic that was done there."""

    def __init__(
        self, frame: Frame, parent: Scope | None, e: Emitter, bound: dict[str, str],
        ready: int = 0, mask: str | None = None, width: int = 0,
    ):
        self.frame, self.parent, self.e, self.bound = frame, parent, e, bound
        self.chain: list[Scope] = [*(parent.chain if parent else []), cast("Scope", self)]
        outside: frozenset[str] = parent.known if parent else frozenset()
        self.known: frozenset[str] = outside | frozenset(bound)
        self.ready = ready
        self.mask = mask
        self.width: int = width or (parent.width if parent else frame.schedule.width)
        self.sizes: dict[Size, str] = {}
        self.lane_sizes: dict[Size, str] = {}
        self.conds: dict[tuple[tuple[Pred, ...], bool], str] = {}
        self.memo: dict[tuple[str, ...], tuple[str, ...]] = {}

    @abstractmethod
    def scalar(self, x: Expr) -> str:
        """The register of an expression that does not depend on the vector axis."""

    @abstractmethod
    def vector(self, x: Expr) -> str:
        """The register of lanes of an expression."""

    def lanes(self, vector: bool, mask: str | None = None, e: Expr | None = None) -> Lanes:
        """Lanes writing into this scope."""
        frame = self.frame
        fail = None
        if e is not None and e.node in frame.sites:
            node = e.node

            def fail(cond: str) -> None:
                frame.report(self, node, L.any(cond))

        width = self.width if vector else 1
        several = width > frame.schedule.width
        L = Lanes(
            self.e, width, frame.target, fastmath=frame.fastmath, fail=fail,
            mask=(mask or self.mask) if width > 1 else None, memo=self.memo,
            span=frame.spans.get(mask or self.mask or ""),
            stepped=several and frame.schedule.stepped[max(frame.sweeping, 0)], in_order=several,
        )
        return L

    def axis_register(self, name: str) -> str:
        """The register of an axis, as the innermost scope has bound it."""
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

    def _step(self, offset: Size) -> Size | None:
        """The distance between lanes, where all lanes are equally spaced; else None."""
        v = self.frame.schedule.vector
        assert v is not None
        return step(self.frame.nest, offset, v)

    def _axes(self, p: Size) -> set[str]:
        """The axes that a polynomial depends on, by way of data too."""
        out: set[str] = set()
        for n in dims.names(p):
            if n.startswith("%i"):
                out.add(n)
            elif (e := by_data(self.frame.nest.exprs, n)) is not None:
                out |= e.axes
        return out

    def _ready(self, p: Size) -> int:
        """After how many sweeps the positions in a polynomial are known."""
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
            if "0" in factors:  # of the first row, where code is written for that
                continue
            r = factors[0]
            for f in factors[1:]:
                r = self.e(f"mul nsw i64 {r}, {f}")
            total = r if not total else self.e(f"add nsw i64 {total}, {r}")
        self.sizes[p] = total or "0"
        return self.sizes[p]

    def _home_of(self, term: tuple[dims.Monomial, int]) -> Scope:
        """Where a term of a sum is computed."""
        mono, c = term
        p: Size = Dim(((mono, c),)) if mono else c
        return self.home(self._axes(p), self._ready(p))

    def _atom(self, a: dims.Atom) -> str:
        """The register of a factor."""
        if isinstance(a, str):
            if a.startswith("%i"):
                return self.axis_register(a)
            e = by_data(self.frame.nest.exprs, a)
            return self.scalar(e) if e is not None else self.frame.dim(a)
        return self._apply(Lanes(self.e, 1, self.frame.target), a, self.size(a.a), self.size(a.b))

    def _apply(self, L: Lanes, a: Apply, x: str, y: str) -> str:
        """floordiv, mod, min or max of registers."""
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
        if (known := self._known_lanes(p)) is not None:
            return L.constants("i64", known)
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

    def _known_lanes(self, p: Size) -> list[int] | None:
        """The value of a polynomial in every lane, where the code is written for one position."""
        v = self.frame.schedule.vector
        if isinstance(p, int):
            return [p] * self.width
        if v is None or set(dims.names(p)) != {v} or not self.axis_register(v).isdecimal():
            return None
        start = int(self.axis_register(v))
        return [dims.evaluate(p, {v: start + k}) for k in range(self.width)]

    def _lane_atom(self, L: Lanes, a: dims.Atom) -> str:
        """The lanes of a factor."""
        v = self.frame.schedule.vector
        if isinstance(a, Apply):
            return self._apply(L, a, self.lane_size(a.a), self.lane_size(a.b))
        if a == v:
            return L.lane_index(self.axis_register(a))
        e = by_data(self.frame.nest.exprs, a)
        return self.vector(e) if e is not None else L.spread("i64", self._atom(a))

    def undecided(self, preds: tuple[Pred, ...]) -> tuple[Pred, ...] | None:
        """The conditions that must be asked for here; None where one is known not to hold."""
        decided = self.frame.decided
        if not all(decided.get(p, True) for p in preds):
            return None
        return tuple(p for p in preds if p not in decided)

    def condition(self, preds: tuple[Pred, ...], vector: bool) -> str:
        """Whether all bounds hold: an i1, or i1 lanes."""
        L = self.lanes(vector)
        left = self.undecided(preds)
        if not left:
            return L.k("i1", left is not None)
        preds = left
        key = (preds, vector)
        if key in self.conds:
            return self.conds[key]
        total = ""
        for p in preds:
            lanes = vector and self._varies([p])
            M = L if lanes else Lanes(self.e, 1, self.frame.target)
            at = self.lane_size if lanes else self.size
            first, size = p.index - p.lo, p.hi - p.lo
            known = [self._known_lanes(s) for s in (first, size)] if lanes else []
            if known and known[0] is not None and known[1] is not None:
                c = L.constants("i1", [0 <= i < n for i, n in zip(*known, strict=True)])
            elif lanes and self._step(first) == 1 and self.frame.bits < 64:  # of positions one does
                low = self.e(f"sub nsw i64 0, {self.size(first)}")
                end = self.e(f"add nsw i64 {low}, {self.size(size)}")
                after, before = ranges.sides(p, self.frame.nest.sizes)
                c, span = between(L, low, end, self.frame.bits, after, before)
                if self.frame.copies_parts:
                    self.frame.spans[c] = span
            else:
                c = M.cmp("ult", "i64", at(first), at(size))
            if vector and not lanes:
                c = L.spread("i1", c)
            total = c if not total else L.op("and", "i1", total, c)
        self.conds[key] = total
        return total

    def _varies(self, preds: Sequence[Pred]) -> bool:
        """Whether bounds differ from lane to lane."""
        v = self.frame.schedule.vector
        return any(v in self._axes(s) for p in preds for s in p.sizes)
