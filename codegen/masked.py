"""Columns of a product that its epilogue does not look at, as under a causal mask.

    for i0<b, i1<m, i2<n:                      a block of rows that begins at in2: only columns
      e3: i64 = add (index i1) in2[0]          up to in2[0] + m are multiplied, for all others
      e4: bool = less_equal (index i2) e3      have what `select` puts there, whatever stands in C
      e9: f32 = select e4 (mul C 0.125) -inf

That is exact: `select` does not compute with what it leaves out.
"""

from __future__ import annotations

from graphc.codegen.loops import Expr, Nest, axis

STEP = 64  # columns are left out by so many, so that registers stay whole


def first_row(nest: Nest, rows: list[str], columns: list[str]) -> int | None:
    """The operand that says where the rows begin, if C is read only at columns up to the row.

    C is the last operand of the nest.
    """
    if len(rows) != 1 or len(columns) != 1:
        return None
    holder = len(nest.params) - 1
    begins: set[int] = set()
    reads: set[Expr] = set()  # what depends on columns of C that are not known to be wanted
    for e in nest.exprs:
        if e.kind == "load" and e.attrs[0] == holder:
            reads.add(e)
            continue
        args = set(e.args)
        if e.kind == "op" and e.attrs[0] == "select":
            found = _below(e.args[0], rows[0], columns[0])
            if found is not None and e.args[1] is not e.args[2]:
                begin, wanted = found
                if not args.isdisjoint(reads):
                    begins.add(begin)
                args.discard(e.args[1] if wanted else e.args[2])
        if not args.isdisjoint(reads):
            reads.add(e)
    if len(begins) != 1 or any(s.expr in reads for s in nest.stores):
        return None
    return begins.pop()


def _below(e: Expr, row: str, column: str) -> tuple[int, bool] | None:
    """(operand that holds the first row, truth of e) where a column is not beyond the row."""
    if e.kind != "op" or e.attrs[0] not in ("less", "less_equal"):
        return None
    low, high = e.args
    for at, other, truth in ((low, high, True), (high, low, False)):
        begin = _begin(other, row)
        if _is_index(at, column) and begin is not None:
            return begin, truth
    return None


def _begin(e: Expr, row: str) -> int | None:
    """The operand that is added to the row's number."""
    if e.kind != "op" or e.attrs[0] != "add":
        return None
    for x, y in (e.args, e.args[::-1]):
        if _is_index(x, row) and y.kind == "load" and not y.axes and y.attrs[1] == 0:
            return int(y.attrs[0])
    return None


def _is_index(e: Expr, name: str) -> bool:
    return e.kind == "index" and e.attrs[0] == axis(name) and e.dtype.name == "i64"
