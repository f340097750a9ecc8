"""What a block has no code for, since nothing asks for it, no result hangs on."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from guarded import guarded
from native import call, compiled
from operands import FLOATS, check, numbers
from scalar_harness import levels

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine.target import x86
from graphc.codegen.matmul.block import EVERY, Ways

SIZES = [(1, 7, 5), (1, 300, 260), (5, 40, 64), (13, 30, 33), (14, 31, 64), (43, 260, 31),
         (60, 300, 200), (100, 70, 140)]  # fmt: skip


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [*FLOATS, "float16"])
@pytest.mark.parametrize("ways", [
    Ways(True, True, False, False), Ways(True, False, True, False), Ways(True, False, False, True),
    Ways(True, False, False, False), Ways(False, False, False, False), Ways(False, True, True),
], ids=lambda w: "_".join(w.names) or "none")
def test_bits_are_those_of_the_whole_block(dtype, level, ways):
    """Whether or not the sizes are such that others would pack; A with any strides, B with those
    that are asked for."""
    if dtype == "float16":  # whose operands are packed always
        ways = ways._replace(strips=True)
    rng = np.random.default_rng(21)
    strides = itertools.product((False, True), (False, True) if ways.columns else (False,))
    for (m, k, n), (ta, tb) in itertools.product(SIZES, [*strides]):
        if m > 1 and not ways.rows:
            continue
        a, b = guarded((1, k, m) if ta else (1, m, k), dtype), guarded(
            (1, n, k) if tb else (1, k, n), dtype
        )
        a[...], b[...] = numbers(rng, a.shape, dtype), numbers(rng, b.shape, dtype)
        a, b = a.transpose(0, 2, 1) if ta else a, b.transpose(0, 2, 1) if tb else b
        results = []
        for w in (ways, EVERY):
            c = guarded((1, m, n), dtype)
            call(compiled(dtype, level, ways=w), a, b, c)
            check(c, a, b)
            results.append(c.tobytes())
        assert results[0] == results[1], (m, k, n, ta, tb)


def functions(level, outputs, inputs):
    """Of the blocks of a program, without the strips of rows."""
    text = compile_graph(gx.function(inputs, outputs).optimized, x86(level)).llvm
    found = set(re.findall(r"^define [^@]*@graphc_matmul_f32_(\w+)\(", text, re.M))
    others = r"strip_\d+(_partial)?|\w+_product(_task)?|stream|add"
    return {f for f in found if not re.fullmatch(others, f)}


def test_a_program_has_what_its_products_ask_for():
    x = gx.input("x", ("n", 64))
    w, v, large = (gx.input(name, (64, n)) for name, n in (("w", 48), ("v", 10), ("large", 500)))
    assert functions("v4", [gx.tanh(x @ w), x @ v], [x, w, v]) == {"block_rows"}
    assert functions("v4", x @ large, [x, large]) == {
        "block_rows_strips_panels", "pack", "slices", "spread", "strip_14_keeping",
        "strip_14_upright",
    }
    assert functions("v3", x @ large, [x, large]) == {
        "block_rows_panels", "pack", "spread", "strip_6_keeping",
    }
    y = gx.input("y", ("n", 48))
    assert functions("v4", [x @ w, y @ w.T], [x, y, w]) == {
        "block_rows_columns", "few", "pack", "row",
    }
    one = gx.input("one", (1, 64))
    assert functions("v4", one @ large, [one, large]) == {"block"}
    # rows of a batch that share B are one product, where no pass has made them one before
    batch = gx.input("batch", ("n", 1, 64))
    shared = batch @ gx.broadcast_to(w, (batch.shape[0], 64, 48))
    assert functions("v4", shared, [batch, w]) == {"block_rows"}
    plain = compile_graph(gx.function([batch, w], shared).graph, x86("v4"))
    assert "batch=((0), (0))" in str(plain.graph) and "@graphc_matmul_f32_block_rows(" in plain.llvm


def test_functions_of_a_library_share_a_block(tmp_path):
    """One with all that any asks for, such as a step and what it trains; none of those that no
    product needs."""
    x, w, v = gx.input("x", ("n", 64)), gx.input("w", (64, 48)), gx.input("v", (48, 64))
    right = gx.function([x, w], x @ w, name="right")
    turned = gx.function([x, v], gx.tanh(x @ v.T), name="turned")
    small = gx.input("small", (4, 4))
    tiny = gx.function([small], small @ small, name="tiny")
    for functions, wanted in (([right, tiny], ["rows"]), ([right, turned], ["rows_columns"])):
        for chosen in (functions, functions[::-1]):
            text = gx.export(chosen, tmp_path / "l.ll", cpu="v4").read_text()
            blocks = re.findall(r"^define .*@graphc_matmul_f32_block_(\w+)\.v4\(", text, re.M)
            assert [b for b in blocks if "product" not in b] == wanted
    assert "matmul" not in gx.export(tiny, tmp_path / "l.ll", cpu="v4").read_text()
