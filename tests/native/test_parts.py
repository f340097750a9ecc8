"""Part of a vector of bytes is copied as a whole where the machine has no masks for bytes."""

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import parts
from graphc.codegen.machine.target import x86


def test_one_copy_in_the_place_of_a_branch_for_each_lane():
    """By AVX2; by AVX-512 bytes have masks, and of eight lanes branches cost less."""
    x = gx.input("x", ("n", "m"), "uint8")
    for out, level, copies in (
        (x[:, 1:] * 2, "v3", True), (x[:, 1:] * 2, "v4", False),
        (gx.astype(x[:, 1:], "float32"), "v3", False),
    ):
        text = compile_graph(gx.function([x], out).optimized, x86(level)).llvm
        assert ("call void @graphc_store_part.v32i8" in text) == copies
        assert ("call <32 x i8> @graphc_load_part.v32i8" in text) == copies
        assert ("llvm.masked.store" in text) != copies


@pytest.mark.parametrize("lanes", [1, parts.LANES, 1 << 30])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "int16", "float32"])
def test_nothing_beside_the_part_is_touched(dtype, lanes, monkeypatch):
    """Whether parts are copied or masked: rows turned around, beside a column, every second and
    third of their elements, and put together with what stands before and behind them, of lengths
    up to three vectors. An access before or behind any array is a fault."""
    monkeypatch.setattr("graphc.codegen.emission.frame.LANES", lanes)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x, c = gx.input("x", ("n", "m"), dtype), gx.input("c", ("n", 1), dtype)
    padded = gx.pad(x, ((0, 0), (3, 5)))
    beside = x | c if dtype == "bool" else x + c
    apart = [x[:, 1::2], gx.where(x[:, ::3] == c, c, x[:, ::3])]
    f = gx.function([x, c], [gx.flip(x, axis=1), beside, padded, *apart])
    rng = np.random.default_rng(0)
    for m in (*range(1, 100, 3), 31, 32, 33, 63, 64, 65, 96, 300):
        a, b = (rng.integers(0, 2 if dtype == "bool" else 50, (3, k)).astype(dtype)
                for k in (m, 1))
        beside = a | b if dtype == "bool" else a + b
        want = [a[:, ::-1], beside, np.pad(a, ((0, 0), (3, 5))), a[:, 1::2], a[:, ::3]]
        for at_end in (True, False):
            ends = [guarded(k.shape, dtype, at_end) for k in (a, b, *want)]
            ends[0][:], ends[1][:] = a, b
            f(*ends[:2], out=ends[2:])
            for got, w in zip(ends[2:], want, strict=True):
                np.testing.assert_array_equal(got, w, err_msg=f"{m}")
