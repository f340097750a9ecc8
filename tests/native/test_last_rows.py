"""The last rows of long functions, by a call for copies of them: bits, bounds, which kernels."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scalar_harness import at_level, levels

import graphc as gx
from graphc.codegen.emission import last_rows
from graphc.codegen.machine import target

ROWS = (0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 4095, 4096, 4097)
GUARD = 7.0


def put_together(x, y, w):
    """Rows of which each element depends on the place of others."""
    turned = gx.where(x > 0, gx.roll(x, 1, axis=1), 0.5 * x) * y
    return turned - gx.sum(turned * w, axis=1, keepdims=True)


def scored(x, y, w):
    """Results of a row, a number for it, and rows of another type."""
    rows = put_together(x, y, w)
    best = gx.max(gx.flip(rows, axis=1) * x, axis=1)
    return rows, best, gx.flip(rows, axis=1) > gx.expand_dims(best, 1) * 0.5


FORMULAS = {
    "one result": lambda x, y, w: [put_together(x, y, w)],
    "results of three kinds": scored,
    "a column": lambda x, y, w: [put_together(x, y[:, :1] + w, x)],
}


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")


def compiled(what, length, dtype):
    x, y = (gx.input(name, ("n", length), dtype) for name in "xy")
    w = gx.input("w", (length,), dtype)
    return gx.function([x, y, w], list(FORMULAS[what](x, y, w)), name="f")


def calls(f):
    """The tasks that call themselves."""
    bodies = re.split(r"^(?=define )", f.program.llvm, flags=re.M)
    names = [(m[1], body) for body in bodies if (m := re.match(r"define .*?@(\S+)\(", body))]
    return [name for name, body in names if f"call void @{name}(" in body]


def data(rows, length, dtype):
    a = np.random.default_rng(rows).normal(size=(2, rows, length)).astype(dtype)
    a.flat[:: 11] = np.inf
    return *a, np.arange(length).astype(dtype)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [5, 8, 10, 16])
@pytest.mark.parametrize("what", FORMULAS)
@pytest.mark.filterwarnings("ignore:.*(overflow|invalid):RuntimeWarning")
def test_bits_are_those_of_masked_rows(what, length, dtype, level, monkeypatch):
    """For every number of rows, written into arrays that must keep what is beside these."""
    here = at_level(level)
    monkeypatch.setattr(target, "host", lambda: here)
    found = []
    for least in (1 << 30, 1):
        monkeypatch.setattr(last_rows, "LEAST_EXPRS", least)
        f = compiled(what, length, dtype)
        assert bool(calls(f)) == (least < 1 << 30)
        some = []
        for rows in ROWS:
            given = data(rows, length, dtype)
            results = f(*given)
            for fresh in results:
                whole = np.full(fresh.size + 64, GUARD).astype(fresh.dtype)
                some.append((fresh, whole, whole[32 : 32 + fresh.size].reshape(fresh.shape)))
            outs = [view for _, _, view in some[-len(results) :]]
            f(*given, out=outs)
        for fresh, whole, view in some:
            assert view.tobytes() == fresh.tobytes()
            rest = np.delete(whole, np.s_[32 : 32 + fresh.size])
            assert (rest == whole.dtype.type(GUARD)).all()
        found.append([fresh.tobytes() for fresh, _, _ in some])
    assert found[0] == found[1]


def test_rows_that_tell_where_they_are_stay_masked(monkeypatch):
    """As do rows of one element, of which masks are short."""
    monkeypatch.setattr(last_rows, "LEAST_EXPRS", 1)
    x, z = gx.input("x", ("n", 16)), gx.input("z", ("n",), "float64")
    place = gx.astype(gx.expand_dims(gx.arange(x.shape[0]), 1), "float32")
    assert calls(gx.function([x], put_together(x, x, x)))
    assert not calls(gx.function([x], put_together(x, x + place, x)))
    assert not calls(gx.function([z], sum(gx.sin(z * k) for k in range(1, 9)) > 1))


def test_what_others_write_is_not_put_back(monkeypatch):
    """Results of a row of which an element is left out, as where rows are put together."""
    nests = []
    monkeypatch.setattr(last_rows, "of", lambda body: nests.append(body.nest))
    calls(compiled("one result", 16, "float32"))
    nest = next(n for n in nests if len(n.stores) == 16)
    (vector,) = nest.outer
    assert last_rows._results(nest, vector) == [(0, 64)]
    assert last_rows._results(replace(nest, stores=nest.stores[1:]), vector) is None


@pytest.mark.parametrize("factors", [(2, 2, 2), tuple(range(2, 14))])
def test_equal_kernels_are_one(factors):
    """Though each calls itself; those that differ in a number stay apart."""
    rng = np.random.default_rng(0)
    inputs = [gx.input(f"x{k}", ("n", 16)) for k, _ in enumerate(factors)]
    outs = [put_together(x, x, x * n) for x, n in zip(inputs, factors, strict=True)]
    f = gx.function(inputs, outs, name="f")
    assert len(calls(f)) == len({*factors})
    given = [rng.normal(size=(37, 16)).astype("f4") for _ in inputs]
    for x, out, a, got in zip(inputs, outs, given, f(*given), strict=True):
        assert got.tobytes() == gx.function([x], out)(a).tobytes()
