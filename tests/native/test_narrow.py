"""Sums of short integers and counts, which lanes keep in few bits from block to block."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx

RNG = np.random.default_rng(41)
LENGTHS = (0, 1, 63, 64, 100, 4095, 4096, 4097, 70001)  # blocks are 4096 long


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16"])
def test_no_lane_overflows(dtype):
    """Random numbers, and as many as fit of the least and of the greatest there are."""
    ends = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = gx.input("x", ("n",), dtype)
    both = [gx.sum(x), gx.sum(x != 0), gx.sum(x, dtype="int32")]
    f = gx.function([x], both)
    for n in LENGTHS:
        for a in (RNG.integers(ends[0], ends[1] + 1, n), np.full(n, ends[0]), np.full(n, ends[1])):
            a = a.astype(dtype)
            want = [a.sum(), np.count_nonzero(a), a.sum(dtype="int32")]
            assert [int(y) for y in f(a)] == [int(y) for y in want]


def test_lanes_are_as_wide_as_what_is_counted():
    """Bytes stand in as many lanes as a register has bytes, and no lane has 64 bits before a block
    is over."""
    x, y = gx.input("x", ("n",), "uint8"), gx.input("y", ("n",))
    text = gx.function([x], gx.sum(x > 7)).llvm_ir()
    assert "x i8>" in text
    assert " = zext <" in text
    assert not re.search(r"<\d+ x i64>", text)
    a = RNG.normal(size=9001).astype("f4")
    assert gx.function([y], gx.sum(y > 0.5))(a) == np.count_nonzero(a > 0.5)
    # a number that something else wants as well stays wide
    wide = gx.astype(x, "int64")
    b = RNG.integers(0, 256, 5000).astype("u1")
    f = gx.function([x], [gx.sum(wide), gx.max(wide), gx.sum(wide * wide)])
    w = b.astype("i8")
    assert [int(v) for v in f(b)] == [w.sum(), w.max(), (w * w).sum()]
