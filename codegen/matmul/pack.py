"""Copying blocks of operands for the matrix product: packing, transposing, widening, rounding.

    pack(rows, cols, src, src_row, src_col, dst, dst_row)

writes dst[r, c] = src[r, c] in the compute type, dst with unit column stride; strides in bytes.
Where src is contiguous along its rows it is read in squares that are transposed in registers,
and up to a register more of each row of dst is written than `cols`.

    spread(rows, depth, cols, src, src_row, dst)

copies rows, contiguous and in the compute type, to the panels of a block of `depth` rows.

    slices(count, depth, src, src_row, dst)

copies contiguous rows to `count` slices, one behind the other, each with some elements of every
row, in the compute type, and room for some more.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.elementwise.casts import round_to
from graphc.codegen.emission.emitter import Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.tiling import Tiling, prefix, tail_mask
from graphc.types import DType

AHEAD = 32        # rows between a copy and the request for what it will copy
PIECE_BITS = 128  # shuffles within 128-bit pieces are the cheap ones on x86


def define_pack(module: Module, target: Target, dtype: DType) -> str:
    """Define `pack` from memory of `dtype` to its compute dtype; returns the function's name."""
    name = f"{prefix(dtype)}_pack"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %rows, i64 %cols, ptr %src, i64 %src_row, i64 %src_col, "
        "ptr noalias %dst, i64 %dst_row",
        target, tuned=True,
    )
    unit = f.cmp("eq", "%src_col", str(dtype.itemsize))
    with f.either(unit) as branches:
        _copy(f, dtype)
        f.otherwise(*branches)
        contiguous = f.cmp("eq", "%src_row", str(dtype.itemsize))
        done = f.select(contiguous, f(f"and i64 %rows, {-piece_size(target, dtype)}"), "0")
        _transpose(f, dtype, done)
        _gather(f, dtype, done)
    f.finish()
    return name


def _copy(f: Function, dtype: DType) -> None:
    """Rows with unit stride: registers, then single elements.

    Rows far apart lie in different pages, where hardware does not look ahead. What lies behind the
    last row is not asked for: the next strip of A, if this is one, by the kernels.
    """
    out = dtype.compute
    lanes = f.target.lanes(dtype)
    whole = f(f"and i64 %cols, {-lanes}")
    rest = f.sub("%cols", whole)
    many = f.cmp("sgt", "%rows", str(AHEAD))
    distance = f.select(many, f.mul("%src_row", AHEAD), "0")
    with f.each("0", "%rows") as row:
        src = f.at("%src", f.mul(row.index, "%src_row"))
        dst = f.at("%dst", f.mul(row.index, "%dst_row"))
        ahead = f.at(src, distance)

        def copy(L: Lanes, col: str) -> None:
            at = f.mul(col, dtype.itemsize)
            f.prefetch(f.at(ahead, at), 2)
            x = L.load(dtype, f.at(src, at))
            L.store(out, x, f.at(dst, f.mul(col, out.itemsize)))

        with f.each("0", whole, lanes) as col:
            copy(Lanes(f, lanes, f.target), col.index)
        if f.target.masked:
            with f.when(f.cmp("ne", rest, "0")):
                mask = tail_mask(f, out, lanes, rest)
                copy(Lanes(f, lanes, f.target, mask=mask), whole)
            return
        done, width = whole, lanes // 2
        while width:
            with f.when(f.cmp("ne", f(f"and i64 {rest}, {width}"), "0")):
                copy(Lanes(f, width, f.target), done)
            done = f.add(done, f(f"and i64 {rest}, {width}"))
            width //= 2


def _gather(f: Function, dtype: DType, first_row: str) -> None:
    """Any strides, element by element, from `first_row` on."""
    out, L = dtype.compute, Lanes(f, 1, f.target)
    with f.each(first_row, "%rows") as row:
        src = f.at("%src", f.mul(row.index, "%src_row"))
        dst = f.at("%dst", f.mul(row.index, "%dst_row"))
        with f.each("0", "%cols") as col:
            x = L.load(dtype, f.at(src, f.mul(col.index, "%src_col")))
            L.store(out, x, f.at(dst, f.mul(col.index, out.itemsize)))


