"""The interior of a row, where vectors have no conditions, as positions at run time."""

from __future__ import annotations

from graphc.aligned import LINE
from graphc.codegen.emission.sweep import Body, greatest, least
from graphc.codegen.nests.conditions import Interior


def limits(body: Body, inner: Interior, begin: str, high: str, lines: bool) -> tuple[str, str]:
    """The part from begin to high that is in the interior; with `lines` it begins a line of the
    results if `begin` does.

    There may be none of it: then it is none at any place between them.
    """
    e, top = body.e, body.f.top
    first, last = begin, high
    for b in inner.low:
        first = greatest(e, first, top.size(b))
    if lines and inner.low:
        size = min(body.nest.outputs[x.output].dtype.itemsize for x in body.nest.stores)
        step = LINE // size
        after = e(f"sub nsw i64 {first}, {begin}")
        after = e(f"and i64 {e(f'add nsw i64 {after}, {step - 1}')}, {-step}")
        first = e(f"add nsw i64 {begin}, {after}")
    first = least(e, first, high)
    for b in inner.high:
        last = least(e, last, top.size(b))
    return first, greatest(e, first, last)
