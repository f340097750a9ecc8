"""Which strips the rows of a product are cut into, and which tiles these have."""

from __future__ import annotations

import ctypes
import itertools
import re

import numpy as np
import pytest
from guarded import guarded
from native import call, compiled, text
from operands import FLOATS, FUSED, check, numbers

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine import jit, llvm
from graphc.codegen.machine.target import host, x86


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("level", [level for level in FUSED if level == "v4"])
def test_which_strips_are_taken(dtype, level):
    """Calls of kernels: rows that share cache sets are taken 6 or 8 at a time."""
    target, size = x86(level, host().triple), np.dtype(dtype).itemsize
    source = text(dtype, target)
    names = re.findall(r"define internal void @graphc_matmul_f\d\d_strip_(\w+)\(", source)
    for number, name in enumerate(names):
        place = f"ptr getelementptr (i64, ptr @calls, i64 {number})"
        source, found = re.subn(
            rf"(define internal void @graphc_matmul_f\d\d_strip_{name}\(.*\nentry:\n)",
            rf"\1  %calls = load i64, {place}\n  %more = add i64 %calls, 1\n"
            rf"  store i64 %more, {place}\n", source)
        assert found == 1
    source += f"\n@calls = global [{len(names)} x i64] zeroinitializer\n"
    source += "define void @entry_calls(ptr %to) {\n" + "".join(
        f"  %c{i} = load i64, ptr getelementptr (i64, ptr @calls, i64 {i})\n"
        f"  %p{i} = getelementptr i64, ptr %to, i64 {i}\n  store i64 %c{i}, ptr %p{i}\n"
        f"  store i64 0, ptr getelementptr (i64, ptr @calls, i64 {i})\n"
        for i in range(len(names))
    ) + "  ret void\n}\n"
    code = jit.load([llvm.compile_object(source, target, use_cache=False)],
                    exports=["entry", "entry_calls"])
    multiply = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 18)(code["entry"])
    calls = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code["entry_calls"])
    rng, panel = np.random.default_rng(17), 128 // size

    def taken(m, n, pad):
        a = numbers(rng, (1, m, 4096 // size + pad), dtype)[:, :, :190]
        b, c = numbers(rng, (1, 190, n), dtype), np.empty((1, m, n), dtype)
        call(multiply, a, b, c)
        check(c, a, b)
        counts = (ctypes.c_int64 * len(names))()
        calls(counts)
        return {name: number for name, number in zip(names, counts, strict=True) if number}

    packing = {"14_keeping": 1, "14": 1}
    assert taken(32, 2 * panel, 0) == {"8": 1, "6": 4}
    assert taken(32, 2 * panel, 1) == {**packing, "6": 3}
    assert taken(40, panel, 0) == {"8": 5}
    assert taken(38, panel + 1, 0) == {"8": 4, "6": 1}  # a last register would be alone
    assert taken(64, 2 * panel, 0) == {**packing, "8": 1, "6": 7}


@pytest.mark.parametrize("dtype", [*FLOATS, "float16"])
@pytest.mark.parametrize("at_end", [False, True])
def test_a_tile_whose_last_register_is_partial(dtype, at_end):
    """Of products that are known to leave more than a register, which serve any columns too."""
    rng = np.random.default_rng(18)
    panel, k = 128 // max(np.dtype(dtype).itemsize, 4), 70
    a = guarded((1, 43, k), dtype, at_end)
    a[...] = numbers(rng, a.shape, dtype)
    for n in (panel // 2, panel // 2 + 1, panel - 1, panel + 1, 3 * panel - 3):
        b = guarded((1, k, n), dtype, at_end)
        b[...] = numbers(rng, b.shape, dtype)
        for m in (1, 2, 6, 8, 13, 14, 22, 43):
            found = set()
            for level, columns in itertools.product(FUSED, (panel - 3, None)):
                c = guarded((1, m, n), dtype, at_end)
                call(compiled(dtype, level, columns=columns), a[:, :m], b, c)
                found.add(c.tobytes())
            assert len(found) == 1, (m, n)
        check(c, a, b)


@pytest.mark.parametrize(("columns", "kinds"), [
    ((30,), {"block_rows_panels_partial"}), ((64, 32, 48, 10), {"block_rows_panels"}),
    ((64, 30), {"block_rows_panels_partial"}), ((300, 64), {"block_rows_strips_panels_stream"}),
    ((30, "n"), {"block_rows_strips_panels_partial_dots_stream"}),
    ((300, 30, 1), {"block_rows_strips_panels_partial_stream", "dots"}),
])  # fmt: skip
def test_which_products_have_partial_tiles(columns, kinds):
    """Those that need and can have them, and all others beside them, for they have one block."""
    weights = [gx.input(f"w{i}", ("k", n)) for i, n in enumerate(columns)]
    xs = [gx.input(f"x{i}", (f"m{i}", "k")) for i, _ in enumerate(columns)]
    f = gx.function([*xs, *weights], [gx.tanh(x @ w) for x, w in zip(xs, weights, strict=True)])
    program = compile_graph(f.optimized, x86("v4"))
    found = re.findall(r"^define .*@graphc_matmul_f32_(\w+)\(", program.llvm, re.M)
    assert {n.removesuffix("_product") for n in found if n.endswith("_product")} == kinds
    partial = "_partial" * any("partial" in kind for kind in kinds)
    upright = {"strip_14_upright"} if any("strips" in kind for kind in kinds) else set()
    strips = {"strip_4", "strip_2", "strip_1", "strip_14_keeping"} | upright
    strips |= {f"strip_{height}{partial}" for height in (14, 8, 6)}
    assert {n for n in found if n.startswith("strip")} == strips


@pytest.mark.parametrize(("rows", "kernels"), [("n", 1), (64, 2)])
def test_a_program_has_one_block_for_all_its_products(rows, kernels):
    """That of the few columns that leave more than a register, also where both are of a chain."""
    x, w, v = gx.input("x", (rows, 64)), gx.input("w", (64, 500)), gx.input("v", (500, 30))
    program = compile_graph(gx.function([x, w, v], gx.tanh(x @ w) @ v).optimized, x86("v4"))
    strips = set(re.findall(r"^define .*@graphc_matmul_f32_(strip_8\w*)\(", program.llvm, re.M))
    assert strips == {"strip_8_partial"}
    assert len(program.kernels) == kernels
