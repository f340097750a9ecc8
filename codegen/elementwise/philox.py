"""Philox4x32-10 on lanes (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

A block of four words is ten rounds of two multiplications. Elements side by side share blocks: a
vector of n consecutive ones takes n / 4 of them, whose words are interleaved in registers, and one
more where it does not begin with a block. Words stand in lanes of 64 bits, with anything in the
upper halves: x86 multiplies the lower ones so, and needs no shuffles between rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lanes import Lanes

_M = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
_LOW = 0xFFFFFFFF


def round_keys(L: Lanes, key0: str, key1: str) -> list[str]:
    """The keys of all rounds in i64 lanes, from i32 lanes."""
    keys = [key0, key1]
    for _ in range(ROUNDS - 1):
        keys += [
            L.op("add", "i32", k, L.k("i32", w)) for k, w in zip(keys[-2:], WEYL, strict=True)
        ]
    return [L.convert("zext", k, "i32", "i64") for k in keys]


def each(L: Lanes, linear: str, keys: Sequence[str]) -> str:
    """Word i % 4 of block i // 4 for i = linear (i64 lanes)."""
    c = _blocks(L, L.op("lshr", "i64", linear, L.k("i64", 2)), keys)
    word = L.op("and", "i64", linear, L.k("i64", 3))
    low = L.select(L.cmp("eq", "i64", word, L.k("i64", 0)), "i64", c[0], c[1])
    high = L.select(L.cmp("eq", "i64", word, L.k("i64", 2)), "i64", c[2], c[3])
    picked = L.select(L.cmp("ult", "i64", word, L.k("i64", 2)), "i64", low, high)
    return L.convert("trunc", picked, "i64", "i32")


def blocks_of(width: int) -> int:
    """How many blocks go side by side for so many consecutive elements."""
    return max(2, width // 4)


def consecutive(L: Lanes, start: str, keys: Sequence[str]) -> str:
    """The words of elements start, start + 1, .. (a scalar) in lanes, four or more."""
    e, n = L.e, L.width
    one, many = Lanes(e, 1, L.target), Lanes(e, blocks_of(n), L.target)
    first = one.op("lshr", "i64", start, "2")
    words = _in_order(many, _blocks(many, many.lane_index(first), keys))
    whole = _taken(e, 4 * many.width, words, words, range(n))
    within = one.op("and", "i64", start, "3")
    before, inside, done = e.block, e.fresh("within"), e.fresh("words")
    e.do(f"br i1 {one.cmp('eq', 'i64', within, '0')}, label %{done}, label %{inside}")
    e.label(inside)
    pair = Lanes(e, 2, L.target)
    last = pair.spread("i64", one.op("add", "i64", first, str(n // 4)))
    more = _in_order(pair, _blocks(pair, last, [many.parts("i64", k, 2)[0] for k in keys]))
    shifted = _shifted(L, whole, _taken(e, 8, more, more, range(n)), within)
    after = e.block
    e.do(f"br label %{done}")
    e.label(done)
    return e(f"phi {L.vec('i32')} [{whole}, %{before}], [{shifted}, %{after}]")


def _shifted(L: Lanes, words: str, more: str, by: str) -> str:
    """Lanes by, by + 1, .. of two registers one behind the other, by below 4; four are asked of
    the second."""
    e, one, n = L.e, Lanes(L.e, 1, L.target), L.width
    for step in (1, 2):
        bit = one.cmp("ne", "i64", one.op("and", "i64", by, str(step)), "0")
        moved = L.shuffle("i32", words, more, range(step, n + step))
        rest = L.shuffle("i32", more, more, range(step, n + step))
        words, more = (
            e(f"select i1 {bit}, {L.vec('i32')} {a}, {L.vec('i32')} {b}")
            for a, b in ((moved, words), (rest, more))
        )
    return words


def _taken(e: Emitter, width: int, a: str, b: str, order: Iterable[int]) -> str:
    """Words picked from two registers of `width`."""
    lanes = [f"i32 {k}" if k < 2 * width else "i32 poison" for k in order]
    v = f"<{width} x i32>"
    return e(f"shufflevector {v} {a}, {v} {b}, <{len(lanes)} x i32> <{', '.join(lanes)}>")


def _in_order(L: Lanes, c: Sequence[str]) -> str:
    """The words of blocks in lanes as they follow each other, a register of four times as many."""
    low, high = (
        L.op("or", "i64", L.op("and", "i64", a, L.k("i64", _LOW)),
             L.op("shl", "i64", b, L.k("i64", 32)))
        for a, b in (c[:2], c[2:])
    )
    order = ", ".join(f"i32 {i}, i32 {i + L.width}" for i in range(L.width))
    v, n = L.vec("i64"), 2 * L.width
    both = L.e(f"shufflevector {v} {low}, {v} {high}, <{n} x i32> <{order}>")
    return L.e(f"bitcast <{n} x i64> {both} to <{2 * n} x i32>")


def _blocks(L: Lanes, number: str, keys: Sequence[str]) -> list[str]:
    """The four words of each block, in the lower halves of i64 lanes."""
    c = [number, L.op("lshr", "i64", number, L.k("i64", 32)), L.k("i64", 0), L.k("i64", 0)]
    low = L.k("i64", _LOW)
    for k0, k1 in zip(keys[::2], keys[1::2], strict=True):
        p0, p1 = (
            L.op("mul", "i64", L.op("and", "i64", x, low), L.k("i64", m))
            for x, m in zip(c[::2], _M, strict=True)
        )
        h0, h1 = (L.op("lshr", "i64", p, L.k("i64", 32)) for p in (p0, p1))
        c = [
            L.op("xor", "i64", L.op("xor", "i64", h1, c[1]), k0), p1,
            L.op("xor", "i64", L.op("xor", "i64", h0, c[3]), k1), p0,
        ]
    return c
