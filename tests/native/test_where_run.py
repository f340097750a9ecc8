"""Index polynomials of named dimensions, wherever their loops have a turn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import graphc as gx
from graphc import dims
from graphc.codegen.emission import nest

CASES = {
    "second differences": lambda xp, x: x[2:] - 2 * x[1:-1] + x[:-2],
    "their squares": lambda xp, x: xp.sum((x[2:] - x[:-2]) ** 2),
    "five points": lambda xp, x: x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1],
    "rows": lambda xp, x: xp.sum(xp.abs(x[:, 1:] - x[:, :-1]), axis=1),
    "columns": lambda xp, x: xp.max(x[3:] * x[:-3], axis=0),
    "padded": lambda xp, x: padded(xp.pad(x, ((1, 1), (2, 2)))),
    "from the end": lambda xp, x: x[-3:] + x[:3],
    "every second": lambda xp, x: x[1::2] - x[:-1:2],
}


def padded(y):
    return y[2:, 2:-2] - y[:-2, 4:] * y[1:-1, :-4]


FLAT = ("second differences", "their squares")


@pytest.mark.parametrize("case", CASES)
def test_same_places(case, monkeypatch) -> None:
    """As before it was asked for, at all sizes for which the loops run."""
    found, where_run = [], nest.where_run

    def record(before):
        found.append((before, where_run(before)))
        return found[-1][1]

    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(nest, "where_run", record)
    x = gx.input("x", ("n",) if case in FLAT else ("n", "m"))
    f = gx.function([x], CASES[case](gx, x))
    for n, m in product(range(9), repeat=2):
        a = np.random.default_rng(9 * n + m).normal(size=(n, m)[: len(x.shape)]).astype("f4")
        if case in ("columns", "from the end") and n < 4:  # of nothing, or of different sizes
            continue
        np.testing.assert_allclose(f(a), CASES[case](np, a), rtol=1e-5, atol=1e-5)
    assert found
    for before, after in found:
        for n, m in product(range(9), repeat=2):
            sizes = {a: dims.evaluate(s, {"n": n, "m": m}) for a, s in before.sizes.items()}
            if 0 in sizes.values():
                continue
            for at in product(*(sorted({0, s - 1}) for s in sizes.values())):
                env = {"n": n, "m": m, **dict(zip(sizes, at, strict=True))}
                pairs = zip(before.exprs, after.exprs, strict=True)
                for e, changed in pairs:
                    if e.kind == "load":
                        assert dims.evaluate(e.offset, env) == dims.evaluate(changed.offset, env)
                        assert e.preds == changed.preds


def test_conditions_are_still_told_apart() -> None:
    """Loops are cut where these begin: of a value and its gradient most vectors have none."""
    texts = []
    for size in ("n", 4096):
        x = gx.input("x", (size,))
        cost = gx.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
        texts.append(gx.function([x], [cost, gx.grad(cost, x)]).llvm_ir())
    plain = [text.count("load <") + text.count("load volatile <") for text in texts]
    assert plain[0] > plain[1] // 2 > 0


def test_neighbours_are_some_elements_apart() -> None:
    x = gx.input("x", ("n",))
    f = gx.function([x], CASES["second differences"](gx, x))
    text = f.kernels[0].text
    assert "max(0, n-2)" in text.splitlines()[0]
    read = {line.split("= ")[1] for line in text.splitlines() if "in0" in line}
    assert read == {"in0[i0]", "in0[i0+1]", "in0[i0+2]"}
