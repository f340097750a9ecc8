"""Short rows by numbers of their rows and columns: vectors hold whatever lies side by side."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.nests.flattened import flattened
from graphc.codegen.nests.lowering import lower

RNG = np.random.default_rng(5)
ROWS = (0, 1, 15, 16, 17, 33, 100, 4097)
LENGTHS = (2, 3, 4, 5, 7, 8, 12, 15, 16)


def formulas(x, s, b, astype):
    """By row, by column, by both, by an element of the row itself, and in another dtype."""
    last = x[..., -1:]
    return [
        x * s[..., None], x + b, (x + last) * s[..., None] + b, x * (s * s + s)[..., None],
        astype(astype(x, "int32") * astype(last, "int32") // 3, "float64"),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", LENGTHS)
def test_values(dtype, length):
    x, s, b = (gx.input(k, shape, dtype) for k, shape in (
        ("x", ("n", length)), ("s", ("n",)), ("b", (length,))))
    f = gx.function([x, s, b], formulas(x, s, b, gx.astype))
    numpy = dtype if dtype != "bfloat16" else "float32"
    for n in ROWS:
        a, w, v = (RNG.integers(0, 5, shape) for shape in ((n, length), (n,), (length,)))
        want = formulas(*(k.astype(numpy) for k in (a, w, v)), np.astype)
        given = [k.astype(f_in) for k, f_in in zip((a, w, v), [x.dtype.numpy] * 3, strict=True)]
        for got, exact in zip(f(*given), want, strict=True):
            np.testing.assert_array_equal(np.asarray(got, exact.dtype), exact)


def test_static_pixels_in_place():
    """A grid of pixels is one axis of rows; the result may stand where the pixels were."""
    x, s = gx.input("x", (21, 13, 4)), gx.input("s", (21, 13))
    a, w = RNG.normal(size=(21, 13, 4)).astype("f4"), RNG.normal(size=(21, 13)).astype("f4")
    f = gx.function([x, s], x * s[..., None] - x[..., 3:])
    np.testing.assert_array_equal(f(a, w), a * w[..., None] - a[..., 3:])
    v = gx.variable(a, "v")
    step = gx.function([s], [], updates={v: v * s[..., None] - v[..., 3:]})
    step(w)
    np.testing.assert_array_equal(v.value, a * w[..., None] - a[..., 3:])


def found(out, *inputs):
    """The columns of the nest of a function of one kernel."""
    f = gx.function(list(inputs), out)
    (node,) = [n for n in f.optimized.nodes if n.op.name == "fused"]
    attrs = node.attrs
    nest = flattened(lower(attrs["body"], attrs["axes"], attrs["reduced"], attrs["outputs"]))
    return None if nest is None else nest.sizes[nest.columns]


def test_what_is_flattened():
    x, s, wide = gx.input("x", ("n", 5)), gx.input("s", ("n",)), gx.input("wide", ("n", 17))
    assert found(x * s[:, None], x, s) == 5
    assert found(x * x[:, :1], x) == 5
    assert found(x * 2.0, x) is None, "one axis does"
    assert found(wide * s[:, None], wide, s) is None, "a row fills vectors"
    assert found(wide[:, 2:7] * s[:, None], wide, s) is None, "rows that are read lie apart"
    assert found(x * gx.arange(5, dtype="float32"), x) is None, "columns are counted"
