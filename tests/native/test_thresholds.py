"""Random programs under random thresholds: paths made for large sizes are taken at small ones.

Constants of sizes and costs decide how a kernel is written, and never what comes out. So some are
set to extremes at random, and results are those of the interpreter; where a constant decides what
is done when and where, but not the order of operations, they are those of the default, bit by bit.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pathlib
import random

import numpy as np
import pytest
from native_reference import Reference
from thresholds import ORDERS, PLACES, SHARED

import graphc as gx
from graphc import codegen, passes


@functools.cache
def users():
    """(module, constant) -> the modules that have it: its own, and those that import it."""
    found = {}
    for package in (codegen, passes):
        folder = pathlib.Path(package.__path__[0])
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join([package.__name__, *(p for p in parts if p != "__init__")])
            for n in ast.walk(ast.parse(path.read_text())):
                if isinstance(n, ast.ImportFrom) and n.module:
                    for alias in n.names:
                        found.setdefault((n.module, alias.name), []).append(name)
    return found


def patch(monkeypatch, module, name, value):
    module = f"graphc.{module}"
    names = (module, *users().get((module, name), ()))
    for at in [importlib.import_module(n) for n in names]:  # one imported later would keep `value`
        monkeypatch.setattr(at, name, value)


def choose(rng, table):
    often = rng.choice((0.1, 0.4, 0.8))
    return [
        (module, name, rng.choice(values))
        for module, constants in table.items() for name, values in constants.items()
        if rng.random() < often
    ]


def test_there_are_such_constants():
    for module, constants in [*PLACES.items(), *ORDERS.items(), ("codegen.grain", SHARED)]:
        assert constants.keys() <= vars(importlib.import_module(f"graphc.{module}")).keys()


# -- programs -------------------------------------------------------------------------------------


class Program:
    """Inputs that are drawn, of sizes that are declared or come with the call."""

    SIZES = (1, 2, 3, 7, 8, 17, 31, 33, 64, 65, 100, 129)

    def __init__(self, seed):
        self.rng = random.Random(f"program {seed}")
        self.draw = np.random.default_rng(seed)
        self.dtype = self.rng.choice(("float32", "float32", "float64"))
        self.named = self.rng.random() < 0.5
        self.sizes, self.inputs, self.arrays = {}, [], []

    def size(self, name, *among):
        self.sizes[name] = n = self.rng.choice(among or self.SIZES)
        return name if self.named else n

    def input(self, *shape, below=None):
        shape = tuple(shape)
        at = tuple(self.sizes.get(s, s) for s in shape)
        if below is None:
            a = self.draw.normal(size=at).astype(self.dtype)
        else:
            a = self.draw.integers(0, self.sizes.get(below, below), at)
        t = gx.input(f"x{len(self.inputs)}", shape, "int64" if below else self.dtype)
        self.inputs.append(t)
        self.arrays.append(a)
        return t

    def rows(self):
        x = self.input(self.size("n"), self.size("m"))
        e = gx.exp(x)
        outs = [
            gx.logsumexp(x, axis=1), gx.var(x, axis=1), gx.nn.softmax(x, axis=1), gx.sum(e, axis=0),
            gx.sum(gx.log(gx.sum(e, axis=1))), x - gx.max(x, axis=0), gx.nn.layer_norm(x),
            gx.cumulative_sum(x, axis=1), gx.argmax(x, axis=1), gx.mean(gx.tanh(x), axis=0),
        ]
        return self.rng.sample(outs, 4)

    def three(self):
        axes = self.size("b", 1, 2, 3), self.size("n", 1, 3, 8, 33), self.size("m", 1, 4, 9, 40)
        y = gx.permute_dims(self.input(*axes), self.rng.sample(range(3), 3))
        outs = [
            gx.tanh(y) + 1, *(gx.sum(y * y, axis=a) for a in range(3)), gx.nn.softmax(y, axis=2),
            gx.flip(y, axis=0) * 1.5, gx.max(y, axis=(0, 2)), gx.sum(gx.exp(y), axis=(0, 1)),
        ]
        return self.rng.sample(outs, 4)

    def pieces(self):
        n, m = self.size("n"), self.size("m")
        x, y = self.input(n, m), self.input(n, m)
        z = gx.concat([x, y * 2, gx.tanh(x)], axis=self.rng.randrange(2))
        padded = gx.pad(x, ((1, 2), (0, 3)))
        return [z, gx.sum(z, axis=1), padded * 2, gx.sum(padded, axis=0)]

    def training(self):
        n, m, h, c = (self.size(k) for k in "nmhc")
        x, labels = self.input(n, m), self.input(n, below="c")
        w = [self.input(m, h), self.input(h), self.input(h, c), self.input(c)]
        hidden = gx.tanh(x @ (w[0] * 0.1) + w[1])
        loss = gx.nn.cross_entropy(hidden @ (w[2] * 0.1) + w[3], labels)
        return [loss, *(a - 0.1 * g for a, g in zip(w, gx.grad(loss, w), strict=True))]

    def regression(self):
        x = self.input(self.size("n"), self.size("m"))
        w, y = (self.input(k if self.named else self.sizes[k]) for k in "mn")
        e = gx.nn.sigmoid(x @ w) - y
        return [x.T @ e, gx.sum(e * e), x.T @ y]

    def attention(self):
        heads, d, t = self.rng.choice((1, 2)), self.rng.choice((4, 17)), self.size("n", 33, 65, 200)
        s = self.size("s", 64, 130, 257) if self.rng.random() < 0.4 else t
        q, k, v = self.input(heads, t, d), self.input(heads, s, d), self.input(heads, s, d)
        i, j = gx.arange(q.shape[1])[:, None], gx.arange(k.shape[1])[None, :]
        mask = self.rng.choice((j <= i, j <= i + 5, gx.logical_and(j <= i, j > i - 30), j >= 0))
        scores = gx.where(mask, q @ gx.matrix_transpose(k) * 0.3, -1e9)
        out = gx.nn.softmax(scores, axis=-1) @ v
        return [out, *gx.grad(gx.sum(gx.sin(out)), [q, k, v])]

    def batched(self):
        b, n, k, m = self.size("b", 1, 3), self.size("n"), self.size("k"), self.size("m")
        z = self.input(b, n, k) @ gx.matrix_transpose(self.input(b, m, k)) * 0.1
        return [gx.tanh(z), gx.sum(z, axis=2), gx.max(z, axis=1)]

    def points(self):
        n = self.size("n")
        a, b = self.input(n, 3), self.input(n, 3) - self.input(3)
        c = gx.linalg.cross(a - b, b)
        outs = [
            gx.sum(c * a, axis=1), c / gx.sqrt(gx.sum(c * c, axis=1, keepdims=True) + 1),
            gx.sum((c - a) ** 2), gx.grad(gx.sum(gx.sqrt(gx.sum(c * c, axis=1) + 1)), a),
            gx.max(gx.concat([a, c], axis=1), axis=1), gx.mean(c, axis=0),
        ]
        return self.rng.sample(outs, 4)

    KINDS = (rows, three, pieces, training, regression, attention, batched, points)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("places", [True, False])
def test_thresholds_change_no_result(monkeypatch, seed, places):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")  # which knows programs by their source
    rng = random.Random(f"{seed} {places}")
    p = Program(2 * seed + places)
    outputs = Program.KINDS[seed % len(Program.KINDS)](p)
    chosen = choose(rng, PLACES) + ([] if places else choose(rng, ORDERS))
    if not places and rng.random() < 0.5:
        chosen += [("codegen.grain", k, v) for k, v in SHARED.items()]
    f = gx.function(p.inputs, outputs, name="f", threads=1)
    want = [np.asarray(a) for a in f(*p.arrays)] if places else []
    for one in chosen:
        patch(monkeypatch, *one)
    other = gx.function(p.inputs, outputs, name="f", threads=3)
    got = [np.asarray(a) for a in other(*p.arrays)]
    if places:
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            assert a.tobytes() == b.tobytes(), f"output {i} with {chosen}\n{f.graph}"
    Reference(other.optimized, p.arrays, p.sizes).check(got, f"with {chosen}")
