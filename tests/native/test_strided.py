"""Elements some places apart: picked out of whole vectors, of which none ends beyond the array."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import guarded

import graphc as gx
from graphc.codegen import nest

RNG = np.random.default_rng(17)
DTYPES = ["uint8", "bool", "int16", "float16", "float32", "int32", "float64", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, 4, 5, 8, 9])
def test_every_so_many_elements(dtype, step, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x = gx.input("x", ("n", step), dtype)
    pick = gx.function([x], [x[:, k] for k in (0, step - 1)])
    for n in (1, 15, 16, 17, 63, 64, 130, 300):
        for at_end in (True, False):
            a = guarded((n, step), dtype, at_end)
            a[:] = RNG.integers(0, 100, a.shape).astype(dtype)
            for got, k in zip(pick(a), (0, step - 1), strict=True):
                np.testing.assert_array_equal(got, a[:, k])
    gathers = [x for x in pick.llvm_ir().splitlines() if "call" in x and "masked.gather" in x]
    whole = [x for x in gathers if "splat (i1 true)" in x]
    assert gathers and bool(whole) == (step > (4 if np.dtype(dtype).itemsize >= 4 else 8))


@pytest.mark.parametrize("colours", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_pixels_stand_in_lanes(colours, dtype, monkeypatch):
    """Of images whose colours are moved apart or together, as many lanes as there are colours were
    filled: a byte image of 512 x 512 took 10 times as long."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    made, plan = [], nest.plan
    monkeypatch.setattr(nest, "plan", lambda *args: made.append(plan(*args)) or made[-1])
    scale = gx.constant(RNG.normal(size=colours).astype("float32"))
    last, first = gx.input("x", ("b", "h", "w", colours), dtype), gx.input(
        "x", ("b", colours, "h", "w"), dtype)
    apart = gx.function([last], gx.permute_dims(last.astype("float32") / 255 - scale, (0, 3, 1, 2)))
    together = gx.function([first], gx.permute_dims(first, (0, 2, 3, 1)))
    for shape in ((1, 1, 1), (2, 5, 7), (3, 64, 33)):
        a = (100 * RNG.random((*shape, colours))).astype(dtype)
        moved = np.ascontiguousarray(a.transpose(0, 3, 1, 2))
        want = a.astype("float32") / np.float32(255) - scale.eval({})
        np.testing.assert_allclose(apart(a), want.transpose(0, 3, 1, 2), rtol=1e-6)
        np.testing.assert_array_equal(together(moved), a)
    moved_apart, moved_together = (s.vector for s in made)
    assert moved_apart == "%i2"
    assert moved_together == ("%i2" if dtype == "float32" else "%i3")
