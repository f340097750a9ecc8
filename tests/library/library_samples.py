"""Functions to export, and a caller of exported libraries that needs ctypes only."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import graphc as gx

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")
needs_cxx = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler (c++)")


def digits_functions(hidden=32):
    rng = np.random.default_rng(0)
    x, y = gx.input("x", ("batch", 64)), gx.input("y", ("batch",), "int64")
    w1 = gx.variable(0.1 * rng.normal(size=(64, hidden)), "w1", dtype="float32")
    b1 = gx.variable(np.zeros(hidden, "float32"), "b1")
    w2 = gx.variable(0.1 * rng.normal(size=(hidden, 10)), "w2", dtype="float32")
    b2 = gx.variable(np.zeros(10, "float32"), "b2")
    logits = gx.nn.relu(x @ w1 + b1) @ w2 + b2
    loss = gx.nn.cross_entropy(logits, y)
    params = [w1, b1, w2, b2]
    updates = gx.optim.adam(params, gx.grad(loss, params), lr=1e-2)
    step = gx.function([x, y], {"loss": loss}, updates=updates, name="step")
    predict = gx.function([x], gx.argmax(logits, axis=1), name="predict")
    return [step, predict]


def batch(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 64)).astype(np.float32), rng.integers(0, 10, n)


class Loaded:
    """An exported library and the functions it came from."""

    def __init__(self, path: Path, functions, prefix=None):
        self.path, self.functions = path, {f.name: f for f in functions}
        self.prefix = prefix or path.stem.removeprefix("lib")
        self.c = ctypes.CDLL(str(path))
        self.header = path.with_suffix(".h").read_text()
        size = re.search(r"sizeof\(\w+\) == (\d+)u", self.header)
        self.state_bytes = int(size[1]) if size else 0
        self.symbol("strerror").restype = ctypes.c_char_p

    def symbol(self, name):
        return getattr(self.c, f"{self.prefix}_{name}")

    def new_state(self):
        s = np.full(self.state_bytes, 0xA5, np.uint8)
        self.symbol("init")(ctypes.c_void_p(s.ctypes.data))
        return s

    def has_state(self, name):
        p = self.prefix
        return bool(re.search(rf"int {p}_{name}\([^;]*{p}_state \*s", self.header))

    def dims(self, name, arrays):
        f = self.functions[name]
        return [f._signature.bind(arrays, {})[d] for d in f.graph.dims()]

    def arena(self, name, *dims):
        fn = self.symbol(f"{name}_arena")
        fn.restype = ctypes.c_int64
        return fn(*map(ctypes.c_int64, dims))

    def outputs(self, name, arrays):
        f = self.functions[name]
        dims = f._signature.bind(arrays, {})
        return [np.full(s, 77, t.dtype.numpy) for s, t in
                zip(f._results.shapes(dims), f._results.types, strict=True)]

    def raw(self, name, state, pointers, dims, arena=None):
        """The status of a call on addresses."""
        args = [ctypes.c_void_p(state.ctypes.data)] if self.has_state(name) else []
        args += [ctypes.c_void_p(p) for p in pointers]
        args += [ctypes.c_int64(d) for d in dims]
        return self.symbol(name)(*args, ctypes.c_void_p(arena))

    def call(self, name, state, *arrays, arena=None):
        """The outputs of a call; fails on a status."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        outs = self.outputs(name, arrays)
        pointers = [a.ctypes.data for a in (*arrays, *outs)]
        status = self.raw(name, state, pointers, self.dims(name, arrays), arena)
        assert status == 0, self.explain(status)
        return outs

    def explain(self, status):
        return self.symbol("strerror")(status).decode()


def export_loaded(functions, path: Path, **options) -> Loaded:
    gx.export(functions, path, **options)
    return Loaded(path, functions)


def agree(told, said):
    """Whether Python says what the library does; it may add the value and its place."""
    reason, _, line = said.rpartition(" (")
    return str(told.value).startswith(reason) and str(told.value).endswith(f" ({line}")


def same_bits(a, b):
    """Whether two arrays are equal bit for bit."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.5, 1e30, np.inf, -np.inf, np.nan])


def arrays(f, rng, n):
    """Inputs with special values; sizes by name."""
    out = []
    for v in f.graph.inputs:
        shape = [s if isinstance(s, int) else n for s in v.type.shape]
        d = v.type.dtype
        values = rng.choice(SPECIAL, shape) if d.is_float else rng.integers(-3, 4, shape)
        out.append(np.ascontiguousarray(np.asarray(values).astype(d.numpy)))
    return out


def plain(a):
    """The array with all NaNs alike: their signs and payloads mean nothing."""
    if a.dtype.name == "bfloat16":
        a = a.astype(np.float32)
    return np.where(np.isnan(a), np.nan, a).astype(a.dtype) if a.dtype.kind == "f" else a
