"""Ops on elements: folding, and the choice between scalars and vectors.

`Ops.apply` computes one elementwise op for a whole array of elements: what is known already or
folds to a constant or another element costs nothing, the rest is computed in vectors where bringing
the operands together takes less than computing one by one. Sums, and products in `dot`,
are built on it.

Folding is exact (every bit but NaN payloads); with `fastmath`, 0 * x is 0 and x + 0 is x as in the
rules of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.codegen.elementwise.scalars import emit
from graphc.codegen.emission.literals import register_type
from graphc.codegen.nests.costs import COSTLY, VECTOR_COST
from graphc.codegen.straight.elements import Elements, Vector
from graphc.ops.row import OPS
from graphc.types import DType

BIAS = 1.4  # vectors are worth this many times the scalar steps: results often stay in them
Ids = np.ndarray[Any, Any]
Rows = list[tuple[int, int]]               # vector and lane, by position in the result
Missing = tuple[int, tuple[int, ...], int]  # position in the result, operands, element
# Constant operands of these give constants: NumPy's result is the exact one.
FOLDED = frozenset({"add", "sub", "mul", "div", "neg", "abs", "sqrt", "cast", "equal", "less",
                    "less_equal", "and", "or", "xor", "not"})  # fmt: skip


class Ops:
    """Elementwise ops and reductions over `Elements`."""

    def __init__(self, elements: Elements):
        self.x = elements
        self.done: dict[tuple[Any, ...], int] = {}  # elements by op, dtype, operands, attributes

    def apply(
        self, op: str, dtype: DType, args: Sequence[Ids], attrs: Mapping[str, Any] | None = None,
        rows: Rows | None = None, exact: bool = False,
    ) -> Ids:
        """The op on arrays of one shape.

        rows: which vector and lane each result goes to. exact: written so that LLVM leaves the
        order of operations as it is, even with `fastmath`.
        """
        if op == "div" and self.x.fastmath and dtype.is_float:
            args, op = self._reciprocal(dtype, args)
        shape = args[0].shape
        attrs = attrs or {}
        given = (*attrs.items(), repr(attrs)) if attrs else ()  # 0.0 is not -0.0 (`ir.attr_key`)
        flat = [a.reshape(-1).tolist() for a in args]
        out: list[int] = []
        missing: dict[str, list[Missing]] = {}  # by op
        riders: dict[int, Missing] = {}         # by position: what the op leaves as it is
        for position, operands in enumerate(zip(*flat, strict=True)):
            key = (op, dtype, operands, *given)
            x = self.done.get(key)
            if x is None:
                found = self.fold(op, dtype, operands, attrs)
                if isinstance(found, tuple):  # another op does
                    again = (found[0], dtype, found[1], *(given if found[0] == op else ()))
                    x = self.done.get(again)
                    if x is None:
                        x = self.done[again] = self.x.new(dtype)
                        missing.setdefault(found[0], []).append((position, found[1], x))
                else:
                    x = found
                self.done[key] = x
            if x in operands:
                riders[position] = position, operands, x
            out.append(x)
        for other, group in missing.items():
            own = other == op
            self.emit(
                other, dtype, group, attrs if own else {}, shape, rows, riders if own else {},
                exact,
            )
        return np.array(out, np.int64).reshape(shape)

    def _reciprocal(self, dtype: DType, args: Sequence[Ids]) -> tuple[Sequence[Ids], str]:
        """Several quotients by one divisor as products."""
        divisors = set(args[1].reshape(-1).tolist())
        if args[0].size < 2 or len(divisors) > 1 or divisors & self.x.constants.keys():
            return args, "div"
        one = self.x.constant(dtype, 1)
        inverse = self.apply("div", dtype, [np.array([one]), np.array([*divisors])])
        return [args[0], np.full(args[0].shape, inverse[0])], "mul"

    # --- folding -------------------------------------------------------------------------------

    def fold(
        self, op: str, dtype: DType, args: tuple[int, ...], attrs: Mapping[str, Any]
    ) -> int | tuple[str, tuple[int, ...]]:
        """The element that the op's result is known to be, or the op and operands it takes."""
        X, known = self.x, self.x.constants
        same = op, args
        if not any(a in known for a in args):
            return same
        if op == "select":
            return args[1 if known[args[0]] else 2] if args[0] in known else same
        if any(d.is_float and d.bits == 16 for d in (dtype, X.dtypes[args[0]])):
            return same
        if op in FOLDED and all(a in known for a in args):
            with np.errstate(all="ignore"):
                ref = OPS[op].ref
                assert ref is not None
                return X.constant(dtype, ref(*(np.asarray(known[a]) for a in args), **attrs))
        if dtype.kind == "b":
            return same
        if op == "mul":
            return self._product(dtype, *args)
        if op == "fma":
            return self._fma(*args)
        if op == "add" and self.is_nothing(args[0]):
            return args[1]
        if (
            (op == "add" and self.is_nothing(args[1]))
            or (op == "sub" and self.is_nothing(args[1], negated=True))
            or (op == "div" and self.equals(args[1], 1))
        ):
            return args[0]
        return same

    def equals(self, x: int, value: float) -> bool:
        """Whether an element is known to be a number."""
        return x in self.x.constants and bool(self.x.constants[x] == value)

    def is_nothing(self, x: int, negated: bool = False) -> bool:
        """Whether y + x is y for all y (or y - x)."""
        if not self.equals(x, 0):
            return False
        d = self.x.dtypes[x]
        return not d.is_float or self.x.fastmath or bool(
            np.signbit(self.x.constants[x]) != negated
        )

    def is_zero(self, x: int) -> bool:
        """Whether y * x is 0 for all y."""
        return self.equals(x, 0) and (self.x.fastmath or not self.x.dtypes[x].is_float)

    def _product(self, dtype: DType, a: int, b: int) -> int | tuple[str, tuple[int, ...]]:
        """a * b, folded."""
        for x, y in ((a, b), (b, a)):
            if self.equals(x, 1):
                return y
            if self.equals(x, -1) and dtype.is_float:
                return "neg", (y,)
            if self.is_zero(x):
                return self.x.constant(dtype, 0)
        return "mul", (a, b)

    def _fma(self, a: int, b: int, c: int) -> int | tuple[str, tuple[int, ...]]:
        """a * b + c, folded."""
        for x, y in ((a, b), (b, a)):
            if self.is_zero(x):
                return c
            if self.equals(x, 1):
                return y if self.is_nothing(c) else ("add", (c, y))
            if self.equals(x, -1):
                return ("neg", (y,)) if self.is_nothing(c) else ("sub", (c, y))
        return ("mul", (a, b)) if self.is_nothing(c) else ("fma", (a, b, c))

    # --- emission ------------------------------------------------------------------------------

    def emit(
        self, op: str, dtype: DType, missing: list[Missing], attrs: Mapping[str, Any],
        shape: tuple[int, ...], rows: Rows | None, riders: Mapping[int, Missing],
        exact: bool,
    ) -> None:
        """Compute elements from their operands, in groups of lanes.

        Where an element of a vector stays as it is, its lane takes part, so that the results
        remain together.
        """
        X = self.x
        dtypes = [X.dtypes[a] for a in missing[0][1]]
        cost = VECTOR_COST.get(op, 1)
        groups = []
        together = 0.0
        for lanes in self.lanes(missing, X.width([*dtypes, dtype]), shape, rows):
            ids, columns = self._columns(lanes, cost >= COSTLY)
            more = lanes | self._riders(lanes, riders)
            if len(more) > len(lanes):
                ids_more, columns_more = self._columns(more, False)
                if self._cost(columns_more) <= self._cost(columns):
                    ids, columns = ids_more, columns_more
            groups.append((lanes, ids, columns))
            together += cost
        shared = {tuple(c): c for _, _, columns in groups for c in columns}
        together += self._cost(shared.values())
        singles = {a for _, operands, _ in missing for a in operands}
        apart = cost * len(missing) + sum(map(X.scalar_cost, singles))
        vectors = len(groups) < len(missing) and together <= BIAS * apart
        for lanes, ids, columns in groups:
            if vectors and len(ids) > 1:
                args = [X.vector(c, len(ids)) for c in columns]
                register = self._one(op, dtype, len(ids), args, dtypes, attrs, exact)
                X.place(Vector(register, register_type(dtype), len(ids)), ids)
                continue
            for _, operands, x in lanes.values():
                args = [X.scalar(a) for a in operands]
                X.scalars[x] = self._one(op, dtype, 1, args, dtypes, attrs, exact)

    def _columns(
        self, lanes: Mapping[int, Missing], fill: bool
    ) -> tuple[list[int | None], list[list[int | None]]]:
        """Results and operands by lane; `fill` leaves no operand open, for rare cases' sake."""
        size = 1
        while size <= max(lanes):
            size *= 2
        ids: list[int | None] = [None] * size
        columns: list[list[int | None]] = [[None] * size for _ in next(iter(lanes.values()))[1]]
        for lane, (_, operands, x) in lanes.items():
            ids[lane] = x
            for column, a in zip(columns, operands, strict=True):
                column[lane] = a
        if fill:
            some = next(iter(lanes.values()))[1]
            columns = [[a if x is None else x for x in c]
                       for c, a in zip(columns, some, strict=True)]
        return ids, columns

    def _cost(self, columns: Iterable[list[int | None]]) -> float:
        """What bringing operands into lanes takes."""
        return sum(self.x.vector_cost(c, len(c)) for c in columns)

    def _riders(
        self, lanes: Mapping[int, Missing], riders: Mapping[int, Missing]
    ) -> dict[int, Missing]:
        """What stands between and beside the elements of a group, in its vector and in place."""
        if not riders:
            return {}
        homes = {v for _, operands, _ in lanes.values() for a in operands
                 if (v := self.x.lanes.get(a, (None, 0))[0]) is not None}
        found = {}
        for m in riders.values():
            v, lane = self.x.lanes.get(m[2], (None, 0))
            if v in homes and lane not in lanes:
                found[lane] = m
        return found

    def lanes(
        self, missing: list[Missing], width: int, shape: tuple[int, ...],
        rows: Rows | None,
    ) -> list[dict[int, Missing]]:
        """Which elements share a vector, and their lanes there.

        Those of `rows`, else those of the operand that stands in vectors, else those of the shape.
        """
        groups: dict[Any, dict[int, Missing]] = {}
        leader = None if rows else self._leader([m for _, m, _ in missing])
        n = next((s for s in reversed(shape) if s > 1), 1)
        if n < width:  # several short rows share a vector
            n *= max(1, width // n)
        group: Any
        for position, operands, x in missing:
            if rows:
                group, lane = rows[position]
            elif leader is not None and operands[leader] in self.x.lanes:
                vector, lane = self.x.lanes[operands[leader]]
                group, lane = (vector, lane // width), lane % width
            else:
                row, place = divmod(position, n)
                group, lane = (row, place // width), place % width
            lanes = groups.setdefault(group, {})
            if lane in lanes:
                lanes = groups.setdefault((group, lane, position), {})
            lanes[lane] = position, operands, x
        return list(groups.values())

    def _leader(self, operands: list[tuple[int, ...]]) -> int | None:
        """The operand whose lanes the results take: the one with most elements in vectors."""
        best, most = None, 1
        for j in range(len(operands[0])):
            held = len({o[j] for o in operands if o[j] in self.x.lanes})
            if held > most:
                best, most = j, held
        return best

    def _one(
        self, op: str, dtype: DType, width: int, args: Sequence[str], dtypes: Sequence[DType],
        attrs: Mapping[str, Any], exact: bool,
    ) -> str:
        """Emit one op on registers."""
        L = self.x.writer(width, exact)
        if op == "fma":
            return L.fma("double" if dtype.bits == 64 else "float", *args)
        return emit(L, op, args, dtypes, dtype, attrs)

    # --- reductions ----------------------------------------------------------------------------

    def reduce(self, name: str, dtype: DType, x: Ids, axes: Sequence[int]) -> Ids:
        """Sum, product or extremum over axes, by halves: element i meets element i + n/2."""
        kept = [k for k in range(x.ndim) if k not in axes]
        rest = tuple(x.shape[k] for k in kept)
        x = x.transpose([*axes, *kept]).reshape(-1, *rest)
        op = {"reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "maximum",
              "reduce_min": "minimum"}[name]  # fmt: skip
        while len(x) > 1:
            half = -(-len(x) // 2)
            low, high = x[: len(x) - half], x[half:]
            x = np.concatenate([self.apply(op, dtype, [low, high]), x[len(x) - half : half]])
        x = x[0]
        if name == "reduce_sum" and dtype.is_float and not self.x.fastmath:
            zero = self.x.constant(dtype, 0)  # a sum of negative zeros is 0
            x = self.apply("add", dtype, [x, np.full(rest, zero)])
        return x
