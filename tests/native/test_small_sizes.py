"""Elementwise nests have versions for two to four elements of a size that comes with the call."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx

DTYPES = ["float32", "float64", "int16", "int64"]


def points(xp, x, m):
    return [(x - m) * m]


def reversed_rows(xp, x, m):
    return [xp.flip(x, axis=1) + x]


def apart(xp, x, m):
    """Two results, one in the order of columns."""
    return [x.T + m[:, None], x * m]


def put_together(xp, x, m):
    return [xp.concat([x + m, x, xp.flip(x, axis=1) * m], axis=1)]


CASES = [points, reversed_rows, apart, put_together]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_values_for_any_number(case, dtype):
    """What NumPy gives, of one function, for numbers that have a version and others."""
    rng = np.random.default_rng(len(case.__name__))
    x, m = gx.input("x", ("n", "d"), dtype), gx.input("m", ("d",), dtype)
    f = gx.function([x, m], case(gx, x, m))
    for d in (1, 2, 3, 4, 5, 9):
        for n in (0, 1, 7, 33, 700):
            a, b = (rng.integers(-9, 10, s).astype(dtype) for s in ((n, d), (d,)))
            for got, want in zip(f(a, b), case(np, a, b), strict=True):
                np.testing.assert_array_equal(got, want)
    assert f.compilations == 1


def versions(made, *inputs):
    f = gx.function(inputs, made, name="some")
    return sorted(set(re.findall(r"define internal void @some\.k\d+\.(of\d|other)\(", f.llvm_ir())))


ALL = ["of2", "of3", "of4", "other"]


def test_which_have_versions():
    """Rows that a size makes short, and elements that it sets apart; not what costs more than a
    row, nor rows whose number may be small, nor what is known."""
    x, m = gx.input("x", ("n", "d")), gx.input("m", ("d",))
    known, few, w = gx.input("k", ("n", 3)), gx.input("f", (3, "n")), gx.input("w", (3,))
    rows = gx.input("r", ("n",))
    assert versions(x - m, x, m) == ALL
    assert versions(x * rows[:, None], x, rows) == ALL
    assert versions(x.T * 2.0, x) == ALL
    assert versions(gx.nn.gelu(x + m), x, m) == []
    assert versions(known - w, known, w) == []
    assert versions(few - few[0], few) == []
    assert versions(known.T * 2.0, known) == []
    assert versions(x * 2.0, x) == []  # one long row
