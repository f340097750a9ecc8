"""Short rows written out without loops.

Rows of one axis are swept in turns (`in_turns`), each sweep by itself. Of others, and those that
are swept once, what one sweep computes stays in registers for the next.

    softmax of 32 columns, AVX2:    x = the row, a register of 32 that LLVM splits
                                    m = max(x);  e = exp(x - m);  s = sum(e);  store e / s

Vectors that are whole are computed as one register, up to AT_ONCE of them: there is as much less
text to be written, and where registers are few they are kept in step (`Emitter.step`). Rows of 32
f32 take Zen 1 a quarter less for their softmax, of 16 f64 a third less for sums of their tanh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.emission.folds import fold, place
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.reductions import counted
from graphc.codegen.emission.scope import Scope
from graphc.codegen.nests.loops import Expr

if TYPE_CHECKING:
    from graphc.codegen.emission.across import Across

AT_ONCE = 4  # vectors that are one register


def run(body: Across, grid: Scope) -> Scope:
    """Every sweep over the row of a grid item; the scope where all its reductions are known."""
    row, scope = Row(body), grid
    for p in range(body.s.sweeps):
        scope = row.sweep(scope, p)
    return scope


class Row:
    """A row whose sweeps are written out; each has what those before it computed."""

    def __init__(self, body: Across):
        self.body, self.pieces = body, pieces(body)
        self.masks = [mask(body, k, count) for k, count in self.pieces]
        self.earlier: list[list[Scope]] = [[] for _ in self.pieces]

    def sweep(self, scope: Scope, p: int) -> Scope:
        """Sweep p; the scope where its reductions are known."""
        body, s = self.body, self.body.s
        body.f.sweeping = p
        L = Lanes(body.e, s.width, body.f.target)
        parts: dict[Expr, list[list[str] | None]] = {
            r: [None] * (s.lanes // s.width) for r in body.reduces[p]
        }
        for (k, count), active, before in zip(self.pieces, self.masks, self.earlier, strict=True):
            start = str(k * s.width)
            inner = body.vectors_at(scope, start, active, count * s.width)
            inner.chain[-1:-1] = before
            before.append(inner)
            body.evaluate(inner, body.reduces[p], body.row_stores[p])
            lanes = inner.lanes(True) if count == 1 else L
            for r in body.reduces[p]:
                kind = body.kind(r)
                for j, x in enumerate(body.arrivals(inner, r, start, count), k):
                    at = j % len(parts[r])
                    old = parts[r][at]
                    parts[r][at] = kind.first(lanes, x) if old is None else kind.step(lanes, old, x)
        following = Scope(body.f, scope, body.e, {}, ready=p + 1)
        for r, vectors in parts.items():
            following.scalars[r] = _result(body, r, vectors, [x[-1] for x in self.earlier])
        return following


def pieces(body: Across) -> list[tuple[int, int]]:
    """The vectors that are computed as one register: the first, and how many, a power of two."""
    s = body.s
    n = body.nest.sizes[s.vector] if s.vector is not None else 1
    numbered = any(body.kind(r).name == "argmax" for p in body.reduces for r in p)
    whole = n // s.width if isinstance(n, int) and not numbered else 0
    found, k, vectors = [], 0, s.short
    while k < vectors:
        count = 1
        while 2 * count <= min(AT_ONCE, whole - k):
            count *= 2
        found.append((k, count))
        k += count
    return found


def mask(body: Across, k: int, count: int) -> str | None:
    """The lanes of the k-th vector and those after it, `count` in all, that the row has; None for
    all of them."""
    s = body.s
    assert s.vector is not None
    n = body.nest.sizes[s.vector]
    if isinstance(n, int) and (k + count) * s.width <= n:
        return None
    return body.mask(str(k * s.width), body.f.top.size(n))


def _result(body: Across, r: Expr, vectors: list[list[str] | None], places: list[Scope]) -> str:
    """A reduction of the row, from the states of its lanes, or from where a condition holds."""
    s, e, kind = body.s, body.e, body.kind(r)
    L, one = (Lanes(e, width, body.f.target) for width in (s.width, 1))
    e.note(r.node)
    condition = counted(r, body.f.target)
    if condition is not None:
        hits = []
        for x in places:
            wide = x.lanes(True)
            hits += wide.parts("i1", wide.active(x.vector(condition)), s.width)
        return kind.finish(one, [kind.count(L, hits)], r.dtype)
    if kind.name == "argmax" and s.short * s.width <= s.lanes:
        return place(kind, L, vectors)
    return kind.finish(one, kind.begun(one, fold(kind, L, vectors)), r.dtype)
