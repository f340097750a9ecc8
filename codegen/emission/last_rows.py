"""The last rows of a nest with a row in every lane, by the code of the others.

    for each vector of rows: ..        for each vector of rows: ..
    the rows left, masked: ..     ->   if some are left: copy their operands to where a whole vector
                                       has room, call this task for that one, copy the results back

Rows that are written out (`nests/stacked_rows`) make long functions. What is left of a named number
of them would be as long again, and longer: of an operand that is turned every row has an address
and a mask of its own. 1,000 mixed nodes with their gradient take 1.15 s to compile in the place of
2.05; rolls, sums and a maximum of rows of 10 f32 72 ms in the place of 115, of 16 f64 52 and 74,
and by AVX2 52 and 74, 50 and 65. A call with 15 rows takes 0.24 us in the place of 0.21.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphc.codegen.nests.axes import coefficient
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.schedule import group_of
from graphc.dims import Size, atom

if TYPE_CHECKING:
    from graphc.codegen.emission.along import Along

LEAST_EXPRS = 40      # of a nest for which it is worth a call
MOST_BYTES = 1 << 13  # of all copies, which stand on the stack
KINDS = frozenset({"load", "const", "op"})  # of which no lane tells where it is


class Copied(NamedTuple):
    """An operand or a result of which rows are copied: its number, bytes of a row."""

    number: int
    row: int


def of(body: Along) -> tuple[list[Copied], list[Copied]] | None:
    """The operands and results of which rows are copied; None where the last rows are masked."""
    s, f, nest = body.s, body.f, body.nest
    if not s.spans or s.width == 1 or s.interleave > 1 or group_of(s) > 1 or s.stages is not None:
        return None
    if len(nest.exprs) < LEAST_EXPRS or any(x.kind not in KINDS for x in nest.exprs):
        return None
    if f.sites or f.streaming is not None or nest.overlaps:
        return None
    vector = s.vector or ""
    if str(nest.sizes[vector]) not in f.slots.dims:
        return None
    operands, results = _operands(nest, vector), _results(nest, vector)
    if operands is None or results is None:
        return None
    turned = any(x.row > nest.params[x.number].dtype.itemsize for x in operands)
    if not turned or s.width * sum(x.row for x in (*operands, *results)) > MOST_BYTES:
        return None
    return operands, results


def _operands(nest: Nest, vector: str) -> list[Copied] | None:
    """Those of which all that is read stands in rows, but for what is the same for all rows."""
    rows: dict[int, int] = {}
    for x in nest.exprs:
        if x.kind != "load":
            continue
        row = _row(x.offset, vector)
        if row is None or x.preds or rows.setdefault(x.param, row[0]) != row[0]:
            return None
    return [Copied(k, n * nest.params[k].dtype.itemsize) for k, n in rows.items() if n]


def _results(nest: Nest, vector: str) -> list[Copied] | None:
    """Those, if they are all, of which every element of a row is written."""
    rows: dict[int, tuple[int, set[int]]] = {}
    for x in nest.stores:
        row = _row(x.offset, vector)
        if row is None or rows.setdefault(x.output, (row[0], set()))[0] != row[0]:
            return None
        rows[x.output][1].add(row[1])
    if any(len(written) != n for n, written in rows.values()):
        return None
    return [Copied(k, n * nest.outputs[k].dtype.itemsize) for k, (n, _) in rows.items()]


def _row(offset: Size, vector: str) -> tuple[int, int] | None:
    """The elements of the row that an offset is in, and its place there; no elements where it is
    the same for all rows."""
    n = coefficient(offset, vector)
    if not isinstance(n, int):
        return None
    place = offset - atom(vector) * n
    if n == 0:
        return (0, 0) if isinstance(place, int) else None
    return (n, place) if isinstance(place, int) and 0 <= place < n else None


def run(body: Along, name: str, low: str, high: str) -> bool:
    """Write the rows from low to high of the task `name`; False where this is not the way."""
    found = of(body)
    if found is None:
        return False
    f, e, width = body.f, body.e, body.s.width
    left = e(f"srem i64 {e(f'sub nsw i64 {high}, {low}')}, {width}")
    whole = e(f"sub nsw i64 {high}, {left}")
    body.vectors(f.top, low, whole, lambda vectors: body.rows(f.top, vectors), even=True)
    last, done = e.fresh("last"), e.fresh("done")
    e.do(f"br i1 {e(f'icmp sgt i64 {left}, 0')}, label %{last}, label %{done}")
    e.label(last)
    _call(body, name, *found, whole, left)
    e.do(f"br label %{done}")
    e.label(done)
    return True


def _call(
    body: Along, name: str, operands: list[Copied], results: list[Copied], first: str, left: str
) -> None:
    """Call the task for copies of the `left` rows from `first` on, as if they were a vector."""
    f, e, width, slots = body.f, body.e, body.s.width, body.f.slots

    def rows_of(base: str, x: Copied) -> tuple[str, str]:
        at = e(f"getelementptr inbounds i8, ptr {base}, i64 {e(f'mul nsw i64 {first}, {x.row}')}")
        return at, e(f"mul nsw i64 {left}, {x.row}")

    ctx = f.alloca(f"[{slots.count} x i64]")
    e.copy(ctx, "%ctx", str(8 * slots.count))

    def put(k: int, type: str, value: str) -> None:
        e.do(f"store {type} {value}, ptr {e(f'getelementptr i64, ptr {ctx}, i64 {k}')}, align 8")

    rows = slots.dims.index(str(body.nest.sizes[body.s.vector or ""]))
    put(slots.params + slots.outputs + rows, "i64", str(width))
    put(slots.chunk, "i64", "1")
    for x in operands:
        copy = f.alloca(f"[{width * x.row} x i8]")
        e.clear(copy, str(width * x.row))  # lest what is computed for nothing take long
        e.copy(copy, *rows_of(f.params[x.number], x))
        put(x.number, "ptr", copy)
    copies = [f.alloca(f"[{width * x.row} x i8]") for x in results]
    for x, copy in zip(results, copies, strict=True):
        put(slots.params + x.number, "ptr", copy)
    e.do(f"call void @{name}(ptr {ctx}, i64 0, i64 1, ptr %scratch)")
    for x, copy in zip(results, copies, strict=True):
        to, size = rows_of(f.outputs[x.number], x)
        e.copy(to, copy, size)