def piece_size(target: Target, dtype: DType) -> int:
    """Elements of a register's piece, within which shuffles are cheap."""
    return min(PIECE_BITS // dtype.compute.bits, target.lanes(dtype))


def define_spread(module: Module, target: Target, tiles: Tiling) -> str:
    """Define `spread` for whole panels; returns its name."""
    name = f"{prefix(tiles.dtype)}_spread"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %rows, i64 %depth, i64 %cols, ptr %src, i64 %src_row, ptr noalias %dst", target,
        tuned=True,
    )
    L, size = Lanes(f, tiles.lanes, target), tiles.lanes * tiles.bytes
    line = tiles.panel * size
    with f.each("0", "%rows") as row:
        src = f.at("%src", f.mul(row.index, "%src_row"))
        dst = f.at("%dst", f.mul(row.index, line))
        with f.each("0", f.mul("%cols", tiles.bytes), line) as panel:
            piece = f.at(src, panel.index)
            pieces = [L.load(tiles.dtype, f.at(piece, j * size)) for j in range(tiles.panel)]
            out = f.at(dst, f.mul(panel.index, "%depth"))
            for j, x in enumerate(pieces):
                L.store(tiles.dtype, x, f.at(out, j * size))
    f.finish()
    return name


def define_slices(
    module: Module, target: Target, dtype: DType, width: int, pitch: int
) -> str:
    """Define `slices` of `width` elements, whose rows are `pitch` apart; returns its name."""
    name = f"{prefix(dtype)}_slices"
    if name in module.functions:
        return name
    f = Function(
        module, name, "i64 %count, i64 %depth, ptr %src, i64 %src_row, ptr noalias %dst", target,
        tuned=True,
    )
    out, lanes = dtype.compute, target.lanes(dtype)
    whole = width // lanes * lanes
    pieces = [(at, Lanes(f, lanes, target)) for at in range(0, whole, lanes)]
    mask = tail_mask(f, out, lanes, str(width - whole))
    pieces.append((whole, Lanes(f, lanes, target, mask=mask)))
    line = pitch * out.itemsize
    with f.each("0", "%depth") as row:
        src = f.at("%src", f.mul(row.index, "%src_row"))
        dst = f.at("%dst", f.mul(row.index, line))
        with f.each("0", "%count") as number:
            place = f.at(src, f.mul(number.index, width * dtype.itemsize))
            to = f.at(dst, f.mul(f.mul(number.index, "%depth"), line))
            loaded = [L.load(dtype, f.at(place, at * dtype.itemsize)) for at, L in pieces]
            for x, (at, L) in zip(loaded, pieces, strict=True):
                L.store(out, x, f.at(to, at * out.itemsize))
    f.finish()
    return name


def _transpose(f: Function, dtype: DType, whole: str) -> None:
    """Columns with unit stride, `whole` rows: `lanes` columns by a piece of rows at a time."""
    out = dtype.compute
    lanes = f.target.lanes(dtype)
    piece = piece_size(f.target, dtype)
    L = Lanes(f, piece, f.target)
    groups = f.select(f.cmp("eq", whole, "0"), "0", "%cols")
    with f.each("0", groups, lanes) as col:
        base = f.at("%src", f.mul(col.index, "%src_col"))
        dst = f.at("%dst", f.mul(col.index, out.itemsize))
        # a partial last group repeats its last column rather than read outside of src
        last = f.sub(f.sub("%cols", col.index), "1")
        sources = [
            f.at(base, f.mul(f.min(str(i), last), "%src_col")) if i else base
            for i in range(lanes)
        ]
        with f.each("0", whole, piece) as row:
            shift = f.mul(row.index, dtype.itemsize)
            parts = [L.load(dtype, f.at(p, shift)) for p in sources]
            target_row = f.at(dst, f.mul(row.index, "%dst_row"))
            wide = Lanes(f, lanes, f.target)
            for i, x in enumerate(turned(f, dtype, parts, piece)):
                wide.store(out, x, f.at(target_row, f.mul("%dst_row", i)))


