"""Sums of the virtual lanes of rows: one tree, whatever the registers' width.

A row's products are added up in 4 x 64 bytes of virtual lanes. These are added pairwise, then
halves to halves down to one, and 0 is added: no sum is -0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.machine.target import VIRTUAL_BITS
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.pack import PIECE_BITS


def line_sum(L: Lanes, t: str, sums: Sequence[str]) -> str:
    """Four virtual vectors of lanes added pairwise, then halves with halves: one register. The
    last registers may be left out where nothing was added to them."""
    per_line = VIRTUAL_BITS // L.target.vector_bits // 4

    def add(a: str, b: str) -> str:
        return L.op("fadd", t, a, b) if a and b else a or b

    lanes = [*sums, *[""] * (4 * per_line - len(sums))]
    parts = []
    for i in range(per_line):
        q = lanes[i::per_line]
        parts.append(add(add(q[0], q[1]), add(q[2], q[3])))
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [add(parts[i], parts[i + half]) for i in range(half)]
    return parts[0]


def totals(f: Function, L: Lanes, t: str, rows: list[str]) -> list[str]:
    """The sums of the lanes of registers, halves with halves; several registers share the steps."""
    count, length, width = len(rows), L.width, L.width  # lanes of a row, of a register
    while length > 1:
        half = length // 2
        v = f"<{width} x {t}>"
        pairs = list(zip(rows[::2], rows[1::2] or ["poison"], strict=True))
        held = (width if len(rows) == 1 else 2 * width) // length
        orders = [
            [r * length + side * half + i for r in range(held) for i in range(half)]
            for side in (0, 1)
        ]
        width = held * half
        rows = []
        for a, b in pairs:
            low, high = (
                f(f"shufflevector {v} {a}, {v} {b}, <{width} x i32> "
                  f"<{', '.join(f'i32 {i}' for i in order)}>")
                for order in orders
            )
            rows.append(f(f"fadd <{width} x {t}> {low}, {high}"))
        length = half
    out = []
    for x in rows:
        held = count // len(rows)
        total = f(f"fadd <{held} x {t}> {x}, zeroinitializer")
        out += [f(f"extractelement <{held} x {t}> {total}, i64 {i}") for i in range(held)]
    return out


def transposed_totals(L: Lanes, t: str, row: Callable[[int], str]) -> str:
    """The sums of the lanes of as many registers as each has lanes, a lane each; `row` gives the
    register of a row when it is wanted.

    Halves of two registers are added to their other halves until one is left. Within 16 bytes
    those of both are put side by side, which is the cheap shuffle on x86; rows are put in order
    once in the end.
    """
    width, bits = L.width, int(t == "double") * 32 + 32

    def merged(first: int, count: int) -> tuple[str, list[int]]:
        """The register of so many rows from the first on, and which row each part of it is of."""
        if count == 1:
            return row(first), [first]
        (a, rows), (b, others) = (merged(first + k * count // 2, count // 2) for k in (0, 1))
        length = 2 * width // count
        pieces = max(1, PIECE_BITS // (length * bits))  # parts of rows within 16 bytes
        if length * bits > PIECE_BITS:
            pieces = len(rows)
        parts = [
            (side * width + k * length, which[k])
            for start in range(0, len(rows), pieces)
            for side, which in enumerate((rows, others))
            for k in range(start, start + pieces)
        ]
        low, high = (
            L.shuffle(t, a, b, [at + half + i for at, _ in parts for i in range(length // 2)])
            for half in (0, length // 2)
        )
        return L.op("fadd", t, low, high), [r for _, r in parts]

    sums, rows = merged(0, width)
    in_order = L.shuffle(t, sums, sums, [rows.index(r) for r in range(width)])
    return L.op("fadd", t, in_order, L.k(t, 0.0))
