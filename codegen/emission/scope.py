"""Scopes: where in nested loops an expression is computed.

A scope is a place in the code where some loop axes have values. Asking an inner scope for an
expression computes it in the outermost scope that knows its axes (and, for what depends on
reductions, comes after them), in that scope's own section of code: loop-invariant work is hoisted
by construction. Expressions of the vector axis are registers of lanes, all others scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.codegen.elementwise import philox
from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission import called, interleaving, shifted
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lane_masks import common
from graphc.codegen.emission.lanes import Lanes, most_apart
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.positions import Positions
from graphc.codegen.emission.reductions import reduction_of
from graphc.codegen.nests.axes import coefficient, needs
from graphc.codegen.nests.conditions import reaches_far
from graphc.codegen.nests.costs import in_memory
from graphc.codegen.nests.loops import Expr, Pred, Store
from graphc.dims import Dim, Size, atom

if TYPE_CHECKING:
    from graphc.codegen.emission.frame import Frame


class Scope(Positions):
    """Axes bound to registers, and what was computed there."""

    def __init__(
        self, frame: Frame, parent: Scope | None, e: Emitter, bound: dict[str, str],
        ready: int = 0, mask: str | None = None, width: int = 0,
    ):
        super().__init__(frame, parent, e, bound, ready, mask, width)
        self.scalars: dict[Expr, str] = {}
        self.vectors: dict[Expr, str] = {}
        self.splats: dict[tuple[Expr, int], str] = {}
        self.rows: dict[Expr, list[str]] = {}  # of rows that are read together, by its first
        self.wholes: dict[Expr, str] = {}  # from which others are shifted
        self.running: dict[Expr, str] = {}  # states of running reductions, from here on after it
        self.rounds: dict[tuple[int | str, ...], list[str]] = {}  # keys of Philox's, by lanes
        self.sides: tuple[Scope, ...] = ()  # of a row and a vector of several: theirs alone

    def is_vector(self, e: Expr) -> bool:
        """Whether an expression stands in lanes."""
        v = self.frame.schedule.vector
        return v is not None and v in e.axes and self.frame.schedule.width > 1

    # --- values ----------------------------------------------------------------------------

    def demand(self, wanted: Iterable[Expr]) -> None:
        """Compute expressions and all they need, in dependency order, each in its home."""
        frame = self.frame
        missing: set[Expr] = set()
        asked = set(wanted)
        short = frame.schedule.filled and self.width > frame.schedule.width  # of registers
        stack = [*asked]
        while stack:
            x = stack.pop()
            if x in missing or x.kind == "const":
                continue
            home = self.home(x.axes, frame.schedule.ready[x])
            if x in home.scalars or x in home.vectors:
                continue
            if short and x not in asked and self._stays(x):
                continue
            missing.add(x)
            if frame.schedule.cached.get(x, frame.sweeping) < frame.sweeping:
                continue
            stack.extend(needs(frame.nest, x))
        left = sorted(missing, key=lambda x: x.id)
        for at, x in enumerate(left):
            home = self.home(x.axes, frame.schedule.ready[x])
            if not self.is_vector(x):
                home.scalars[x] = home.compute(x, False)
            elif x in home.vectors:  # by a call for one before it
                continue
            elif frame.schedule.cached.get(x, frame.sweeping) < frame.sweeping:
                home.vectors[x] = home.read_back(x)
            elif some := frame.called.first_of(left, at, home.width):
                called.compute(home, some)
            else:
                home.vectors[x] = home.compute(x, True)
                if x in frame.schedule.cached:
                    home.keep(x)

    def _stays(self, x: Expr) -> bool:
        """Whether what takes an operand reads it itself, each time (`costs.fill_registers`).

        Not where a product and a sum are one instruction: half as many take as many operands, and
        wait for these. A polynomial of 1M f32 takes a fifth longer so, of f64 a tenth.
        """
        nest, vector = self.frame.nest, self.frame.schedule.vector
        return vector is not None and not self.frame.fastmath and in_memory(nest, x, vector)

    def keep(self, x: Expr) -> None:
        """Put an element of the row where later sweeps find it."""
        if x in self.frame.schedule.lent:
            self.lanes(True).store(x.dtype, self.vectors[x], self._kept_at(x))
            return
        L, v = Lanes(self.e, self.width, self.frame.target), self.vectors[x]
        t, m, size = register_type(x.dtype), _kept_type(x), x.dtype.compute.itemsize
        v = v if m == t else L.convert("zext", v, t, m)
        self.e.do(f"store {L.vec(m)} {v}, ptr {self._kept_at(x)}, align {size}")

    def read_back(self, x: Expr) -> str:
        """An element of the row that an earlier sweep, or stage, kept."""
        if x in self.frame.schedule.lent:
            return self.lanes(True).load(x.dtype, self._kept_at(x))
        L = Lanes(self.e, self.width, self.frame.target)
        t, m, size = register_type(x.dtype), _kept_type(x), x.dtype.compute.itemsize
        v = self.e(f"load {L.vec(m)}, ptr {self._kept_at(x)}, align {size}")
        return v if m == t else L.convert("trunc", v, m, t)

    def _kept_at(self, x: Expr) -> str:
        """Where an element of the row is kept between sweeps."""
        place = self.frame.schedule.lent.get(x)
        if place is not None:
            return self.element(self.frame.outputs[place.output], x.dtype.itemsize, place.offset)
        at = self.size(self.frame.schedule.place)
        return self.e(
            f"getelementptr inbounds {_kept_type(x)}, ptr {self.frame.kept(x)}, i64 {at}"
        )

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
            return home.vectors[x] if x in home.vectors else self.load(x, True)
        if (x, L.width) not in home.splats:
            home.splats[x, L.width] = Lanes(
                home.e, L.width, self.frame.target
            ).splat(x.dtype, home.scalars[x])
        return home.splats[x, L.width]

    def operand(self, x: Expr, vector: bool) -> str:
        """The register of a demanded expression, in lanes or scalar."""
        return self.vector(x) if vector else self.scalar(x)

    def compute(self, x: Expr, vector: bool) -> str:
        """Emit one expression here; its operands have been demanded."""
        self.e.note(x.node)
        value = self._compute(x, vector)
        self.e.note(None)
        return value

    def _compute(self, x: Expr, vector: bool) -> str:
        L = self.lanes(vector, e=x)
        if x.kind == "op":
            name, attrs = x.attrs
            operands = {a: self.operand(a, vector) for a in dict.fromkeys(x.args)}
            args = [operands[a] for a in x.args]
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
            return self.random(x, L)
        if x.kind == "scan":
            return self.scan(x, L)
        raise AssertionError(f"{x.kind} is not computed on demand")

    def random(self, x: Expr, L: Lanes) -> str:
        """Random words of the elements in lanes."""
        linear, *key = x.args
        if any(map(self.is_vector, key)):
            keys = philox.round_keys(L, *map(self.vector, key))
            return philox.each(L, self.vector(linear), keys)
        runs = L.width >= 4 and linear.kind == "index" and self._step(linear.attrs[0]) == 1
        lanes = philox.blocks_of(L.width) if runs else L.width
        home = self.home(key[0].axes | key[1].axes, max(self.frame.schedule.ready[k] for k in key))
        scalars = [self.scalar(k) for k in key]
        if (lanes, *scalars) not in home.rounds:
            one, many = (Lanes(home.e, n, self.frame.target) for n in (1, lanes))
            found = philox.round_keys(one, *scalars)
            home.rounds[lanes, *scalars] = [many.spread("i64", k) for k in found]
        keys = home.rounds[lanes, *scalars]
        if runs:
            return philox.consecutive(L, self.size(linear.attrs[0]), keys)
        return philox.each(L, self.operand(linear, L.width > 1), keys)

    def scan(self, x: Expr, L: Lanes) -> str:
        """The next element of a running reduction."""
        r = reduction_of(x)
        given = [self.operand(a, L.width > 1) for a in x.args]
        (new,) = r.follow(L, [self.running[x]], given)
        self.running[x] = new
        return r.finish(L, [new], x.dtype)

    def position(self, x: Expr, L: Lanes, vector: bool) -> str:
        """A position that data give: made >= 0, reported and clamped to 0 where out of range."""
        size, negative, preds, _ = x.attrs
        i = self.operand(x.args[0], vector)
        if always_inside(x):
            return i
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
        """An element, or lanes of elements, as they lie along the vector axis."""
        param, offset, preds = x.attrs
        base = self.frame.params[param]
        d = x.dtype
        preds = self.undecided(preds)
        if preds is None:
            return self.lanes(vector).const(d, 0)
        if not vector:
            L = self.lanes(False)
            if not preds:
                return L.load(d, self.element(base, d.itemsize, offset))
            return self._guarded(L, x, base)
        step = self._step(offset)
        if step == -1 and preds and self.mask is None and not self._varies(preds):
            # of a load that is turned around and a select by its mask, LLVM 22 makes a vpermq from
            # memory, which reads what the mask leaves out, too
            return self._guarded(self.lanes(True), x, base)
        mask = self._mask(self.condition(preds, True)) if preds else None
        L = self.lanes(True, mask)
        block = self.frame.turned
        if block is not None and x in block.buffers:
            return L.load(d, block.at(self, x))
        if step == 0:
            return self._spread(L, x, base)
        if step == 1:
            at = self.element(base, d.itemsize, offset)
            if x in self.frame.shifted and L.in_order and L.mask is None and not preds:
                return self._shifted(L, x, at)
            if preds and reaches_far(self.frame.nest, x):
                at = self._where_read(L, preds, at)
            return L.load(d, at)
        if step == -1:  # the vector that ends here, turned around
            last = self.element(base, d.itemsize, offset - (L.width - 1))
            back = self.lanes(True, L.mask and L.reverse("i1", L.mask))
            return L.reverse(register_type(d), back.load(d, last))
        if row := self.frame.rows.get(x):
            return self._of_row(L, x, row)
        if isinstance(step, int) and 1 < step <= most_apart(d) and not preds:
            return L.load_apart(d, self.element(base, d.itemsize, offset), step)
        return L.gather(d, base, self.lane_size(offset))

    def _shifted(self, L: Lanes, x: Expr, at: str) -> str:
        """A load that others begin beside, read with these."""
        whole, by = self.frame.shifted[x]
        words, t = shifted.words(x.dtype), register_type(x.dtype)
        if self.undecided(whole.preds) != ():
            return L.load(x.dtype, at)
        if whole not in self.wholes:
            base = self.frame.params[x.param]
            self.wholes[whole] = L.load(
                words, self.element(base, words.itemsize, whole.offset))
        value = self.wholes[whole]
        if by:
            value = shifted.shift(L, words, value, by, at)
        return L.convert("bitcast", value, register_type(words), t)

    def _where_read(self, L: Lanes, preds: tuple[Pred, ...], at: str) -> str:
        """An address, or, where no lane is read, that of the call's arguments. A masked load that
        reads nothing takes a CPU hundreds of cycles if its pages are not there: the sum of the
        squares of 100,000 f32 beside their doubles and products took Zen 5 4,290 us, 64 so."""
        assert L.mask is not None
        read = L.any(L.mask) if self._varies(preds) else self.condition(preds, False)
        return self.e(f"select i1 {read}, ptr {at}, ptr %ctx")

    def _of_row(self, L: Lanes, x: Expr, row: list[Expr]) -> str:
        """An element of rows that are read together, when the first of it is wanted."""
        first = row[0]
        if first not in self.rows:
            at = self.element(self.frame.params[x.param], x.dtype.itemsize, first.offset)
            self.rows[first] = interleaving.load(L, x.dtype, len(row), at)
        return self.rows[first][row.index(x)]

    def _mask(self, cond: str) -> str:
        """The active lanes in which a condition holds."""
        if self.mask is None:
            return cond
        L, spans = self.lanes(True), self.frame.spans
        both = L.op("and", "i1", cond, self.mask)
        if cond in spans and self.mask in spans:
            spans[both] = common(L, spans[cond], spans[self.mask])
        return both

    def _spread(self, L: Lanes, x: Expr, base: str) -> str:
        """One element in all active lanes, 0 in others: where none is active, it may not be there,
        and what begins the call's arguments is read in its place."""
        at = self.element(base, x.dtype.itemsize, x.offset)
        if L.mask is not None and (L.mask[0] == "%" or "true" not in L.mask):
            at = self.e(f"select i1 {L.any(L.mask)}, ptr {at}, ptr %ctx")
        one = Lanes(self.e, 1, self.frame.target).load(x.dtype, at)
        if L.mask is None:
            return L.splat(x.dtype, one)
        return L.select(L.mask, register_type(x.dtype), L.splat(x.dtype, one), L.const(x.dtype, 0))

    def _guarded(self, L: Lanes, x: Expr, base: str) -> str:
        """A load of one element, or of a vector that is turned around, behind a branch: outside its
        bounds nothing is read, and 0 results."""
        e = self.e
        cond = self.condition(x.preds, False)
        at = self.element(base, x.dtype.itemsize, x.offset - (L.width - 1))
        before, read, after = e.block, e.fresh("read"), e.fresh("after")
        e.do(f"br i1 {cond}, label %{read}, label %{after}")
        e.label(read)
        value = L.load(x.dtype, at)
        if L.width > 1:
            value = L.reverse(register_type(x.dtype), value)
        last = e.block
        e.do(f"br label %{after}")
        e.label(after)
        zero = L.const(x.dtype, 0)
        return e(f"phi {L.reg(x.dtype)} [ {value}, %{last} ], [ {zero}, %{before} ]")

    def element(self, base: str, itemsize: int, offset: Size) -> str:
        """The address of an element (of lane 0): the invariant part is hoisted."""
        v = self.frame.schedule.vector
        inner: Size = 0
        if v is not None and v in self.known and isinstance(offset, Dim):
            c = coefficient(offset, v)
            if c is not None and not isinstance(c, Dim):
                inner = atom(v) * c if c else 0
        fixed = offset - inner
        p = base
        if fixed != 0:
            home = self.home(self._axes(fixed), self._ready(fixed))
            p = home.address(base, itemsize, fixed)
        at = self.size(inner)
        if at == "0":
            return p
        return self.e(
            f"getelementptr inbounds [{itemsize} x i8], ptr {p}, i64 {at}"
        )

    def address(self, base: str, itemsize: int, offset: Size) -> str:
        """The address of an offset, computed once in this scope."""
        at = self.size(offset)
        key = (base, itemsize, at)
        found = self.frame.addresses.get((self, key))
        if found is None:
            found = self.e(f"getelementptr inbounds [{itemsize} x i8], ptr {base}, i64 {at}")
            self.frame.addresses[self, key] = found
        return found

    def store_all(self, stores: Sequence[Store], vector: bool) -> None:
        """Write demanded expressions to outputs, those that interleave together."""
        for group in interleaving.groups(stores, self.frame.schedule.vector if vector else None):
            first = group[0]
            if len(group) == 1:
                self.store(first.output, first.offset, first.expr, vector)
                continue
            d = self.frame.nest.outputs[first.output].dtype
            self.e.note(first.expr.node)
            at = self.element(self.frame.outputs[first.output], d.itemsize, first.offset)
            interleaving.store(self.lanes(True), d, [self.vector(s.expr) for s in group], at)
            self.e.note(None)

    def store(self, output: int, offset: Size, x: Expr, vector: bool) -> None:
        """Write a demanded expression to an output."""
        d = self.frame.nest.outputs[output]
        base = self.frame.outputs[output]
        L = self.lanes(vector)
        value = self.operand(x, vector)
        self.e.note(x.node)
        if not vector or self._step(offset) == 1:
            at, streaming = self.element(base, d.dtype.itemsize, offset), self.frame.streaming
            if streaming is not None and vector:
                first = (output, offset) == self.frame.nest.stores[0][:2]
                streaming.store(self, L, d.dtype, value, at, first)
            else:
                L.store(d.dtype, value, at)
        else:
            L.scatter(d.dtype, value, base, self.lane_size(offset))
        self.e.note(None)


def _kept_type(x: Expr) -> str:
    """The type of an element that is kept: bits, which lanes of any number are to find, take a
    byte."""
    return memory_of(register_type(x.dtype))


def always_inside(x: Expr) -> bool:
    """Whether a position cannot be out of range: bytes, in a table of 256."""
    n, e = x.attrs[0], x.args[0]
    while e.kind == "op" and e.name == "cast" and e.args[0].dtype.bits < e.dtype.bits:
        e = e.args[0]
    d = e.dtype
    return d.kind == "u" and isinstance(n, int) and n >= 1 << d.bits


def constant(x: Expr) -> float | int | bool:
    """The value of a `const` expression."""
    value = np.frombuffer(x.attrs[0], x.dtype.numpy)[0]
    return float(value) if x.dtype.is_float else int(value)