def turned(f: Function, dtype: DType, columns: list[str], rows: int) -> list[str]:
    """As many columns as lanes, registers of `rows` elements, as that many rows: those of a piece,
    or twice as many where registers are four pieces.

    That takes 4 shuffles for every row in the place of 5: one that joins two columns, two within
    pieces, and one that brings pieces together. Packing does not gain by it.
    """
    t, lanes, piece = register_type(dtype.compute), len(columns), piece_size(f.target, dtype)
    if rows == piece:
        return _squares(f, t, lanes, [_joined(f, t, rows, columns[i::rows]) for i in range(rows)])
    halves = [
        _squares(f, t, lanes, [
            _joined(f, t, rows, [columns[start + i], columns[start + piece + i]])
            for i in range(piece)
        ])
        for start in (0, 2 * piece)
    ]
    return [
        _shuffle(f, f"<{lanes} x {t}>", a, b, [
            half + quarter * piece + i
            for half in (0, lanes) for quarter in (first, first + 2) for i in range(piece)
        ])
        for first in (0, 1) for a, b in zip(*halves, strict=True)
    ]


def _shuffle(f: Function, v: str, a: str, b: str, pick: list[int]) -> str:
    """Elements of two registers of type v."""
    order = ", ".join(f"i32 {i}" for i in pick)
    return f(f"shufflevector {v} {a}, {v} {b}, <{len(pick)} x i32> <{order}>")


def _joined(f: Function, t: str, width: int, parts: list[str]) -> str:
    """Registers of `width` elements joined pairwise into one."""
    while len(parts) > 1:
        v = f"<{width} x {t}>"
        width *= 2
        parts = [
            _shuffle(f, v, a, b, [*range(width)])
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _squares(f: Function, t: str, lanes: int, vectors: list[str]) -> list[str]:
    """Transpose the squares that the pieces at one position of all `vectors` form."""
    size = len(vectors)

    def shuffle(a: str, b: str, pick: list[tuple[int, int]]) -> str:
        return _shuffle(f, f"<{lanes} x {t}>", a, b, [
            side * lanes + start + i for start in range(0, lanes, size) for side, i in pick
        ])

    if size == 1:
        return vectors
    if size == 2:
        a, b = vectors
        return [shuffle(a, b, [(0, i), (1, i)]) for i in range(2)]
    if size > 4:
        return _interleaved(vectors, shuffle)
    low = [(0, 0), (1, 0), (0, 1), (1, 1)]
    high = [(0, 2), (1, 2), (0, 3), (1, 3)]
    a, b, c, d = vectors
    out = []
    for half in (low, high):
        ab, cd = shuffle(a, b, half), shuffle(c, d, half)
        out.append(shuffle(ab, cd, [(0, 0), (0, 1), (1, 0), (1, 1)]))
        out.append(shuffle(ab, cd, [(0, 2), (0, 3), (1, 2), (1, 3)]))
    return out


def _interleaved(
    vectors: list[str], shuffle: Callable[[str, str, list[tuple[int, int]]], str]
) -> list[str]:
    """Transpose squares of small elements: each vector interleaved with the one half of them
    further on, as often as it takes to have been with all."""
    size = len(vectors)
    for _ in range(size.bit_length() - 1):
        halves = zip(vectors[: size // 2], vectors[size // 2 :], strict=True)
        vectors = [
            shuffle(a, b, [(side, begin + i) for i in range(size // 2) for side in (0, 1)])
            for a, b in halves for begin in (0, size // 2)
        ]
    return vectors


def define_unpack(module: Module, target: Target, dtype: DType) -> str:
    """Define `unpack(rows, cols, src, src_row, dst, dst_row)`: compute type to memory, rounded."""
    name = f"{prefix(dtype)}_unpack"
    if name in module.functions:
        return name
    f = Function(
        module, name,
        "i64 %rows, i64 %cols, ptr %src, i64 %src_row, ptr noalias %dst, i64 %dst_row", target,
    )
    lanes, source = target.lanes(dtype), dtype.compute
    with f.each("0", "%rows") as row:
        src = f.at("%src", f.mul(row.index, "%src_row"))
        dst = f.at("%dst", f.mul(row.index, "%dst_row"))
        whole = f(f"and i64 %cols, {-lanes}")
        for start, stop, width in (("0", whole, lanes), (whole, "%cols", 1)):
            L = Lanes(f, width, target)
            with f.each(start, stop, width) as col:
                x = L.load(source, f.at(src, f.mul(col.index, source.itemsize)))
                x = round_to(L, dtype, x)
                L.store(dtype, x, f.at(dst, f.mul(col.index, dtype.itemsize)))
    f.finish()
    return name
